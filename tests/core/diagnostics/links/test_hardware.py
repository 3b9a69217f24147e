import pytest

from joyrlinf_core.diagnostics.links.facts import LOOPBACK, SAME_MACHINE, RankFacts, pair_link
from joyrlinf_core.diagnostics.links.hardware import (
    UNKNOWN,
    Gpu,
    Link,
    NodeHardware,
    gpu_link,
    infiniband_speed,
    interface_of,
    network_speeds,
    parse_gpus,
    parse_paths,
    read_hardware,
)

# As recent drivers print it: names underlined, network cards behind the GPUs, a legend below.
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tPHB\tSYS\t0-47\t0\t\tN/A\n"
    "GPU2\tSYS\tPHB\t X \tSYS\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
)
QUERY = "0, GPU-aaaa, 5, 16\n1, GPU-bbbb, 5, 16\n2, GPU-cccc, 4, 8\n"
NVLINK = (
    "GPU 0: NVIDIA H200 (UUID: GPU-aaaa)\n"
    + "".join(f"\t Link {number}: 26.562 GB/s\n" for number in range(18))
    + "GPU 1: NVIDIA H200 (UUID: GPU-bbbb)\n"
    + "".join(f"\t Link {number}: 26.562 GB/s\n" for number in range(17))
    + "\t Link 17: <inactive>\n"
    "GPU 2: NVIDIA L4 (UUID: GPU-cccc)\n"
)


@pytest.fixture
def hardware():
    return NodeHardware(parse_gpus(QUERY, NVLINK), parse_paths(TOPOLOGY), {"eth0": 12.5e9}, 50e9)


def test_gpus_of_nvidia_smi(hardware):
    first, second, third = hardware.gpus
    assert first == Gpu(0, "aaaa", 5, 16, (26.562e9,) * 18)
    assert len(second.nvlinks) == 17
    assert third == Gpu(2, "cccc", 4, 8)
    assert parse_gpus("0, GPU-a, [N/A], [N/A]\n", "") == (Gpu(0, "a"),)
    assert parse_gpus("No devices were found\n", "") == ()


def test_paths_of_nvidia_smi(hardware):
    assert hardware.paths == {
        (0, 1): "NV18", (1, 0): "NV18", (0, 2): "SYS", (2, 0): "SYS", (1, 2): "PHB", (2, 1): "PHB",
    }  # fmt: skip
    assert parse_paths("") == {}


def test_links_between_gpus(hardware):
    assert gpu_link(hardware, "aaaa", "bbbb") == Link("NVLink x18", 18 * 26.562e9)
    assert gpu_link(hardware, "bbbb", "cccc") == Link("PCIe 4 x8 (PHB)", 8 * 1.969e9)
    assert gpu_link(hardware, "aaaa", "none") == UNKNOWN
    assert gpu_link(NodeHardware(), "aaaa", "bbbb") == UNKNOWN
    unrated = NodeHardware((Gpu(0, "a"), Gpu(1, "b")), {(0, 1): "NV4", (1, 0): "SYS"})
    assert gpu_link(unrated, "a", "b") == Link("NVLink x4", None)
    assert gpu_link(unrated, "b", "a") == Link("PCIe (SYS)", None)


def test_hardware_travels_as_json(hardware):
    assert NodeHardware.from_json(hardware.to_json()) == hardware


def test_this_machine_can_be_asked():
    assert isinstance(read_hardware(), NodeHardware)


def test_network_speeds(tmp_path):
    for name, speed in {"eth0": "100000\n", "eth1": "-1\n", "lo": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(speed)
    (tmp_path / "bonding_masters").write_text("")
    assert network_speeds(tmp_path) == {"eth0": 12.5e9}
    assert network_speeds(tmp_path / "none") == {}


def test_infiniband_speed(tmp_path):
    states = {"mlx5_0": "4: ACTIVE", "mlx5_1": "4: ACTIVE", "mlx5_2": "1: DOWN"}
    rates = {
        "mlx5_0": "200 Gb/sec (4X HDR)",
        "mlx5_1": "400 Gb/sec (4X NDR)",
        "mlx5_2": "800 Gb/sec",
    }
    for name in states:
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(states[name] + "\n")
        (port / "rate").write_text(rates[name] + "\n")
    assert infiniband_speed(tmp_path) == 50e9
    assert infiniband_speed(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("value", "name"),
    [("eth0", "eth0"), ("=eth0", "eth0"), ("eth0,eth1", "eth0"), ("^lo,docker", ""), ("", "")],
)
def test_interface_of_a_variable(value, name):
    assert interface_of(value) == name


def rank(number, node, uuid="", **variables):
    return RankFacts(number, node, f"host{node}", "NVIDIA H200", uuid, "2", "2", variables)


def test_pairs_of_ranks(hardware):
    both = {0: hardware, 1: NodeHardware(networks={"ens1": 3e9, "eth0": 25e9}, infiniband=25e9)}
    here, beside = rank(0, 0, "aaaa"), rank(1, 0, "bbbb")
    assert pair_link(here, beside, both, "nccl").name == "NVLink x18"
    assert pair_link(here, beside, both, "gloo") == SAME_MACHINE
    looped = rank(0, 0, "aaaa", GLOO_SOCKET_IFNAME="lo")
    assert pair_link(looped, beside, both, "gloo") == LOOPBACK
    names = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    named, far = rank(0, 0, **names), rank(2, 1, **{**names, "GLOO_SOCKET_IFNAME": "ens1"})
    assert pair_link(named, far, both, "nccl") == Link("InfiniBand", 25e9)
    assert pair_link(named, far, both, "gloo") == Link("eth0-ens1", 3e9)
    without = rank(0, 0, **names, NCCL_IB_DISABLE="1")
    assert pair_link(without, far, both, "nccl") == Link("eth0", 12.5e9)
    assert pair_link(here, far, both, "gloo") == Link("network", None)
    assert pair_link(here, far, {0: hardware}, "nccl") == UNKNOWN
