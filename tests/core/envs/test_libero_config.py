import re

import pytest
from pydantic import ValidationError

from joyrlinf_core.envs.libero import LiberoConfig
from joyrlinf_core.envs.libero_sim.tasks import SUITES, instruction


def make(**keys):
    return LiberoConfig(type="libero", total_num_envs=8, **keys)


def test_suites():
    sizes = {name: len(tasks) for name, tasks in SUITES.items()}
    assert sizes == {
        "libero_spatial": 10,
        "libero_object": 10,
        "libero_goal": 10,
        "libero_10": 10,
        "libero_90": 90,
        "libero_130": 130,
    }
    assert len(set(SUITES["libero_130"])) == 130


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("open_the_middle_drawer_of_the_cabinet", "open the middle drawer of the cabinet"),
        (
            "KITCHEN_SCENE10_put_the_butter_at_the_back_in_the_top_drawer_of_the_cabinet_and_close_it",
            "put the butter at the back in the top drawer of the cabinet and close it",
        ),
        (
            "LIVING_ROOM_SCENE6_put_the_white_mug_on_the_plate",
            "put the white mug on the plate",
        ),
    ],
)
def test_instruction(name, words):
    assert instruction(name) == words


def test_no_instruction_keeps_its_scene():
    for name in SUITES["libero_130"]:
        words = instruction(name)
        assert words == words.lower()
        assert "_" not in words


def test_filter_chooses_tasks_in_its_order():
    env = make(suite="libero_goal", task_id_filter=[7, 2])
    assert env.task_names == (SUITES["libero_goal"][7], SUITES["libero_goal"][2])
    assert {env.eval_episode(index).task for index in range(6)} == {0, 1}


def test_evaluation_plays_every_held_out_state_once():
    env = make()
    played = [env.eval_episode(index) for index in range(100)]
    assert len(set(played)) == 100
    assert {episode.variation for episode in played} == set(range(40, 50))


def test_evaluation_on_all_states_is_the_published_one():
    env = make(eval_split="all", num_episodes=500)
    played = {env.eval_episode(index) for index in range(500)}
    assert played == {(task, trial) for task in range(10) for trial in range(50)}


def test_ordered_states_come_all_before_one_comes_again():
    env = make(use_ordered_reset_state_ids=True)
    for group in (0, 3):
        played = [env.train_episode(5, group, k) for k in range(400)]
        assert set(played) == {(task, trial) for task in range(10) for trial in range(40)}


def test_cameras():
    assert make().image_shape == (2, 256, 256, 3)
    assert make(wrist_camera=False, image_size=128).image_shape == (1, 128, 128, 3)


def test_largest_return():
    assert make(reward_coef=5).largest_return == 5
    assert make(use_rel_reward=False, max_episode_steps=100).largest_return == 100


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"task_id_filter": [0, 10]}, "task_id_filter", "task 10.*has tasks 0-9"),
        ({"task_id_filter": [1, 1]}, "task_id_filter", "twice"),
        ({"suite": "libero_long"}, "suite", "libero_10"),
    ],
)
def test_what_does_not_fit_is_said_at_its_key(keys, place, message):
    with pytest.raises(ValidationError) as caught:
        make(**keys)
    (error,) = caught.value.errors()
    assert error["loc"] == (place,)
    assert re.search(message, error["msg"])
