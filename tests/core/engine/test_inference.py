from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.engine.inference import Inference
from joyrlinf_core.errors import NonFiniteError
from tests.core.engine.counting import CountingPolicy

ENVS = 6


def make(policy: CountingPolicy, **options: int) -> Inference:
    double: Any = policy
    return Inference(double, torch.device("cpu"), num_envs=ENVS, **options)


def observation(rows: int) -> Observation:
    images = torch.zeros(rows, 1, 1, 1, 3, dtype=torch.uint8)
    state = torch.arange(2.0 * rows).reshape(rows, 2)
    return Observation(images, state, torch.zeros(rows, dtype=torch.int64), ("do",))


def act(inference: Inference, columns: list[int], *names: int | str) -> list[float]:
    _, output = inference.act(observation(len(columns)), torch.tensor(columns), stream=(1, *names))
    return output.actions[:, 0, 0].tolist()


def test_noise_belongs_to_the_env_and_not_to_the_call() -> None:
    together = act(make(CountingPolicy()), [0, 1, 2, 3, 4, 5], "rollout", 0, 0)
    assert len(set(together)) == ENVS
    assert act(make(CountingPolicy()), [5, 2], "rollout", 0, 0) == [together[5], together[2]]


def test_every_stream_has_its_own_noise() -> None:
    inference = make(CountingPolicy())
    streams = [("rollout", 0, 0), ("rollout", 0, 1), ("rollout", 1, 0), ("bootstrap", 0, 0)]
    drawn = [act(inference, [3], *stream)[0] for stream in streams]
    assert len(set(drawn)) == len(streams)
    assert act(inference, [3], *streams[0])[0] == drawn[0]


def test_stages_of_one_chunk_step_share_a_draw() -> None:
    policy = CountingPolicy()
    inference = make(policy)
    act(inference, [0, 1], "rollout", 0, 0)
    act(inference, [2, 3], "rollout", 0, 0)
    assert policy.draws == [ENVS]


@pytest.mark.parametrize("size", [1, 2, 5, 6, 9])
def test_micro_batches_change_nothing(size: int) -> None:
    columns = torch.arange(5)
    _, whole = make(CountingPolicy()).act(observation(5), columns, stream=(1, "a"))
    policy = CountingPolicy()
    _, cut = make(policy, micro_batch=size).act(observation(5), columns, stream=(1, "a"))
    assert policy.rows == [min(size, 5 - i) for i in range(0, 5, size)]
    assert cut.actions.equal(whole.actions)
    assert cut.logprobs.equal(whole.logprobs)
    assert cut.values is not None
    assert whole.values is not None
    assert cut.values.equal(whole.values)
    assert cut.replay["noise"].equal(whole.replay["noise"])


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_in_lockstep_few_rows_make_as_many_calls_as_many(rows: int) -> None:
    policy = CountingPolicy()
    inference = make(policy, micro_batch=2, lockstep_rows=5)
    _, output = inference.act(observation(rows), torch.arange(rows), stream=(1, "a"))
    assert len(policy.rows) == 3
    assert len(output.actions) == rows


@pytest.mark.parametrize(("column", "name"), [(0, "log-probs"), (1, "values")])
def test_a_nan_of_the_policy_is_named(column: int, name: str) -> None:
    seen = observation(3)
    seen.state[1, column] = math.nan
    with pytest.raises(NonFiniteError, match=f"the policy's {name} hold NaN"):
        make(CountingPolicy()).act(seen, torch.arange(3), stream=(1, "a"))
