import pytest
from pydantic import ValidationError

from joyrlinf_core.envs.libero import LiberoConfig
from joyrlinf_core.envs.wan import WanConfig


def make(**keys):
    return WanConfig(type="wan", total_num_envs=8, **keys)


def test_speaks_the_language_of_its_suite():
    env = make(suite="libero_goal")
    twin = LiberoConfig(type="libero", suite="libero_goal", total_num_envs=8)
    assert env.task_prompts == twin.task_prompts
    assert env.action_dim == twin.action_dim
    assert env.image_shape == (1, 256, 256, 3)


@pytest.mark.parametrize("frames", [(13, 8, 5), (9, 4, 5), (17, 12, 5)])
def test_frames_that_add_up(frames):
    total, chunk, condition = frames
    env = make(num_frames=total, chunk=chunk, condition_frame_length=condition)
    assert env.num_frames == total


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"num_frames": 12}, "num_frames", "8 \\+ 5 = 13; use num_frames 13"),
        ({"chunk": 12}, "num_frames", "12 \\+ 5 = 17; use num_frames 17"),
        ({"num_frames": 12, "chunk": 7}, "num_frames", "use chunk 8 and num_frames 13"),
        ({"num_reset_states": 39}, "num_reset_states", "use 40 or more"),
        ({"success_reward_threshold": 1.5}, "success_reward_threshold", "less than or equal to 1"),
    ],
)
def test_what_does_not_fit_is_said_at_its_key(keys, place, message):
    with pytest.raises(ValidationError, match=message) as caught:
        make(**keys)
    assert [error["loc"] for error in caught.value.errors()] == [(place,)]
