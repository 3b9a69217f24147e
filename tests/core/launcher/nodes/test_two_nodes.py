"""Runs on two nodes: two network namespaces, two launchers, one worker in each, over Gloo."""

import signal
import time

import pytest

from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.reader import read_history
from joyrlinf_core.observability.run_dir import RunDir
from tests.core.launcher.nodes.two_namespaces import ADDRESSES, Pair, namespaces

__all__ = ["namespaces"]

pytestmark = pytest.mark.slow


@pytest.fixture
def start(namespaces, make_plan, tmp_path):
    """Returns a function that starts a pair; `make_plan` lets its processes find the fake parts."""
    pairs = []

    def run(behave, **more):
        pairs.append(Pair(namespaces, tmp_path, behave=behave, **more))
        return pairs[-1]

    yield run
    for pair in pairs:
        pair.kill()


def assert_no_process_left(pair, count=2):
    pids = pair.processes()
    assert len(pids) == count
    pair.until(lambda: not any(ProcessId.of(pid).alive for pid in pids), seconds=15)


def run_dirs(pair):
    return [RunDir(path.parent) for path in sorted(pair.directory.rglob("plan.json"))]


def test_a_run_on_disks_of_their_own(start, namespaces):
    pair = start("steps:3")
    assert pair.wait() == [0, 0], pair.outputs()
    first, second = run_dirs(pair)
    assert (first.root.name, first.plan.read_text()) == (second.root.name, second.plan.read_text())
    assert list(read_history(first.events).steps) == [1, 2, 3]
    assert [path.name for path in sorted(second.logs.glob("*.jsonl"))] == ["events_node1.jsonl"]
    assert not second.events.exists()
    leader, follower = pair.launchers
    assert "step" in leader.of("event")
    assert set(follower.of("event")) - {"alive"} == {"phase", "run_started"}
    assert leader.of("speaker") == [""]
    assert follower.of("speaker")[0].startswith("node 0, ")
    assert "results on node 0, " in follower.of("result")[0]
    names = leader.of("said")[-1]
    assert f"({namespaces.links[0]}), 1 " in names
    assert f"({namespaces.links[1]})" in names
    assert_no_process_left(pair)


@pytest.mark.exhaustive
def test_a_run_on_a_shared_disk_that_the_last_node_speaks_for(start):
    pair = start("steps:2", disks=1, speaker_is_last=True)
    assert pair.wait() == [0, 0], pair.outputs()
    (run_dir,) = run_dirs(pair)
    assert list(read_history(run_dir.events).steps) == [1, 2]
    assert {path.name for path in run_dir.logs.iterdir()} == {
        "events_node0.jsonl", "launcher_node0.log", "launcher_node1.log", "node0_rank0.log",
        "node1_rank1.log", "status_rank0.json", "status_rank1.json",
    }  # fmt: skip
    assert pair.launchers[0].of("speaker")[0].startswith("node 1, ")
    assert not run_dir.stop_request.exists()


@pytest.mark.parametrize(
    ("behave", "headline"),
    [
        ("raise:1", "rank 1: ValueError: the fake job broke"),
        ("kill:1", "rank 1 died without a message: it was killed (SIGKILL)"),
    ],
)
def test_a_failure_on_one_node_ends_both_with_the_same_words(start, behave, headline):
    pair = start(behave, disks=1)
    assert pair.wait() == [5, 5], pair.outputs()
    first, second = (launcher.of("failure")[0] for launcher in pair.launchers)
    assert first == second
    assert first.startswith("error: node 1, ")
    assert headline in first.splitlines()[0]
    assert "node1_rank1.log" in first
    assert_no_process_left(pair)


@pytest.mark.parametrize(
    ("behave", "headline"),
    [
        ("hang:1", "rank 1 is stuck: rollout of step 12, chunk 3/6, env_wait, no sign of life"),
        ("all_wait", "no rank gets on: all wait for one another"),
    ],
)
@pytest.mark.exhaustive
def test_ranks_that_do_not_get_on_end_both_nodes(start, behave, headline):
    pair = start(behave, stuck_after=3.0)
    assert pair.wait() == [5, 5], pair.outputs()
    first, second = (launcher.of("failure")[0] for launcher in pair.launchers)
    assert first == second
    assert headline in first.splitlines()[0]
    logs = sorted(pair.directory.rglob("node*_rank*.log"))
    assert [path.name for path in logs] == ["node0_rank0.log", "node1_rank1.log"]
    assert all("in job" in path.read_text() for path in logs), "stacks of all ranks"
    assert_no_process_left(pair)


@pytest.mark.exhaustive
def test_ctrl_c_on_one_node_stops_both_with_a_checkpoint(start):
    pair = start("until_stopped:save")
    pair.until_ready()
    pair.launchers[1].process.send_signal(signal.SIGINT)
    assert pair.wait() == [75, 75], pair.outputs()
    assert any("stop asked for on node 1, " in text for text in pair.launchers[0].of("notice"))
    assert "on every node: joyrl resume" in pair.launchers[0].of("result")[0]
    assert_no_process_left(pair)


@pytest.mark.exhaustive
def test_a_second_ctrl_c_on_one_node_kills_everywhere(start):
    pair = start("ignore_stop")
    pair.until_ready()
    pair.launchers[0].process.send_signal(signal.SIGINT)
    time.sleep(1)
    pair.launchers[0].process.send_signal(signal.SIGINT)
    started = time.monotonic()
    assert pair.wait() == [130, 130], pair.outputs()
    assert time.monotonic() - started < 15
    assert_no_process_left(pair)


@pytest.mark.exhaustive
def test_a_launcher_that_was_killed_ends_the_other(start):
    pair = start("ignore_stop")
    pair.until_ready()
    pair.launchers[1].process.kill()
    started = time.monotonic()
    assert pair.launchers[0].process.wait(60) == 5, pair.outputs()
    assert time.monotonic() - started < 15
    assert "node 1, " in pair.launchers[0].of("failure")[0].splitlines()[0]
    assert "its launcher is gone: " in pair.launchers[0].of("failure")[0].splitlines()[0]
    assert_no_process_left(pair)


def test_a_cut_cable_ends_both_within_fifteen_seconds(start, namespaces):
    pair = start("ignore_stop")
    pair.until_ready()
    namespaces.set(namespaces.names[1], namespaces.links[1], "down")
    started = time.monotonic()
    try:
        codes = pair.wait()
    finally:
        namespaces.set(namespaces.names[1], namespaces.links[1], "up")
    assert codes == [5, 5], pair.outputs()
    assert time.monotonic() - started < 15
    for here, other in ((0, 1), (1, 0)):
        line = pair.launchers[here].of("failure")[0].splitlines()[0]
        assert line.startswith(f"error: node {other}, ")
        assert line.endswith("its launcher is gone: no sign of life for 10 s")
    assert_no_process_left(pair)


def test_different_configs_are_refused_on_both_with_key_and_values(start):
    pair = start("steps:1", own=[{"seed": 1}, {"seed": 2}])
    assert pair.wait() == [2, 2], pair.outputs()
    for launcher in pair.launchers:
        (text,) = launcher.of("error")
        assert "the nodes differ: config key runner.seed is 1 on node 0, " in text
        assert " and 2 on node 1, " in text
    assert run_dirs(pair) == []


@pytest.mark.exhaustive
def test_what_keeps_one_node_from_meeting_is_said_at_once(start, namespaces):
    wrong = {"options": {"master_addr": "10.231.78.9", "timeout": 3.0}}
    loopback = {"environ": {"NCCL_SOCKET_IFNAME": "lo"}, "options": {"timeout": 3.0}}
    pair = start("steps:1", own=[wrong, loopback])
    assert pair.wait() == [4, 4], pair.outputs()
    not_here, no_way = (launcher.of("error")[0] for launcher in pair.launchers)
    assert "this is node 0, but the master address 10.231.78.9 is not of this machine" in not_here
    assert f"{namespaces.links[0]} ({ADDRESSES[0]}" in not_here
    assert "NCCL_SOCKET_IFNAME is 'lo': the loopback interface, which reaches no" in no_way
    assert f"export NCCL_SOCKET_IFNAME={namespaces.links[1]}" in no_way
