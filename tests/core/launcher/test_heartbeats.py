import pytest

from joyrlinf_core.launcher.heartbeats import Heartbeats, phase_text
from joyrlinf_core.observability.events import Alive, Phase, Record, Step

LIMIT = 600.0


class Run:
    """Heartbeats of three ranks, and a clock."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.now = 0.0
        self.beats = Heartbeats(range(3), limit, lambda: self.now)

    def tell(self, rank: int, event) -> None:
        self.beats.add(Record(0.0, rank, event))

    def after(self, seconds: float, ended=()):
        self.now += seconds
        return [str(one) for one in self.beats.stuck(ended)]


def alive(
    doing: str = "", waits_for: str = "", idle: float = 0.0, *, beside: bool = False
) -> Alive:
    return Alive(doing, beside, waits_for, idle)


def test_the_rank_that_works_is_to_blame_not_those_that_wait_for_it():
    run = Run()
    run.now = 50.0
    run.tell(0, Phase("update", 10))
    run.tell(0, alive(waits_for="a batch", idle=2))
    run.tell(1, Phase("rollout", 11, 6, 6))
    run.tell(1, alive(waits_for="other ranks", idle=2))
    run.tell(2, Phase("rollout", 11, 3, 6))
    run.tell(2, alive("rollout/env_wait", idle=2))
    assert run.after(597) == []
    assert run.after(3) == [
        "rank 2: rollout of step 12, chunk 3/6, env_wait, no sign of life for 602 s"
    ]
    assert [str(one) for one in run.beats.waiting(())][:1] == [
        "rank 0: waits for a batch, no sign of life for 602 s"
    ]
    assert not run.beats.all_wait(())


def test_a_rank_that_hangs_before_it_can_say_so_is_where_it_was_seen_last():
    run = Run()
    for rank in range(3):
        run.tell(rank, Phase("rollout", 0, 1, 4))
    for rank in (0, 2):
        run.tell(rank, alive(waits_for="other ranks"))
    assert run.after(601) == ["rank 1: rollout of step 1, chunk 1/4, no sign of life for 601 s"]


def test_several_stuck_ranks_are_named_the_longest_first():
    run = Run()
    for rank in range(3):
        run.tell(rank, Phase("update", 3))
        run.now += 5.0
    assert [line[:27] for line in run.after(601)] == [
        f"rank {rank}: update of step 4, n" for rank in range(3)
    ]


def test_a_rank_that_works_again_after_a_wait_counts_from_then_on():
    run = Run()
    run.tell(0, Phase("update", 0))
    run.tell(0, alive(waits_for="a batch"))
    for rank in (1, 2):
        run.tell(rank, Phase("rollout", 1, 1, 4))
    run.now = 500.0
    run.tell(0, alive("update/optimizer"))
    assert [line[:6] for line in run.after(150)] == ["rank 1", "rank 2"]
    assert run.after(460)[2] == "rank 0: update of step 1, optimizer, no sign of life for 610 s"


def test_a_thread_beside_the_main_one_can_be_what_hangs():
    run = Run()
    run.tell(0, Phase("simulators", 0))
    run.tell(0, alive("simulators for rank 1", beside=True))
    assert run.after(601, ended={1, 2}) == [
        "rank 0: simulators for rank 1, no sign of life for 601 s"
    ]


@pytest.mark.parametrize("phase", ["load", "save", "simulators", None])
def test_phases_without_signs_of_life_may_take_longer(phase):
    run = Run()
    if phase is not None:
        run.tell(0, Phase(phase, 7))
    assert run.after(1799, ended={1, 2}) == []
    assert len(run.after(2, ended={1, 2})) == 1
    short = Run(limit=1.0)
    assert short.after(299) == []


def test_ranks_that_all_wait_are_no_rank_s_fault():
    run = Run()
    run.tell(0, alive(waits_for="a batch"))
    run.tell(1, alive(waits_for="weights"))
    run.now = 601.0
    assert not run.beats.all_wait(()), "rank 2 has not started"
    assert run.beats.all_wait({2})
    assert run.after(0, ended={2}) == []
    run.tell(0, Step(1, {}, {}, 1.0))
    assert not run.beats.all_wait({2})


def test_zero_switches_it_off():
    run = Run(limit=0.0)
    for rank in range(3):
        run.tell(rank, alive(waits_for="a batch" if rank else ""))
    assert run.after(1e6) == []
    assert not run.beats.all_wait({0})
    assert run.beats.warnings(()) == []


def test_a_warning_comes_early_once_and_is_taken_back():
    run = Run()
    run.tell(0, Phase("update", 1))
    for rank in (1, 2):
        run.tell(rank, alive(waits_for="a batch"))

    def said(seconds):
        run.now += seconds
        return run.beats.warnings(())

    assert said(59) == []
    assert said(2) == [
        "rank 0: update of step 2, no sign of life for 61 s; the run ends at 600 s "
        "(runner.stuck_after_seconds)"
    ]
    assert said(10) == []
    assert len(said(60)) == 1, "again once it is twice as long"
    run.tell(0, Phase("rollout", 2, 0, 4))
    assert said(1) == ["rank 0 goes on after 131 s or more"]
    assert said(1) == []
    short = Run(limit=20.0)
    short.tell(0, Phase("update", 1))
    short.now = 19.0
    assert short.beats.warnings(()) == [], "no warning before half a minute"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase("rollout", 11, 3, 6), "rollout of step 12, chunk 3/6"),
        (Phase("rollout", 0), "rollout of step 1"),
        (Phase("save", 4), "save of step 4"),
        (Phase("eval", 0, 7, 50), "evaluation, episode 7/50"),
        (Phase("start", 0), "starting"),
        (Phase("wait_for_batch", 3), "wait for batch of step 3"),
    ],
)
def test_phases_in_words(phase, expected):
    assert phase_text(phase) == expected
