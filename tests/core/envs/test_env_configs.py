"""What the config class of every simulator must do, run or planned."""

from __future__ import annotations

import typing

import pytest

from joyrlinf_core import registry
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.schema import EnvConfig
from joyrlinf_core.errors import EnvironmentNotReadyError

NAMES = registry.names("envs")

SECTIONS = [
    *({"type": name} for name in NAMES),
    {"type": "metaworld", "tasks": "MT10", "eval_split": "selection"},
    {"type": "maniskill", "obj_set": "test"},
    {"type": "maniskill", "obj_set": "all", "eval_split": "selection"},
    {"type": "maniskill", "task_id": "StackCube-v1", "wrist_camera": True},
    {"type": "libero", "suite": "libero_130", "use_ordered_reset_state_ids": True},
    {"type": "libero", "suite": "libero_90", "task_id_filter": [3, 89], "wrist_camera": False},
    {"type": "wan", "suite": "libero_goal", "num_reset_states": 720},
]


@pytest.fixture(params=SECTIONS, ids=lambda keys: " ".join(str(v) for v in keys.values()))
def env(request):
    return make(**request.param)


def make(**keys) -> EnvConfig:
    return registry.load("envs", keys["type"])(total_num_envs=16, **keys)


@pytest.mark.parametrize("name", NAMES)
def test_class(name):
    cls = registry.load("envs", name)
    assert issubclass(cls, EnvConfig)
    assert typing.get_args(cls.model_fields["type"].annotation) == (name,)
    assert all(help_texts(cls).values())
    assert cls.schedule_keys <= set(cls.model_fields)


def test_prompts_are_instructions(env):
    assert env.task_prompts
    for prompt in env.task_prompts:
        assert prompt == " ".join(prompt.split())
        assert len(prompt.split()) >= 2


def test_sizes_are_possible(env):
    cameras, height, width, channels = env.image_shape
    assert 1 <= cameras <= 3
    assert min(height, width) >= 16
    assert channels == 3
    assert env.action_dim >= 2
    assert env.state_dim >= 1
    assert env.largest_return is None or env.largest_return > 0


def episodes(env, seed=0):
    """Training, evaluation and demonstration episodes, as far as a long run would play them."""
    return (
        [env.train_episode(seed, group, k) for group in range(12) for k in range(40)],
        [env.eval_episode(index) for index in range(200)],
        [env.demo_episode(seed, index) for index in range(200)],
    )


def test_no_state_has_two_uses(env):
    train, evaluation, demo = map(set, episodes(env))
    assert not train & evaluation
    assert not train & demo
    assert not evaluation & demo


def test_episodes_are_functions_of_their_arguments(env):
    again = type(env).model_validate(env.model_dump())
    assert episodes(env) == episodes(again)
    assert episodes(env)[0] != episodes(env, seed=1)[0]
    assert env.simulator_settings == again.simulator_settings


def test_every_task_is_played_as_often(env):
    count = len(env.task_prompts)
    for one in (
        [env.train_episode(0, group, 0) for group in range(2 * count)],
        [env.train_episode(0, 0, k) for k in range(2 * count)],
        [env.eval_episode(index) for index in range(2 * count)],
        [env.demo_episode(0, index) for index in range(2 * count)],
    ):
        tasks = [episode.task for episode in one]
        assert sorted(tasks) == sorted([*range(count), *range(count)])


def test_evaluation_episodes_differ_as_far_as_there_are_any(env):
    count = min(env.num_eval_episodes_available or 600, 600)
    assert count >= 4 * len(env.task_prompts)
    assert len({env.eval_episode(index) for index in range(count)}) == count


@pytest.mark.parametrize("name", [n for n in NAMES if registry.load("envs", n).missing_runtime])
def test_a_simulator_that_is_not_there_yet_says_so(name):
    env = make(type=name)
    for call in (env.check_ready, lambda: env.build(2)):
        with pytest.raises(EnvironmentNotReadyError, match=f"'{name}' can be planned"):
            call()
