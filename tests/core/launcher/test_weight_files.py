import json

from joyrlinf_core.launcher.weight_files import damaged


def write(path, payload=b"\0" * 12):
    header = json.dumps(
        {"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + payload)


def test_a_whole_file_and_other_files_are_fine(tmp_path):
    write(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert damaged(tmp_path) == []


def test_a_file_that_was_cut_short_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    for content in (5, 20, None, -1):
        write(path, b"\0" * (12 if content else 8))
        path.write_bytes(path.read_bytes()[:content] if content else path.read_bytes())
        (problem,) = damaged(tmp_path)
        assert problem.startswith(f"{path} is damaged: ")


def test_a_header_that_is_no_header_is_named(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"nope")
    assert "header can't be read" in damaged(tmp_path)[0]
