"""The Meta-World section: tasks, episodes, and what it needs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter

import pytest
from pydantic import ValidationError

from joyrlinf_core import registry
from joyrlinf_core.envs.metaworld import Config
from joyrlinf_core.errors import MissingExtraError


def make(**keys):
    return Config(**{"type": "metaworld", "total_num_envs": 8, **keys})


def test_it_is_registered_under_its_name_and_alone():
    assert registry.load("envs", "metaworld") is Config
    assert "metaworld" in registry.names("envs")
    assert not {"local", "subproc", "factory", "opengl", "metaworld_sim"} & set(
        registry.names("envs")
    )


def test_importing_every_env_module_loads_neither_torch_nor_a_simulator():
    code = (
        "import sys; from joyrlinf_core import registry; registry.names('envs'); "
        "print({'torch', 'mujoco', 'metaworld', 'gymnasium'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tasks_take_a_name_a_list_or_a_set():
    assert make(tasks="reach-v3").task_names == ("reach-v3",)
    assert make(tasks=["reach-v3", "push-v3"]).task_names == ("reach-v3", "push-v3")
    assert len(make(tasks="MT10").task_names) == 10
    assert len(make(tasks="MT50").task_names) == 50
    assert make(tasks=["MT10", "push-v3", "hammer-v3"]).task_names[-1] == "hammer-v3"
    assert len(make(tasks=["MT10", "push-v3", "hammer-v3"]).task_names) == 11


def test_every_task_has_its_own_instruction():
    prompts = make(tasks="MT50").task_prompts
    assert len(set(prompts)) == 50
    assert all(p and p == p.strip().lower() for p in prompts)
    assert make().task_prompts == ("push the puck to the goal",)


def test_a_mistyped_task_gets_a_suggestion():
    with pytest.raises(ValidationError, match="did you mean 'push-v3'"):
        make(tasks="psh-v3")
    with pytest.raises(ValidationError, match=r"`\[push-v3, reach-v3\]`"):
        make(tasks="push-v3, reach-v3,")
    with pytest.raises(ValidationError):
        make(tasks=[])


def test_sizes_follow_the_config():
    config = make(image_size=32)
    assert config.image_shape == (1, 32, 32, 3)
    assert (config.action_dim, config.state_dim) == (4, 13)


def test_training_groups_share_the_tasks_equally():
    config = make(tasks=["reach-v3", "push-v3", "door-open-v3"])
    for k in range(3):
        tasks = Counter(config.train_episode(0, group, k).task for group in range(18))
        assert tasks == {0: 6, 1: 6, 2: 6}
    # Fewer groups than tasks: every task gets its turn.
    assert {config.train_episode(0, 0, k).task for k in range(3)} == {0, 1, 2}


def test_episodes_are_pure_functions_of_their_arguments():
    one, other = make(), make(total_num_envs=64, num_workers=2)
    assert one.train_episode(1, 2, 3) == other.train_episode(1, 2, 3)
    assert one.demo_episode(1, 2) == other.demo_episode(1, 2)
    assert len({one.train_episode(s, g, k) for s in (0, 1) for g in (0, 1) for k in (0, 1)}) == 8


def test_uses_never_share_an_initial_state():
    held_out, selection = make(), make(eval_split="selection")
    training = {held_out.train_episode(s, g, 0).variation for s in range(20) for g in range(50)}
    demos = {held_out.demo_episode(s, i).variation for s in range(20) for i in range(50)}
    reported = {held_out.eval_episode(i).variation for i in range(1000)}
    chosen_by = {selection.eval_episode(i).variation for i in range(1000)}
    sets = [training, demos, reported, chosen_by]
    assert len(set.union(*sets)) == sum(map(len, sets))
    assert len(reported) == 1000
    assert max(demos) < min(chosen_by) <= max(chosen_by) < min(reported)
    assert max(reported) < min(training)


def test_evaluation_goes_through_the_tasks_in_turn():
    config = make(tasks=["reach-v3", "push-v3"])
    assert [config.eval_episode(i).task for i in range(4)] == [0, 1, 0, 1]
    assert [config.demo_episode(0, i).task for i in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("split", ["heldout", "selection"])
def test_it_says_how_many_held_out_episodes_there_are(split):
    config = make(eval_split=split)
    available = config.num_eval_episodes_available
    assert config.eval_episode(available - 1) != config.eval_episode(0)
    with pytest.raises(IndexError):
        config.eval_episode(available)


def test_demonstrations_of_one_seed_never_repeat():
    config = make()
    assert len({config.demo_episode(0, i) for i in range(3000)}) == 3000


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[metaworld\]"):
        make().check_ready()
    with pytest.raises(MissingExtraError):
        make().build(1)


@pytest.mark.sim
def test_the_tables_name_the_tasks_that_metaworld_has():
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3

    assert set(make(tasks="MT50").task_names) == set(ALL_V3_ENVIRONMENTS)
    assert make(tasks="MT10").task_names == tuple(MT10_V3)
