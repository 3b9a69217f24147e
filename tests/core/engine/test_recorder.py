from __future__ import annotations

import torch

from joyrlinf_core.engine.recorder import Recorder
from joyrlinf_core.envs.base import ChunkStep
from joyrlinf_core.policies.base import PolicyOutput

T, B, C, D = 2, 4, 3, 5


def decide(recorder: Recorder, t: int, columns: list[int], *, values: bool) -> PolicyOutput:
    m = len(columns)
    output = PolicyOutput(
        actions=torch.rand(m, C, D),
        logprobs=torch.rand(m, C, D),
        values=torch.rand(m) if values else None,
        replay={"chain": torch.rand(m, 7, dtype=torch.float64)},
    )
    inputs = {"image": torch.randint(0, 255, (m, 2, 2), dtype=torch.uint8)}
    recorder.write_decision(t, torch.tensor(columns), inputs=inputs, output=output, version=t + 10)
    return output


def test_decisions_lie_where_they_were_written_and_elsewhere_are_zeros() -> None:
    recorder = Recorder(T, B, C, torch.tensor([8, 8, 9, 9]))
    output = decide(recorder, 1, [0, 3], values=True)
    batch = recorder.batch()
    assert batch.shape == (T, B, C)
    assert batch.actions[1, 3].equal(output.actions[1])
    assert batch.prev_logprobs[1, 0].equal(output.logprobs[0])
    assert batch.replay["chain"][1, [0, 3]].equal(output.replay["chain"])
    assert batch.replay["chain"].dtype == torch.float64
    assert batch.inputs["image"].dtype == torch.uint8
    assert batch.played.nonzero().tolist() == [[1, 0], [1, 3]]
    assert batch.versions.tolist() == [[0] * 4, [11, 0, 0, 11]]
    assert not batch.actions[0].any()
    assert not batch.actions[1, 1:3].any()
    assert batch.group.tolist() == [8, 8, 9, 9]
    assert recorder.policy_rows == 2


def test_values_without_a_bootstrap_get_zeros_for_the_next_ones() -> None:
    recorder = Recorder(T, B, C, torch.zeros(B, dtype=torch.int64))
    decide(recorder, 0, [1], values=True)
    next_values = recorder.batch().next_values
    assert next_values is not None
    assert next_values.shape == (T, B)
    assert not next_values.any()


def test_no_value_head_leaves_no_values() -> None:
    recorder = Recorder(T, B, C, torch.zeros(B, dtype=torch.int64))
    decide(recorder, 0, [1], values=False)
    batch = recorder.batch()
    assert batch.prev_values is None
    assert batch.next_values is None


def test_waiting_columns_keep_episode_and_task() -> None:
    recorder = Recorder(T, B, C, torch.zeros(B, dtype=torch.int64))
    numbers = torch.tensor([4, 5])
    recorder.write_episode(1, torch.tensor([2, 3]), episode=numbers, task=numbers + 10)
    decide(recorder, 1, [2], values=False)
    batch = recorder.batch()
    assert batch.episode[1].tolist() == [0, 0, 4, 5]
    assert batch.task[1].tolist() == [0, 0, 14, 15]
    assert batch.played[1].tolist() == [False, False, True, False]


def test_results_are_counted_and_placed() -> None:
    recorder = Recorder(T, B, C, torch.zeros(B, dtype=torch.int64))
    decide(recorder, 0, [1, 2], values=False)
    over = torch.tensor([[False, True, False], [False, False, False]])
    result = ChunkStep(
        rewards=torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]),
        terminations=over,
        truncations=torch.zeros_like(over),
        success=torch.tensor([True, False]),
        steps=torch.tensor([2, 3]),
        observation=None,  # pyright: ignore[reportArgumentType]
    )
    recorder.write_result(0, torch.tensor([1, 2]), result, over)
    batch = recorder.batch()
    assert batch.rewards.nonzero().tolist() == [[0, 1, 1]]
    assert batch.dones.nonzero().tolist() == [[0, 1, 1]]
    assert batch.terminations.equal(batch.dones)
    assert batch.success.nonzero().tolist() == [[0, 1]]
    assert recorder.env_steps == 5
