"""When a task is solved, without the dense reward that Meta-World computes on the way.

Meta-World's own flag comes out of `evaluate_state`, most of whose time goes into reward terms. The
rules here do the same float64 arithmetic on the same positions; tests compare the flags of every
task with Meta-World's. Tasks without a rule ask `evaluate_state` (their flag needs contacts or a
shape of its own).
"""
# ruff: noqa: SLF001 - Meta-World has no public accessors for objects and target

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Rule = Callable[[Any], bool]
"""Takes the Meta-World env whose data is current; returns whether the task is solved."""


def _object_within(radius: float) -> Rule:
    def rule(env: Any) -> bool:
        offset = env._get_pos_objects()[:3] - env._target_pos
        return math.sqrt(offset.dot(offset)) <= radius

    return rule


def _object_within_on_axis(axis: int, radius: float) -> Rule:
    def rule(env: Any) -> bool:
        return abs(env._get_pos_objects()[axis] - env._target_pos[axis]) <= radius

    return rule


def _tool_within(radius: float) -> Rule:
    def rule(env: Any) -> bool:
        offset = env.tcp_center - env._target_pos
        return math.sqrt(offset.dot(offset)) <= radius

    return rule


def _disassembled(env: Any) -> bool:
    return env._get_pos_objects()[2] > env._target_pos[2]


def _box_closed(env: Any) -> bool:
    offset = env._get_pos_objects()[:3] - env._target_pos
    return math.sqrt(offset.dot(offset)) < 0.08


def _in_basket(env: Any) -> bool:
    target = env._target_pos.copy()
    target[2] = 0.3
    offset = (env._get_pos_objects()[:3] - target) * np.array([1.0, 1.0, 2.0])
    return math.sqrt(offset.dot(offset)) <= 0.08


def _faucet_opened(env: Any) -> bool:
    handle = env._get_pos_objects() + np.array([-0.04, 0.0, 0.03])
    offset = handle - env._target_pos
    return math.sqrt(offset.dot(offset)) <= 0.07


def _nail_driven(env: Any) -> bool:
    return bool(env.data.joint("NailSlideJoint").qpos > 0.09)


def _peg_inserted(env: Any) -> bool:
    offset = (env._get_site_pos("pegHead") - env._target_pos) * np.array([1.0, 2.0, 2.0])
    return math.sqrt(offset.dot(offset)) <= 0.07


def _swept_in(env: Any) -> bool:
    block = env._get_pos_objects()
    offset = block - np.array([env._target_pos[0], env._target_pos[1], block[2]])
    return math.sqrt(offset.dot(offset)) <= 0.05


_X, _Y, _Z = 0, 1, 2

RULES: dict[str, Rule] = {
    "basketball-v3": _in_basket,
    "bin-picking-v3": _object_within(0.05),
    "box-close-v3": _box_closed,
    "button-press-topdown-v3": _object_within_on_axis(_Z, 0.024),
    "button-press-topdown-wall-v3": _object_within_on_axis(_Z, 0.024),
    "button-press-v3": _object_within_on_axis(_Y, 0.02),
    "button-press-wall-v3": _object_within_on_axis(_Y, 0.03),
    "coffee-button-v3": _object_within_on_axis(_Y, 0.02),
    "coffee-pull-v3": _object_within(0.07),
    "coffee-push-v3": _object_within(0.07),
    "dial-turn-v3": _object_within(0.07),
    "disassemble-v3": _disassembled,
    "door-close-v3": _object_within(0.08),
    "door-lock-v3": _object_within_on_axis(_Z, 0.02),
    "door-open-v3": _object_within_on_axis(_X, 0.08),
    "door-unlock-v3": _object_within_on_axis(_X, 0.02),
    "drawer-close-v3": _object_within(0.05 + 0.015),
    "drawer-open-v3": _object_within(0.03),
    "faucet-close-v3": _object_within(0.07),
    "faucet-open-v3": _faucet_opened,
    "hammer-v3": _nail_driven,
    "hand-insert-v3": _object_within(0.05),
    "handle-press-side-v3": _object_within_on_axis(_Z, 0.02),
    "handle-press-v3": _object_within_on_axis(_Z, 0.02),
    "handle-pull-side-v3": _object_within(0.08),
    "handle-pull-v3": _object_within_on_axis(_Z, 0.05),
    "peg-insert-side-v3": _peg_inserted,
    "peg-unplug-side-v3": _object_within(0.07),
    "pick-out-of-hole-v3": _object_within(0.07),
    "pick-place-v3": _object_within(0.07),
    "pick-place-wall-v3": _object_within(0.07),
    "plate-slide-back-side-v3": _object_within(0.07),
    "plate-slide-back-v3": _object_within(0.07),
    "plate-slide-side-v3": _object_within(0.07),
    "plate-slide-v3": _object_within(0.07),
    "push-back-v3": _object_within(0.07),
    "push-v3": _object_within(0.05),
    "push-wall-v3": _object_within(0.07),
    "reach-v3": _tool_within(0.05),
    "reach-wall-v3": _tool_within(0.05),
    "shelf-place-v3": _object_within(0.07),
    "soccer-v3": _object_within(0.07),
    "sweep-into-v3": _swept_in,
    "sweep-v3": _object_within(0.05),
    "window-close-v3": _object_within_on_axis(_X, 0.05),
    "window-open-v3": _object_within_on_axis(_X, 0.05),
}
"""Tasks whose flag follows from positions, in metres; the others ask Meta-World."""
