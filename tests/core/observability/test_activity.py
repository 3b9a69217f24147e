import threading

import pytest

from joyrlinf_core.observability import activity
from joyrlinf_core.observability.timers import PhaseTimer


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(activity, "_threads", {})


def in_thread(function):
    """Run a function beside this thread, until the returned one is called."""
    ready, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: function(lambda: (ready.set(), go_on.wait(30))))
    thread.start()
    assert ready.wait(30)

    def end():
        go_on.set()
        thread.join()

    return end


def test_the_main_thread_works_unless_it_waits():
    assert activity.current() == ("", False, "", ())
    with PhaseTimer()("rollout/env_wait"):
        assert activity.current()[:3] == ("rollout/env_wait", False, "")
        with activity.waiting("weights"), activity.waiting("bytes"):
            assert activity.current()[:3] == ("", False, "weights")
        assert activity.current()[:3] == ("rollout/env_wait", False, "")
    assert activity.current()[:3] == ("", False, "")


def test_what_raises_leaves_no_trace():
    with pytest.raises(ValueError, match="x"), activity.waiting("weights"):
        raise ValueError("x")
    assert activity.current()[:3] == ("", False, "")


def test_another_thread_counts_only_inside_a_block_that_has_a_name():
    def serve(until_asked):
        with activity.block("simulators for rank 1"):
            until_asked()

    def send(until_asked):
        with PhaseTimer()("rollout/send"), activity.waiting("a batch"):
            until_asked()

    def idle(until_asked):
        activity.moved()
        until_asked()

    ends = [in_thread(serve), in_thread(send), in_thread(idle)]
    assert activity.current()[:3] == ("", False, "")
    with activity.block("update"):
        assert activity.current()[:3] == ("update", False, "")
        with activity.waiting("a batch"):
            assert activity.current()[:3] == ("simulators for rank 1", True, "")
            for end in ends:
                end()
            assert activity.current()[:3] == ("", False, "a batch")


def test_every_begin_and_end_is_a_move():
    seen = {activity.current().moves}
    activity.moved()
    seen.add(activity.current().moves)
    with activity.waiting("x"):
        seen.add(activity.current().moves)
    seen.add(activity.current().moves)
    with activity.block("x"):
        seen.add(activity.current().moves)
    in_thread(lambda until_asked: (activity.moved(), until_asked()))()
    seen.add(activity.current().moves)
    assert len(seen) == 6
