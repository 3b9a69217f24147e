import pytest

from joyrlinf_core.launcher.gpus import Gpu, installed, visible

LISTING = """\
0, GPU-aaaa-1, Default, NVIDIA H200
1, GPU-aabb-2, Exclusive_Process, NVIDIA H200
2, GPU-cc, Prohibited, NVIDIA A100, 80 GB
"""
GPUS = [Gpu("GPU-aaaa-1", 0), Gpu("GPU-aabb-2", 1), Gpu("GPU-cc", 2)]


@pytest.mark.parametrize(
    ("variable", "uuids"),
    [
        (None, ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cc"]),
        ("", []),
        ("2, 0", ["GPU-cc", "GPU-aaaa-1"]),
        ("GPU-aab,1", ["GPU-aabb-2", "GPU-aabb-2"]),
        ("1,7,0", ["GPU-aabb-2"]),
        ("-1", []),
        ("MIG-x", ["MIG-x"]),
    ],
)
def test_cuda_visible_devices_names_gpus(variable, uuids):
    assert [gpu.uuid for gpu in visible(GPUS, variable)] == uuids


def test_nvidia_smi_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed() == ()
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ $1 ] && echo '{LISTING}'")
    program.chmod(0o755)
    assert installed() == (
        Gpu("GPU-aaaa-1", 0, "Default", "NVIDIA H200"),
        Gpu("GPU-aabb-2", 1, "Exclusive_Process", "NVIDIA H200"),
        Gpu("GPU-cc", 2, "Prohibited", "NVIDIA A100, 80 GB"),
    )
    program.write_text("#!/bin/sh\necho 'no driver'; exit 9")
    assert installed() == ()
