from __future__ import annotations

import math

import pytest
import torch

from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.engine.recorder import Recorder
from joyrlinf_core.engine.stage import Stage
from joyrlinf_core.errors import NonFiniteError
from tests.core.engine.counting import CountingConfig, CountingVecEnv


def make(config: CountingConfig) -> tuple[Stage, CountingVecEnv]:
    """Return a stage of groups 5 and 6, two envs each: the second half of some rank."""
    env = CountingVecEnv(config, 4)
    env_ids = torch.arange(10, 14)
    stage = Stage(
        env, config, env_ids=env_ids, first_column=4, group_size=2, seed=0, final_frames=True
    )
    return stage, env


def play(stage: Stage, recorder: Recorder, t: int = 0):
    slots = stage.slots()
    stage.send(slots, torch.zeros(len(slots), 2, 1))
    received = stage.receive(t, recorder)
    assert received is not None
    return received


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(3, 8, 2, torch.arange(8) // 2)


def test_members_of_a_group_start_the_same_episode() -> None:
    stage, env = make(CountingConfig())
    stage.begin_epoch(7)
    first, second = EpisodeId(1, 507), EpisodeId(0, 607)
    assert env.resets == [([0, 1, 2, 3], [first, first, second, second])]
    assert stage.task.tolist() == [1, 1, 0, 0]
    assert stage.observe(torch.tensor([2])).state.tolist() == [[607, 0]]


def test_a_finished_slot_waits_for_the_next_epoch(recorder: Recorder) -> None:
    stage, env = make(CountingConfig(solved_at={507: 1}))
    stage.begin_epoch(7)
    play(stage, recorder)
    assert stage.slots().tolist() == [2, 3]
    assert stage.episode.tolist() == [7] * 4
    assert stage.task.tolist() == [1, 1, 0, 0]
    stage.begin_epoch(8)
    assert stage.slots().tolist() == [0, 1, 2, 3]
    assert [episode.variation for episode in env.resets[1][1]] == [508, 508, 608, 608]


def test_auto_reset_starts_the_next_episode_at_once(recorder: Recorder) -> None:
    stage, env = make(CountingConfig(auto_reset=True, solved_at={607: 2}))
    stage.begin_epoch(7)
    slots, result = play(stage, recorder)
    assert slots.tolist() == [0, 1, 2, 3]
    assert stage.episode.tolist() == [7, 7, 8, 8]
    assert env.resets[1] == ([2, 3], [EpisodeId(0, 608)] * 2)
    states = stage.observe(torch.arange(4)).state.tolist()
    assert states == [[507, 2], [507, 2], [608, 0], [608, 0]]
    stage.begin_epoch(9)
    assert len(env.resets) == 2, "the simulation goes on across epochs"
    assert result.observation.state[2].tolist() == [0, 0], "what was returned stays as it was"


def test_a_result_goes_to_the_columns_of_the_stage(recorder: Recorder) -> None:
    stage, _ = make(CountingConfig(solved_at={607: 1}))
    stage.begin_epoch(7)
    play(stage, recorder, t=2)
    assert recorder._fields["rewards"].nonzero().tolist() == [[2, 6, 0], [2, 7, 0]]
    assert recorder.env_steps == 2 + 2 + 1 + 1


def test_receive_without_a_chunk_is_nothing(recorder: Recorder) -> None:
    stage, _ = make(CountingConfig())
    stage.begin_epoch(0)
    assert stage.receive(0, recorder) is None


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_nan_from_the_simulator_is_named(recorder: Recorder, what: str) -> None:
    stage, env = make(CountingConfig())
    stage.begin_epoch(7)

    def spoil(result) -> None:
        values = result.rewards if what == "reward" else result.observation.state
        values[2, 1] = math.nan

    env.spoil = spoil
    with pytest.raises(NonFiniteError, match=rf"{what} in env 12, .*variation=607"):
        play(stage, recorder)


def test_an_infinite_first_observation_is_named() -> None:
    stage, env = make(CountingConfig())
    env.reset_state = math.inf
    with pytest.raises(NonFiniteError, match=r"observation in env 10, .*variation=507"):
        stage.begin_epoch(7)
