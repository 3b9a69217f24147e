from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from joyrlinf_core.batch.rollout import RolloutBatch
from tests.core.engine.counting import CountingConfig, CountingPolicy, make_rollout

SOLVED = {0: 3, 100: 2, 1: 1}
"""Group 0 succeeds at step 3 of its episode 0 and step 1 of its episode 1, group 1 at step 2."""


def collect(config: CountingConfig, **options) -> RolloutBatch:
    policy = options.pop("policy", None) or CountingPolicy()
    batch, _ = make_rollout(config, policy, **options).collect(
        5, version=lambda: 5, first_episode=0
    )
    return batch


def parts(batch: RolloutBatch) -> dict[str, torch.Tensor]:
    flat = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        flat.update(value if isinstance(value, dict) else {field.name: value})
    return flat


def test_a_column_plays_until_its_episode_ends() -> None:
    batch = collect(CountingConfig(solved_at=SOLVED))
    assert batch.played.tolist() == [[True] * 4, [True, True, False, False], [False] * 4]
    assert batch.dones.nonzero().tolist() == [[0, 2, 1], [0, 3, 1], [1, 0, 0], [1, 1, 0]]
    assert batch.rewards.nonzero().tolist() == batch.dones.nonzero().tolist()
    assert batch.task.tolist() == [[0, 0, 1, 1]] * 3, "a column that waits keeps its task"
    assert batch.group.tolist() == [0, 0, 1, 1]
    assert batch.inputs["state"][1, 0].tolist() == [0, 2]
    assert batch.versions[0].tolist() == [5] * 4


def test_the_value_after_a_time_limit_is_that_of_the_last_frame() -> None:
    batch = collect(CountingConfig(solved_at=SOLVED | {100: 99}))
    assert batch.prev_values is not None
    assert batch.next_values is not None
    assert batch.prev_values[:, 2].tolist() == [0.5, 2.5, 4.5]
    assert batch.next_values.tolist() == [[0.0] * 4, [0.0] * 4, [0.0, 0.0, 6.5, 6.5]]


def test_epochs_are_episodes_of_their_own() -> None:
    policy = CountingPolicy()
    rollout = make_rollout(CountingConfig(solved_at=SOLVED, rollout_epoch=2), policy)
    batch, counters = rollout.collect(0, version=lambda: 0, first_episode=0)
    assert batch.episode[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.played[:, 0].tolist() == [True, True, False, True, False, False]
    assert batch.success.any(0).all()
    assert counters["rollout/policy_rows"].value() == 2 * (2 + 1) + 2 * (1 + 3)
    assert counters["env/steps"].value() == 2 * (3 + 2) + 2 * (1 + 6)
    assert rollout.next_episode == 2


def test_one_chunk_can_be_the_whole_epoch() -> None:
    batch = collect(CountingConfig(max_episode_steps=2))
    assert batch.shape == (1, 4, 2)
    assert batch.dones.nonzero().tolist() == [[0, b, 1] for b in range(4)]
    assert batch.next_values is not None
    assert batch.next_values.tolist() == [[2.5] * 4]


def test_without_a_value_head_nothing_is_bootstrapped() -> None:
    policy = CountingPolicy(values=False)
    batch = collect(CountingConfig(), policy=policy)
    assert batch.next_values is None
    assert policy.rows == [4, 4, 4]


@pytest.mark.parametrize("auto_reset", [False, True])
def test_stages_and_ranks_change_nothing(auto_reset: bool) -> None:
    config = CountingConfig(solved_at=SOLVED, auto_reset=auto_reset)
    whole = parts(collect(config))
    staged = parts(collect(config, stages=2))
    halves = [parts(collect(config, ranks=2, rank=rank)) for rank in range(2)]
    for name, expected in whole.items():
        assert staged[name].equal(expected), name
        axis = 0 if name == "group" else 1
        assert torch.cat([half[name] for half in halves], dim=axis).equal(expected), name


def test_auto_reset_goes_on_where_the_last_rollout_stopped() -> None:
    config = CountingConfig(
        auto_reset=True, solved_at={0: 3}, max_episode_steps=8, max_steps_per_rollout_epoch=6
    )
    rollout = make_rollout(config, CountingPolicy())
    first, _ = rollout.collect(0, version=lambda: 0, first_episode=0)
    assert first.played.all()
    assert first.episode.tolist() == [[0] * 4, [0] * 4, [1, 1, 0, 0]]
    assert first.next_values is not None
    # Group 0 is two steps into episode 1, group 1 six into episode 0: both are cut by the window.
    assert first.next_values[2].tolist() == [2.5, 2.5, 6.5, 6.5]
    assert rollout.next_episode == 2
    second, _ = rollout.collect(1, version=lambda: 1, first_episode=rollout.next_episode)
    assert second.inputs["state"][0].tolist() == [[1, 2], [1, 2], [100, 6], [100, 6]]
    assert second.next_values is not None
    assert second.next_values[0].tolist() == [0.0, 0.0, 8.5, 8.5], "the frame before the reset"
    assert second.inputs["state"][1, 2].tolist() == [101, 0]


def test_steps_explore_differently() -> None:
    rollout = make_rollout(CountingConfig(), CountingPolicy())
    first, _ = rollout.collect(0, version=lambda: 0, first_episode=0)
    second, _ = rollout.collect(1, version=lambda: 1, first_episode=0)
    assert len(first.actions[..., 0, 0].unique()) == first.actions[..., 0, 0].numel()
    assert not (first.actions == second.actions).any()


@pytest.mark.parametrize("micro_batch", [0, 1])
def test_in_lockstep_ranks_call_the_policy_equally_often(micro_batch: int) -> None:
    calls = []
    for solved in ({}, SOLVED, {0: 1, 100: 1}):
        policy = CountingPolicy()
        config = CountingConfig(solved_at=solved, infer_micro_batch_size=micro_batch)
        batch = collect(config, policy=policy, stages=2, lockstep=True)
        calls.append(len(policy.rows))
        free = collect(config, stages=2)
        assert all(parts(batch)[name].equal(value) for name, value in parts(free).items())
    assert len(set(calls)) == 1
