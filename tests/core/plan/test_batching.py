from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joyrlinf_core.plan.batching import BatchShape, nearest, violations

GOOD = BatchShape(
    num_envs=64, env_ranks=4, rollout_ranks=4, actor_ranks=4, stages=1, group_size=8, chunk_size=5,
    steps_per_epoch=300, max_episode_steps=300, auto_reset=False, rollout_epochs=1,
    micro_batch_size=32, gradient_accumulation_steps=3,
)  # fmt: skip


def test_good_numbers():
    assert violations(GOOD) == frozenset()
    assert (GOOD.t_eff, GOOD.columns_per_actor, GOOD.samples_per_actor) == (60, 16, 960)


def test_the_example_of_the_design():
    shape = replace(GOOD, gradient_accumulation_steps=4)
    assert violations(shape) == {"JR103"}
    assert nearest(shape, "micro_batch_size", "JR103") == (30, 40)
    assert 128 in nearest(shape, "num_envs", "JR103")


def test_nothing_to_suggest():
    shape = replace(GOOD, num_envs=63)
    assert nearest(shape, "micro_batch_size", "JR101") == ()


SMALL = st.builds(
    BatchShape,
    num_envs=st.integers(1, 48),
    env_ranks=st.integers(1, 4),
    rollout_ranks=st.integers(1, 4),
    actor_ranks=st.integers(1, 4),
    stages=st.integers(1, 3),
    group_size=st.integers(1, 4),
    chunk_size=st.integers(1, 4),
    steps_per_epoch=st.integers(1, 12),
    max_episode_steps=st.integers(1, 12),
    auto_reset=st.booleans(),
    rollout_epochs=st.integers(1, 3),
    micro_batch_size=st.integers(1, 6),
    gradient_accumulation_steps=st.integers(1, 3),
)


def runs(shape):
    """Plays the loop with lists: deals envs and groups out, cuts epochs and batches."""
    envs = list(range(shape.num_envs))
    group = [env // shape.group_size for env in envs]

    def deal(items, parts):
        size, rest = divmod(len(items), parts)
        return (
            None if rest or not size else [items[i * size : (i + 1) * size] for i in range(parts)]
        )

    def whole_groups(part):
        return all(
            group.count(g) == [group[e] for e in part].count(g) for g in {group[e] for e in part}
        )

    if len(envs) % shape.group_size:
        return False
    ranks = deal(envs, shape.env_ranks)
    for rank in ranks or [None]:
        stages = deal(rank, shape.stages) if rank else None
        if stages is None or not all(whole_groups(stage) for stage in stages):
            return False
    for rank in deal(envs, shape.rollout_ranks) or [None]:
        stages = deal(rank, shape.stages) if rank else None
        if stages is None or not all(whole_groups(stage) for stage in stages):
            return False
    actors = deal(envs, shape.actor_ranks)
    if actors is None or not all(whole_groups(actor) for actor in actors):
        return False
    steps = list(range(shape.steps_per_epoch))
    chunks = [steps[i : i + shape.chunk_size] for i in range(0, len(steps), shape.chunk_size)]
    if len(chunks[-1]) != shape.chunk_size:
        return False
    if not shape.auto_reset and shape.max_episode_steps > len(steps):
        return False
    samples = shape.rollout_epochs * len(chunks) * len(actors[0])
    size = shape.micro_batch_size * shape.gradient_accumulation_steps
    while samples > 0:
        samples -= size
    return samples == 0


@settings(max_examples=600, deadline=None)
@given(SMALL)
def test_accepted_numbers_are_those_that_run(shape):
    assert (violations(shape) == frozenset()) == runs(shape)


@pytest.mark.parametrize("number", ["num_envs", "micro_batch_size", "group_size", "chunk_size"])
@settings(max_examples=60, deadline=None)
@given(shape=SMALL)
def test_every_suggestion_works(number, shape):
    broken = violations(shape)
    for code in broken:
        for value in nearest(shape, number, code):
            mended = replace(shape, **{number: value})
            assert violations(mended) <= broken - {code}
            assert runs(mended) or len(broken) > 1
