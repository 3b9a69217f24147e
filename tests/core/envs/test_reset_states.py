from itertools import pairwise

import pytest

from joyrlinf_core.envs import reset_states

USES = ("train", "heldout", "selection", "demo")


@pytest.mark.parametrize("count", [4, 17, 18, 150, 15_680, 50_176])
def test_uses_share_out_all_states(count):
    found = [
        {reset_states.state(use, index, count) for index in range(reset_states.size(use, count))}
        for use in USES
    ]
    assert [len(one) for one in found] == [reset_states.size(use, count) for use in USES]
    assert sum(map(len, found)) == count
    assert set.union(*found) == set(range(count))


def test_after_the_last_state_comes_the_first():
    size = reset_states.size("heldout", 150)
    assert size == 9
    first = [reset_states.state("heldout", index, 150) for index in range(size)]
    assert [reset_states.state("heldout", index + size, 150) for index in range(size)] == first


def test_few_held_out_states_vary_everything_that_a_number_counts():
    # A table picture, a place and an orientation, in any order of counting.
    tables, places, turns = 16, 784, 4
    numbers = [reset_states.state("heldout", index, tables * places * turns) for index in range(40)]
    for radix, size in ((1, turns), (turns, places), (turns * places, tables)):
        digits = [number // radix % size for number in numbers]
        assert len(set(digits)) >= min(size, 30) * 0.9
    assert all(before != after for before, after in pairwise(numbers))


def test_a_use_without_states_is_refused():
    with pytest.raises(ValueError, match="leave none for demo"):
        reset_states.state("demo", 0, 2)
