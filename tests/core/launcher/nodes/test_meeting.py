import contextlib
import socket
import threading
import time

import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError, RunFailedError, UsageError
from joyrlinf_core.launcher.nodes import wire
from joyrlinf_core.launcher.nodes.crew import Alone, Left, NodeError, Post, exchange
from joyrlinf_core.launcher.nodes.meeting import met
from joyrlinf_core.launcher.nodes.settings import NodeSettings
from tests.core.launcher.nodes.conftest import Node, free_port


def messages(nodes):
    return [str(node.error) for node in nodes]


def heard(crew, count=1):
    """Return the next pieces of news."""
    found = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, "nothing was heard"
        found += crew.poll()
        time.sleep(0.01)
    return found


def test_all_get_the_values_of_all_in_the_order_of_the_nodes(run_nodes):
    def action(team):
        first = exchange(team.crew, "first", f"from {team.crew.node}")
        return first, exchange(team.crew, "second", team.crew.node**2), team.crew.hosts

    nodes = run_nodes(action, nodes=3)
    host = socket.gethostname()
    expected = (["from 0", "from 1", "from 2"], [0, 1, 4], (host,) * 3)
    assert [node.result for node in nodes] == [expected] * 3, messages(nodes)
    assert f"nodes: 0 {host} (lo), 1 {host} (lo), 2 {host} (lo)" in nodes[2].said


def test_one_node_meets_nobody():
    with met(None, print) as team:
        assert team.alone
        assert exchange(team.crew, "x", {"a": 1}) == [{"a": 1}]
        team.crew.post("topic", {"b": 2})
        assert team.crew.poll() == [Post(0, "topic", {"b": 2})]
        assert isinstance(team.crew, Alone)


def test_posts_arrive_in_one_order_everywhere(run_nodes):
    def action(team):
        for number in range(50):
            team.crew.post("count", {"number": number})
        return [(post.node, post.body["number"]) for post in heard(team.crew, 150)]

    nodes = run_nodes(action, nodes=3)
    assert nodes[0].result == nodes[1].result == nodes[2].result, messages(nodes)
    assert sorted(nodes[0].result) == [(n, k) for n in range(3) for k in range(50)]


def test_a_missing_node_is_named_to_all_within_the_time_out(run_nodes):
    started = time.monotonic()
    nodes = run_nodes(lambda team: None, nodes=4, ranks=[0, 2], timeout=1.0, counts=[4, 4])
    assert time.monotonic() - started < 15
    host = socket.gethostname()
    for node in nodes:
        assert isinstance(node.error, NodeError)
        assert node.error.exit_code == 4
        assert "node 1, 3 of 0-3 did not come within 1 s; there are node 0, " in str(node.error)
        assert f"node 2, {host} (process " in node.error.message
        assert "--rendezvous-timeout" in node.error.fix


def test_a_doubled_rank_ends_the_meeting_for_all(run_nodes):
    nodes = run_nodes(lambda team: None, nodes=3, ranks=[0, 1, 1])
    for node in nodes:
        assert "node rank 1 came twice: from " in str(node.error)
        assert "--node-rank" in node.error.fix


def test_another_number_of_nodes_is_named_with_both_numbers(run_nodes):
    nodes = run_nodes(lambda team: None, ranks=[0, 1], counts=[2, 3], timeout=5.0)
    for node in nodes:
        assert "nnodes is 3 on node 1, " in str(node.error)
        assert "and 2 on node 0" in str(node.error)


def test_an_error_of_one_node_ends_all_with_its_exit_code(run_nodes):
    def action(team):
        if team.crew.node == 1:
            raise EnvironmentNotReadyError("no space left on /data", fix="free some")
        exchange(team.crew, "never complete", None)

    nodes = run_nodes(action, nodes=3)
    for node in (nodes[0], nodes[2]):
        assert node.error.message == f"node 1, {socket.gethostname()}: no space left on /data"
        assert (node.error.fix, node.error.exit_code) == ("free some", 4)


def test_a_launcher_that_breaks_off_is_reported_at_once(run_nodes):
    def action(team):
        if team.crew.node == 1:
            team.crew._wire._socket.shutdown(socket.SHUT_RDWR)
            return None
        started = time.monotonic()
        left = heard(team.crew)[0]
        assert isinstance(left, Left)
        return left.error.message, time.monotonic() - started

    message, seconds = run_nodes(action, nodes=2)[0].result
    assert message.endswith("its launcher is gone: it closed the connection")
    assert seconds < 5


def test_a_silent_launcher_is_reported_after_a_while(run_nodes, monkeypatch):
    monkeypatch.setattr(wire, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(wire, "BEAT_SECONDS", 0.2)
    hold = threading.Event()

    def action(team):
        if team.crew.node == 1:
            # As if its machine had lost power: nothing comes, nothing is closed.
            monkeypatch.setattr(team.crew._wire, "beat", lambda: hold.wait(3))
            time.sleep(2)
            return None
        return heard(team.crew)[0].error.message

    nodes = run_nodes(action, nodes=2)
    hold.set()
    assert nodes[0].result.endswith("its launcher is gone: no sign of life for 1 s")


def test_without_node_0_the_others_end_too(run_nodes):
    def action(team):
        if team.crew.node == 0:
            raise KeyboardInterrupt
        exchange(team.crew, "never complete", None)

    nodes = run_nodes(action, nodes=2)
    assert nodes[1].error.message == f"node 0, {socket.gethostname()}: interrupted"
    assert nodes[1].error.exit_code == 130


def test_an_exchange_goes_on_without_a_node_that_has_gone(run_nodes):
    def action(team):
        if team.crew.node == 2:
            return None
        team.crew.put("ending", team.crew.node, limit=30.0)
        while True:
            team.crew.poll()
            if values := team.crew.answer():
                return [one.value for one in values], values[2].left
            time.sleep(0.01)

    nodes = run_nodes(action, nodes=3)
    assert nodes[0].result == nodes[1].result == ([0, 1, None], Left(2, None))


def test_a_node_that_never_brings_its_value_counts_as_gone(run_nodes):
    def action(team):
        if team.crew.node == 1:
            return heard(team.crew)[0].error.message
        team.crew.put("ending", "done", limit=0.5)
        values = None
        while values is None:
            team.crew.poll()
            values = team.crew.answer()
            time.sleep(0.01)
        return values[1].left.error.message

    nodes = run_nodes(action, nodes=2)
    assert nodes[0].result.endswith("did not end in time"), messages(nodes)


def test_a_node_may_start_again_before_all_are_there():
    port, host = free_port(), "127.0.0.1"

    def start(rank):
        action = lambda team: exchange(team.crew, "x", team.crew.node)  # noqa: E731
        return Node(NodeSettings(3, rank, host, port, 20.0), action)

    first = start(0)
    early = None
    while early is None:
        try:
            early = socket.create_connection((host, port))
        except OSError:
            time.sleep(0.05)
    hello = {"kind": "hello", "protocol": wire.PROTOCOL, "node": 1, "nnodes": 3, "host": "h"}
    wire.Wire(early).send({**hello, "process": 7})
    time.sleep(0.5)
    early.close()
    for node in (first, start(1), start(2)):
        node.join(30)
        assert node.result == [0, 1, 2], node.error


@pytest.mark.parametrize("line", [b"GET / HTTP/1.0\r\n\r\n", b'{"kind": "hello"}\n', b"\xff\n"])
def test_strangers_are_ignored(run_nodes, line):
    def action(team):
        if team.crew.node == 0:
            peer = team.crew._wire._socket.getpeername()
            with socket.create_connection(peer) as stranger:
                stranger.sendall(line)
                time.sleep(0.5)
        return exchange(team.crew, "x", team.crew.node)

    nodes = run_nodes(action, nodes=2)
    assert [node.result for node in nodes] == [[0, 1]] * 2, messages(nodes)


def test_a_latecomer_does_not_disturb_a_run(run_nodes):
    def action(team):
        if team.crew.node == 0:
            port = team.crew._wire._socket.getpeername()[1]
            late = Node(NodeSettings(2, 1, "127.0.0.1", port, 2.0), lambda team: None)
            late.join(20)
            assert "the run goes on already" in str(late.error)
            assert "--master-port" in late.error.fix
        return exchange(team.crew, "x", team.crew.node)

    nodes = run_nodes(action, nodes=2)
    assert [node.result for node in nodes] == [[0, 1]] * 2, messages(nodes)


def test_a_master_that_is_not_there_is_one_clear_line():
    node = Node(NodeSettings(2, 1, "127.0.0.1", free_port(), 1.0), lambda team: None)
    node.join(20)
    assert isinstance(node.error, EnvironmentNotReadyError)
    assert "node 1 did not reach node 0 at 127.0.0.1:" in node.error.message
    assert node.error.message.endswith("within 1 s: connection refused")
    assert "127.0.0.1 is this very machine" in node.error.fix
    assert "127.0.0.1" in node.said[0]


def test_a_master_that_is_something_else_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):  # the end of the test
                while True:
                    server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = server.getsockname()[1]
        node = Node(NodeSettings(2, 1, "127.0.0.1", port, 1.0), lambda team: None)
        node.join(20)
    assert "something answers there, but it is no joyrl launcher: it sent b'SSH" in str(node.error)


def test_an_error_class_of_another_node_keeps_unknown_codes_out():
    assert NodeError("x", fix="", code=0).exit_code == 5
    assert NodeError("x", fix="", code=77).exit_code == 5
    assert isinstance(NodeError("x", fix="", code=3), RunFailedError)
    assert not isinstance(NodeError("x", fix="", code=2), UsageError)
