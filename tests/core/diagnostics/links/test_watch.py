import pytest

from joyrlinf_core.diagnostics.links.steps import THE_END, LinkStep
from joyrlinf_core.diagnostics.links.watch import START_SECONDS, StalledError, Watch, stalled
from joyrlinf_core.observability.events import Phase, Record

P2P = "p2p 1-2 4 MiB of world (gloo)"
SUM = "all_reduce 4 MiB of world (gloo)"
STEPS = {
    7: LinkStep(7, 0, "p2p", (1, 2), 4 * 2**20, P2P),
    8: LinkStep(8, 0, "all_reduce", (0, 1, 2, 3), 4 * 2**20, SUM),
}


def found(*phases):
    seen = {rank: phase for rank, phase in enumerate(phases) if phase is not None}
    return stalled(seen, len(phases), STEPS, 60)


def at(step, done):
    return Phase(STEPS[step].text, step, done, 3)


def test_a_rank_that_does_not_come_is_named():
    error = found(at(8, 0), at(8, 0), at(8, 0), at(7, 3))
    assert error.ranks == (3,)
    assert error.step == 8
    assert error.message == (
        f"rank 3 did not reach {SUM}; the others wait since 60 s. Last seen: rank 3 after {P2P}"
    )
    assert "in p2p 1-2" in found(at(8, 0), at(7, 1), at(8, 0), at(8, 0)).message


def test_a_pair_that_waits_for_each_other_is_named():
    error = found(at(7, 0), at(7, 0), at(7, 0), at(7, 0))
    assert error.message == f"ranks 1-2 are in {P2P}, and none has come out since 60 s"
    assert error.ranks == ()


def test_a_rank_that_stays_in_an_operation_is_named():
    error = found(at(8, 1), at(8, 0), at(8, 1), at(8, 1))
    assert error.message == f"rank 1 is stuck in {SUM}; the others wait since 60 s"
    assert error.ranks == (1,)


def test_results_that_do_not_travel_are_told():
    assert "have not exchanged results" in found(*[at(8, 3)] * 4).message


def test_ranks_that_do_not_start_are_named():
    start = Phase("start", 0)
    error = found(start, None, start, None)
    assert error.ranks == (1, 3)
    assert error.message == "ranks 1,3 did not start within 60 s; the others wait"
    assert found(None, None).message == "no rank has started within 60 s"
    assert found(start, start).message == "all ranks have started, but have not met since 60 s"


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def watch(clock):
    told = []
    made = Watch(4, 5.0, lambda: STEPS, told.append, clock=lambda: clock[0])
    made.told = told
    return made


def test_the_time_out_counts_from_the_last_progress_of_any_rank(watch, clock):
    for rank in range(4):
        watch.on_record(Record(0.0, rank, at(7, 0)))
    clock[0] = 4.0
    watch.on_record(Record(0.0, 1, at(7, 3)))
    clock[0] = 8.0
    watch.on_record(Record(0.0, 1, at(7, 3)))
    watch.on_record(Record(0.0, 2, Phase("start", 0)))
    clock[0] = 8.9
    watch.on_tick()
    clock[0] = 9.1
    with pytest.raises(StalledError, match="since 5 s"):
        watch.on_tick()
    assert watch.told == [P2P]
    assert watch.last_seen(1) == f"after {P2P}"


def test_start_and_end_may_take_longer(watch, clock):
    watch.on_record(Record(0.0, 0, Phase("start", 0)))
    assert watch.last_seen(0) == watch.last_seen(1) == ""
    clock[0] = START_SECONDS - 1
    watch.on_tick()
    for rank in range(4):
        watch.on_record(Record(0.0, rank, Phase(THE_END, 9, 3, 3)))
    clock[0] += START_SECONDS - 1
    watch.on_tick()
    clock[0] += 2
    with pytest.raises(StalledError):
        watch.on_tick()
