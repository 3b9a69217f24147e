import pytest
from pydantic import ValidationError

from joyrlinf_core.envs.maniskill import ManiSkillConfig
from joyrlinf_core.envs.maniskill_sim.tasks import ACTION_DIMS, CONTROL_MODES, OBJECT_SETS, TASKS


def make(**keys):
    return ManiSkillConfig(type="maniskill", total_num_envs=8, **keys)


def test_put_on_plate_has_one_task_an_object():
    train, test, every = (make(obj_set=name) for name in ("train", "test", "all"))
    assert make() == make(obj_set=None)
    assert make().task_prompts == train.task_prompts
    assert [len(env.task_prompts) for env in (train, test, every)] == [16, 9, 25]
    assert train.task_prompts[0] == "put carrot on plate"
    assert not set(train.task_prompts) & set(test.task_prompts)
    assert every.task_prompts == train.task_prompts + test.task_prompts
    # The published numbers of reset ids.
    assert len(train.task_prompts) * train.states_per_task == 802_816
    assert len(test.task_prompts) * test.states_per_task == 141_120


def test_sets_of_training_and_test_share_no_table():
    assert not set(OBJECT_SETS["train"].overlays) & set(OBJECT_SETS["test"].overlays)


def test_robot_decides_sizes():
    widowx, panda = make(), make(task_id="PickCube-v1")
    assert (widowx.robot, widowx.setup, widowx.action_dim, widowx.state_dim) == (
        "widowx",
        "widowx_bridge",
        7,
        8,
    )
    assert (panda.robot, panda.setup, panda.action_dim, panda.state_dim) == (
        "panda",
        "panda-ee-dpose",
        7,
        9,
    )
    assert widowx.image_shape == (1, 480, 640, 3)
    assert panda.image_shape == (1, 128, 128, 3)
    two = make(task_id="StackCube-v1", wrist_camera=True, image_height=96, image_width=64)
    assert two.image_shape == (2, 96, 64, 3)


def test_setup_and_control_mode_decide_the_action():
    dims = {
        setup: make(task_id="PickCube-v1", policy_setup=setup).action_dim
        for setup in CONTROL_MODES
        if setup != "widowx_bridge"
    }
    assert dims == {
        "panda-qpos": 8,
        "panda-ee-dpos": 4,
        "panda-ee-dpose": 7,
        "panda-ee-target-dpos": 7,
    }
    assert make(task_id="PickCube-v1", control_mode="pd_joint_pos").action_dim == 8
    assert set(CONTROL_MODES.values()) <= set(ACTION_DIMS)


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({}, 1.2),
        ({"reward_coef": 5}, 6.0),
        ({"reward_mode": "success"}, 1.0),
        ({"task_id": "PickCube-v1"}, 1.0),
        ({"reward_mode": "dense", "max_episode_steps": 50}, 50.0),
    ],
)
def test_largest_return(keys, most):
    assert make(**keys).largest_return == pytest.approx(most)


def test_another_task_needs_words_and_a_robot():
    env = make(task_id="My-v1", instruction="do it well", policy_setup="panda-qpos")
    assert (env.task_prompts, env.robot, env.largest_return) == (("do it well",), "panda", 1.0)


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"task_id": "PickCub-v1"}, "task_id", "did you mean 'PickCube-v1'"),
        ({"task_id": "My-v1", "instruction": "x"}, "task_id", "set `policy_setup` as well"),
        (
            {"task_id": "PickCube-v1", "policy_setup": "widowx_bridge"},
            "task_id",
            "has a panda.*use panda-qpos",
        ),
        ({"policy_setup": "panda-qpos"}, "task_id", "has a widowx.*use widowx_bridge"),
        ({"wrist_camera": True}, "wrist_camera", "StackCube-v1"),
        ({"control_mode": "pd_ee_delta_poses"}, "control_mode", "did you mean 'pd_ee_delta_pose'"),
        ({"task_id": "PickCube-v1", "reward_mode": "staged"}, "reward_mode", "success or dense"),
        ({"obj_set": "trian"}, "obj_set", "train"),
        ({"sim_backend": "gpu"}, "sim_backend", "physx_cuda"),
    ],
)
def test_what_does_not_fit_is_said_at_its_key(keys, place, message):
    with pytest.raises(ValidationError, match=message) as caught:
        make(**keys)
    assert [error["loc"] for error in caught.value.errors()] == [(place,)]


def test_every_task_can_be_configured():
    for name, task in TASKS.items():
        env = make(task_id=name)
        assert env.robot == task.robot
        assert env.task_prompts
