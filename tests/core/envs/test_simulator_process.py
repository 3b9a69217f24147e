"""Simulator processes: results, failures, and that nothing stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from joyrlinf_core.envs import simulator_process
from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.envs.subproc import SubprocVecEnv, cut
from joyrlinf_core.errors import SimulatorCrashError
from tests.core.envs.fake_env import FakeConfig


def make(num_envs: int = 4, num_workers: int = 2, **keys) -> SubprocVecEnv:
    config = FakeConfig(total_num_envs=num_envs, num_workers=num_workers, **keys)
    env = build_vec_env(config, num_envs)
    assert isinstance(env, SubprocVecEnv)
    return env


def start(env, config=None):
    config = config or FakeConfig(total_num_envs=env.num_envs)
    slots = torch.arange(env.num_envs)
    return env.reset(slots, [config.train_episode(1, s, 0) for s in range(env.num_envs)])


@pytest.fixture(scope="module")
def healthy():
    env = make()
    yield env
    env.close()


def gone(pid: int) -> bool:
    """Return whether a process left and was reaped."""
    return not Path(f"/proc/{pid}").exists()


def names(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


def wait_until(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "group_size", "expected"),
    [
        (8, 2, 4, [(0, 4), (4, 8)]),
        (12, 2, 4, [(0, 4), (4, 12)]),
        (8, 3, 4, [(0, 2), (2, 5), (5, 8)]),
        (5, 2, 1, [(0, 2), (2, 5)]),
        (2, 4, 1, [(0, 1), (1, 2)]),
        (9, 2, 4, [(0, 4), (4, 9)]),
    ],
)
def test_slots_are_cut_between_groups_where_there_are_enough(
    num_envs, num_workers, group_size, expected
):
    parts = cut(num_envs, num_workers, group_size)
    assert [(p.start, p.stop) for p in parts] == expected


def test_rows_come_back_in_the_order_of_the_slots(healthy):
    env = healthy
    frame = start(env)
    assert frame.state[:, 0].tolist() == [100, 110, 120, 130]
    slots = torch.tensor([1, 2, 3])
    actions = torch.arange(12, dtype=torch.float32).reshape(3, 2, 2)
    result = env.chunk_step(slots, actions)
    assert torch.equal(result.rewards, actions.sum(-1))
    assert result.observation.state[:, 0].tolist() == [110, 120, 130]
    assert result.observation.images.shape == (3, 1, 4, 4, 3)
    one = env.reset(torch.tensor([2]), [FakeConfig(total_num_envs=1).eval_episode(0)])
    assert one.state[0, :2].tolist() == [-1, 0]


def test_returned_tensors_are_the_callers_own(healthy):
    env = healthy
    first = start(env)
    before = first.state.clone()
    slots = torch.arange(4)
    one = env.chunk_step(slots, torch.ones(4, 2, 2))
    kept = one.rewards.clone(), one.observation.images.clone()
    env.chunk_step(slots, torch.zeros(4, 2, 2))
    assert torch.equal(first.state, before)
    assert torch.equal(one.rewards, kept[0])
    assert torch.equal(one.observation.images, kept[1])


def test_the_callers_actions_may_change_after_send(healthy):
    env = healthy
    start(env)
    actions = torch.ones(4, 2, 2)
    env.send(torch.arange(4), actions)
    actions.zero_()
    assert torch.equal(env.recv().rewards, torch.full((4, 2), 2.0))


def test_processes_are_several_and_never_load_torch(healthy):
    env = healthy
    state = start(env).state
    assert state[:, 3].eq(0).all()
    assert len(set(state[:, 2].tolist())) == 2
    assert os.getpid() not in env.pids


def test_misuse_is_refused(healthy):
    env = healthy
    start(env)
    with pytest.raises(RuntimeError, match="without send"):
        env.recv()
    env.send(torch.arange(4), torch.zeros(4, 1, 2))
    with pytest.raises(RuntimeError, match="before recv"):
        env.send(torch.arange(4), torch.zeros(4, 1, 2))
    env.recv()
    with pytest.raises(ValueError, match="longer than 6"):
        env.send(torch.arange(4), torch.zeros(4, 7, 2))


def test_an_exception_is_raised_with_its_traceback_and_its_process():
    env = make(fault="raise", fault_slot=1)
    start(env)
    env.send(torch.tensor([0, 1]), torch.zeros(2, 5, 2))
    with pytest.raises(SimulatorCrashError) as caught:
        env.recv()
    assert "ZeroDivisionError: fault on demand" in str(caught.value)
    assert "_fail" in str(caught.value)
    assert "simulator process 0 (slots 0-1)" in str(caught.value)
    assert all(gone(pid) for pid in env.pids)
    env.close()


def test_a_simulator_that_cant_be_built_says_why():
    env = make(fault="build")
    with pytest.raises(SimulatorCrashError, match="free lunch"):
        start(env)
    assert all(gone(pid) for pid in env.pids)


def test_a_process_that_kills_itself_is_named_with_its_signal():
    env = make(fault="kill", fault_slot=0)
    start(env)
    env.send(torch.tensor([2, 3]), torch.zeros(2, 5, 2))
    with pytest.raises(SimulatorCrashError, match=r"process 1 \(slots 2-3\).*SIGKILL"):
        env.recv()
    assert all(gone(pid) for pid in env.pids)


def test_a_killed_process_is_noticed_while_another_still_works():
    env = make(fault="sleep", fault_slot=0)
    start(env)
    # Slot 0 of process 0 sleeps a minute; slot 3 belongs to process 1, which may have answered.
    env.send(torch.tensor([0, 3]), torch.zeros(2, 5, 2))
    began = time.monotonic()
    os.kill(env.pids[1], signal.SIGKILL)
    with pytest.raises(SimulatorCrashError, match="process 1"):
        env.recv()
    # The sleeper is killed after the grace period of close().
    assert time.monotonic() - began < 40
    assert all(gone(pid) for pid in env.pids)


def test_a_process_killed_between_chunks_is_noticed():
    env = make()
    start(env)
    os.kill(env.pids[0], signal.SIGKILL)
    assert wait_until(lambda: zombie(env.pids[0]))
    env.send(torch.arange(4), torch.zeros(4, 2, 2))
    with pytest.raises(SimulatorCrashError, match="SIGKILL"):
        env.recv()


def test_ctrl_c_does_not_stop_a_simulator(healthy):
    env = healthy
    start(env)
    for pid in env.pids:
        os.kill(pid, signal.SIGINT)
    assert env.chunk_step(torch.arange(4), torch.zeros(4, 1, 2)).steps.tolist() == [1] * 4


def test_close_twice_leaves_no_process_no_memory_and_no_descriptor():
    before = names("/dev/shm"), len(names("/proc/self/fd"))
    env = make()
    start(env)
    pids = env.pids
    env.close()
    env.close()
    assert all(gone(pid) for pid in pids)
    del env
    gc.collect()
    assert names("/dev/shm") <= before[0]
    assert len(names("/proc/self/fd")) <= before[1]


def test_processes_that_are_all_busy_share_one_time_out(monkeypatch):
    monkeypatch.setattr(simulator_process, "_CLOSE_TIMEOUT_S", 1.0)
    env = make(num_workers=4)
    start(env)
    for pid in env.pids:
        os.kill(pid, signal.SIGSTOP)  # as if in a long step
    started = time.monotonic()
    env.close()
    assert time.monotonic() - started < 3.0
    assert all(gone(pid) for pid in env.pids)


def test_a_forgotten_env_ends_its_processes():
    env = make()
    start(env)
    pids = env.pids
    del env
    gc.collect()
    assert all(gone(pid) for pid in pids)


def test_simulators_leave_when_their_parent_is_killed():
    script = (
        "import time, torch\n"
        "from tests.core.envs.test_simulator_process import make, start\n"
        "env = make()\n"
        "start(env)\n"
        "print(*env.pids, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: all(gone(pid) or zombie(pid) for pid in pids))


def zombie(pid: int) -> bool:
    """Return whether a process ended and waits for an init process that reaps late."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
