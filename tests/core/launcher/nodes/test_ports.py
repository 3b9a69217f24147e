import os
import socket

import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher.nodes import ports


def test_it_listens_on_the_address_of_node_0_alone():
    with ports.listen("127.0.0.1", ports.free_port(), 2) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_names_who_holds_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentNotReadyError) as error:
            ports.listen("127.0.0.1", port, 2)
    assert f"port {port} of 127.0.0.1 is taken by process {os.getpid()} (" in error.value.message
    assert "python" in error.value.message  # workers of pytest-xdist have no other name
    assert "--master-port" in error.value.fix


def test_nobody_holds_a_free_port():
    assert ports.holder(ports.free_port()) == ""


@pytest.mark.parametrize(
    ("host", "message", "fix"),
    [
        ("203.0.113.7", "this is node 0, but the master address 203.0.113.7 is not of", "lo (127"),
        ("no-such-host.invalid", "the master address no-such-host.invalid is unknown", "lo (127"),
    ],
)
def test_a_wrong_master_address_lists_those_of_this_machine(host, message, fix):
    with pytest.raises(EnvironmentNotReadyError) as error:
        ports.listen(host, 29500, 2)
    assert message in error.value.message
    assert fix in error.value.fix


def test_an_own_name_that_means_loopback_is_refused(monkeypatch):
    monkeypatch.setattr(ports, "resolved", lambda host, port: (socket.AF_INET, "127.0.1.1"))
    with pytest.raises(EnvironmentNotReadyError, match=r"node7 is 127.0.1.1 on node 0 itself"):
        ports.listen("node7", 29500, 2)
