import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher.nodes import interfaces
from joyrlinf_core.launcher.nodes.interfaces import Interface, route_to, socket_variables

LO = Interface("lo", ("127.0.0.1", "::1"), up=True, loopback=True)
ETH0 = Interface("eth0", ("10.0.0.5",), up=True, loopback=False)
ETH1 = Interface("eth1", ("10.9.0.5",), up=True, loopback=False)
DOCKER = Interface("docker0", ("172.17.0.1",), up=False, loopback=False)
FOUND = [LO, DOCKER, ETH0, ETH1]


def chosen(environ, route=ETH0):
    variables = socket_variables(route, FOUND, environ)
    return variables["NCCL_SOCKET_IFNAME"], variables["GLOO_SOCKET_IFNAME"]


def test_this_machine_has_a_loopback_interface_that_leads_to_itself():
    found = [one for one in interfaces.interfaces() if one.loopback]
    assert [(one.up, "127.0.0.1" in one.addresses) for one in found] == [(True, True)]
    assert route_to("127.0.0.1") == found[0]


def test_no_way_to_node_0_lists_what_is_here(monkeypatch):
    monkeypatch.setattr(interfaces, "interfaces", lambda: [ETH0, DOCKER])
    with pytest.raises(EnvironmentNotReadyError, match="starts at 127") as error:
        route_to("127.0.0.1")
    assert "eth0 (10.0.0.5), docker0 (172.17.0.1, down)" in error.value.fix


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("eth0", "eth0")),
        ({"NCCL_SOCKET_IFNAME": " "}, ("eth0", "eth0")),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, ("eth1", "eth1")),
        ({"NCCL_SOCKET_IFNAME": "eth"}, ("eth", "eth0")),
        ({"NCCL_SOCKET_IFNAME": "=eth1"}, ("=eth1", "eth1")),
        ({"NCCL_SOCKET_IFNAME": "ib0,eth1"}, ("ib0,eth1", "eth1")),
        ({"NCCL_SOCKET_IFNAME": "^lo,docker0"}, ("^lo,docker0", "eth0")),
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, ("^docker0", "eth0")),
        ({"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth0"}, ("eth1", "eth0")),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, ("eth0", "eth1")),
    ],
)
def test_gloo_gets_one_concrete_name_beside_that_of_nccl(environ, expected):
    assert chosen(environ) == expected


def test_nccl_gets_an_exact_name_where_another_begins_alike():
    other = Interface("eth01", (), up=True, loopback=False)
    variables = socket_variables(ETH0, [*FOUND, other], {})
    assert variables == {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}


def test_nodes_on_one_machine_may_use_its_loopback():
    assert chosen({}, route=LO) == ("lo", "lo")
    assert chosen({"NCCL_SOCKET_IFNAME": "lo"}, route=LO) == ("lo", "lo")


@pytest.mark.parametrize(
    ("environ", "message", "fix"),
    [
        (
            {"NCCL_SOCKET_IFNAME": "ib0"},
            "NCCL_SOCKET_IFNAME is 'ib0': no interface of this machine",
            "export NCCL_SOCKET_IFNAME=eth0 (it leads to node 0)",
        ),
        ({"NCCL_SOCKET_IFNAME": "docker"}, "docker0, which is down", "NCCL_SOCKET_IFNAME=eth0"),
        ({"NCCL_SOCKET_IFNAME": "lo"}, "the loopback interface", "NCCL_SOCKET_IFNAME=eth0"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "no interface of this", "NCCL_SOCKET_IFNAME=eth0"),
        ({"GLOO_SOCKET_IFNAME": "^lo"}, "no list and no", "export GLOO_SOCKET_IFNAME=eth0,"),
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, "no list and no", "GLOO_SOCKET_IFNAME=eth0,"),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "GLOO_SOCKET_IFNAME is 'eth': no int", "eth1 (10.9.0.5)"),
    ],
)
def test_names_that_will_not_do_are_refused_with_those_that_exist(environ, message, fix):
    with pytest.raises(EnvironmentNotReadyError) as error:
        chosen(environ)
    assert message in error.value.message
    assert fix in error.value.fix
    assert "lo (127.0.0.1, ::1, loopback), docker0 (172.17.0.1, down), eth0" in error.value.fix
