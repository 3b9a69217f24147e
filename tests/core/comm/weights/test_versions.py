from __future__ import annotations

import threading

import pytest
import torch

from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.comm.weights.layout import Spec, one_bucket
from joyrlinf_core.comm.weights.versions import Slot, Versions
from joyrlinf_core.errors import RunFailedError

BUFFERS = one_bucket([Spec("a", (1,), torch.uint8), Spec("b", (1,), torch.uint8)])


@pytest.fixture
def versions():
    def slot():
        return Slot([], torch.zeros(BUFFERS.nbytes, dtype=torch.uint8))

    return Versions((slot(), slot()), BUFFERS, version=0, source_rank=3)


def arrive(versions, version, *, evaluate=False, buffers=()):
    slot = versions.claim()
    for number in buffers:
        BUFFERS.bytes_of(number, slot.buffers).fill_(version)
    versions.publish(WeightHeader(version, evaluate=evaluate), list(buffers))


def newest(versions):
    with versions.newest() as slot:
        return None if slot is None else slot.header.version


def test_the_newest_version_is_handed_out_once(versions):
    assert newest(versions) is None
    arrive(versions, 1)
    arrive(versions, 2)
    arrive(versions, 3)
    assert newest(versions) == 3
    assert newest(versions) is None
    arrive(versions, 4)
    assert newest(versions) == 4


def test_what_is_coming_in_is_not_what_is_handed_out(versions):
    arrive(versions, 1)
    incoming = versions.claim()
    with versions.newest() as slot:
        assert slot is not incoming
        assert slot.header.version == 1


def test_a_version_that_could_not_be_copied_is_handed_out_again(versions):
    arrive(versions, 1)
    with pytest.raises(MemoryError), versions.newest():
        raise MemoryError
    assert newest(versions) == 1


def test_a_version_to_evaluate_stays_until_it_is_released(versions):
    arrive(versions, 1)
    arrive(versions, 2, evaluate=True)
    arrive(versions, 3)
    arrive(versions, 4)
    assert newest(versions) == 2
    assert newest(versions) is None
    versions.release()
    assert newest(versions) == 4
    versions.release()
    assert newest(versions) is None


def test_no_version_to_evaluate_is_lost(versions):
    arrive(versions, 1, evaluate=True)
    arrive(versions, 2, evaluate=True)
    claimed = threading.Event()

    def third():
        arrive(versions, 3)
        claimed.set()

    thread = threading.Thread(target=third)
    thread.start()
    assert newest(versions) == 1
    assert not claimed.wait(0.05)
    versions.release()
    assert claimed.wait(10)
    thread.join()
    assert newest(versions) == 2
    versions.release()
    assert newest(versions) == 3


@pytest.mark.parametrize("evaluate", [False, True])
def test_buffers_of_versions_that_were_skipped_are_kept(versions, evaluate):
    if evaluate:
        # Then versions 1 and 2 wait in the same slot, else in different ones.
        arrive(versions, 9, evaluate=True)
        assert newest(versions) == 9
    arrive(versions, 1, buffers=[0])
    arrive(versions, 2, buffers=[1])
    arrive(versions, 3)
    versions.release()
    with versions.newest() as slot:
        assert slot.changed == {0, 1}
        values = [BUFFERS.bytes_of(number, slot.buffers).item() for number in (0, 1)]
    assert values == [1, 2]
    arrive(versions, 4)
    with versions.newest() as slot:
        assert slot.changed == set()


@pytest.mark.parametrize(
    ("wake", "result"),
    [
        (lambda versions: arrive(versions, 5), True),
        (lambda versions: versions.stop(), False),
    ],
)
def test_waiters_wake_up(versions, wake, result):
    got = []
    thread = threading.Thread(target=lambda: got.append(versions.wait_for(4, 30)))
    thread.start()
    assert not got
    wake(versions)
    thread.join(10)
    assert got == [result]


def test_a_version_that_is_there_counts_after_the_end_too(versions):
    arrive(versions, 5)
    versions.stop()
    assert versions.wait_for(5, 0)
    assert not versions.wait_for(6, 0)
    assert versions.stopped
    assert newest(versions) == 5


def test_a_wait_ends_with_what_is_missing(versions):
    arrive(versions, 11)
    with pytest.raises(RunFailedError, match="waits for version 12, last received 11: rank 3 sent"):
        versions.wait_for(12, 0.01)


def test_a_failure_wakes_waiters_and_is_told(versions):
    errors = []

    def wait():
        try:
            versions.wait_for(4, 30)
        except RunFailedError as error:
            errors.append(error.message)

    thread = threading.Thread(target=wait)
    thread.start()
    versions.fail(OSError("connection reset"))
    thread.join(10)
    assert errors == ["weights from rank 3 stopped coming after version 0: connection reset"]
    with pytest.raises(RunFailedError, match="connection reset"):
        newest(versions)
