"""ManiSkill tasks with a known instruction, their robots and control modes. Plain data.

ManiSkill has no instruction for most of its tasks; the sentences of the Panda tasks are joyrl's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Robot = Literal["panda", "widowx"]
PolicySetup = Literal[
    "widowx_bridge",
    "panda-qpos",
    "panda-ee-dpos",
    "panda-ee-dpose",
    "panda-ee-target-dpos",
]


class Task(NamedTuple):
    """What joyrl knows of a task before ManiSkill is there."""

    robot: Robot
    prompt: str
    wrist_camera: bool = False
    """Whether its robot carries a second camera."""


PUT_ON_PLATE = "PutOnPlateInScene25Main-v3"
"""25 objects on 21 table pictures; its instruction names the object."""

TASKS: dict[str, Task] = {
    PUT_ON_PLATE: Task("widowx", ""),
    "PutCarrotOnPlateInScene-v1": Task("widowx", "put carrot on plate"),
    "PutEggplantInBasketScene-v1": Task("widowx", "put eggplant into yellow basket"),
    "PutSpoonOnTableClothInScene-v1": Task("widowx", "put the spoon on the towel"),
    "StackGreenCubeOnYellowCubeBakedTexInScene-v1": Task(
        "widowx", "stack the green block on the yellow block"
    ),
    "LiftPegUpright-v1": Task("panda", "lift the peg upright"),
    "PegInsertionSide-v1": Task("panda", "insert the peg into the hole in the side", True),
    "PickCube-v1": Task("panda", "pick up the cube and move it to the goal"),
    "PlaceSphere-v1": Task("panda", "place the sphere into the bin"),
    "PlugCharger-v1": Task("panda", "plug the charger into the socket", True),
    "PokeCube-v1": Task("panda", "poke the cube with the peg"),
    "PullCube-v1": Task("panda", "pull the cube to the goal"),
    "PullCubeTool-v1": Task("panda", "pull the cube closer with the tool"),
    "PushCube-v1": Task("panda", "push the cube to the goal"),
    "RollBall-v1": Task("panda", "roll the ball to the goal"),
    "StackCube-v1": Task("panda", "stack the red cube on the green cube", True),
    "StackPyramid-v1": Task("panda", "build a pyramid of the three cubes", True),
}

OBJECTS = (
    "carrot",
    "kitchen shovel",
    "bread",
    "plastic bottle",
    "7up can",
    "zuchinni",
    "ketchup bottle",
    "watering can",
    "pipe",
    "toy bear",
    "fast food cup",
    "plant",
    "banana",
    "hamburger",
    "golf ball",
    "BBQ sauce",
    "travel cup",
    "pepper",
    "nonstop can",
    "potato",
    "baguette",
    "champagne glass",
    "kitchen spoon",
    "onion",
    "cup",
)
"""Objects of `PUT_ON_PLATE` in the order of its reset ids, named as policies were trained."""


class ObjectSet(NamedTuple):
    """Objects and table pictures of `obj_set`, half-open ranges."""

    objects: range
    overlays: range


OBJECT_SETS: dict[str, ObjectSet] = {
    "train": ObjectSet(range(16), range(16)),
    "test": ObjectSet(range(16, 25), range(16, 21)),
    "all": ObjectSet(range(25), range(21)),
}

PLACES = 784 * 4
"""Pairs of positions x orientations of one object on one table picture."""

CONTROL_MODES: dict[PolicySetup, str] = {
    "widowx_bridge": "arm_pd_ee_target_delta_pose_align2_gripper_pd_joint_pos",
    "panda-qpos": "pd_joint_delta_pos",
    "panda-ee-dpos": "pd_ee_delta_pos",
    "panda-ee-dpose": "pd_ee_delta_pose",
    "panda-ee-target-dpos": "pd_ee_target_delta_pose",
}
"""Control mode that a policy setup asks the simulator for."""

ACTION_DIMS: dict[str, int] = {
    "arm_pd_ee_target_delta_pose_align2_gripper_pd_joint_pos": 7,
    "pd_joint_pos": 8,
    "pd_joint_delta_pos": 8,
    "pd_joint_target_delta_pos": 8,
    "pd_ee_delta_pos": 4,
    "pd_ee_target_delta_pos": 4,
    "pd_ee_delta_pose": 7,
    "pd_ee_target_delta_pose": 7,
    "pd_ee_pose": 7,
}
"""Dimensions of one action in each control mode, the gripper included."""

STATE_DIMS: dict[Robot, int] = {"widowx": 8, "panda": 9}
"""Joint positions of the arm and its fingers."""
