import contextlib
import threading
import time

import pytest

from joyrlinf_core.observability.timers import PhaseTimer, phases


def test_times_add_up_by_name_and_pop_starts_anew():
    timer = PhaseTimer()
    for _ in range(2):
        with timer("rollout"):
            time.sleep(0.01)
    with pytest.raises(ValueError, match="inside"), timer("update"):
        raise ValueError("inside")
    seconds = timer.pop()
    assert seconds["rollout"] >= 0.02
    assert "update" in seconds
    assert timer.pop() == {}


def test_each_block_is_marked_elsewhere_too():
    marked = []

    @contextlib.contextmanager
    def annotate(name):
        marked.append(f"enter {name}")
        yield
        marked.append(f"leave {name}")

    timer = PhaseTimer(annotate)
    with timer("rollout"), timer("rollout/predict"):
        pass
    assert marked == [
        "enter rollout", "enter rollout/predict", "leave rollout/predict", "leave rollout",
    ]  # fmt: skip
    assert set(timer.pop()) == {"rollout", "rollout/predict"}


def test_threads_share_a_timer():
    timer = PhaseTimer()
    threads = [
        threading.Thread(target=lambda: [timer.add("a", 0.5) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.pop() == {"a": 2000.0}


def test_a_phase_is_its_own_entry_or_the_sum_of_its_parts():
    seconds = {"rollout": 3.0, "rollout/predict": 1.0, "rollout/predict/x": 0.5}
    parts = {"update/y": 2.0, "update/y/z": 0.5, "update/x": 1.0}
    assert phases(seconds | parts) == {"rollout": 3.0, "update": 3.0}
