"""JR4xx: what the policy is shown, and the room that it has for it."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.changes import Change
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule

_GR00T = {"model_type": "gr00t", "num_action_chunks": 10}
_OFT = {"model_type": "openvla_oft", "num_action_chunks": 8}
_LIBERO = {"type": "libero", "total_num_envs": 80, "max_episode_steps": 80}


@rule(
    "JR412",
    reads=("actor.model.num_images_in_input", "env.train", "env.eval"),
    passes={"actor.model": {**_OFT, "num_images_in_input": 2}, "env.train": _LIBERO},
    fails={"actor.model": {**_OFT, "num_images_in_input": 3}, "env.train": _LIBERO},
)
def cameras_suffice(context: RuleContext) -> Iterator[Finding]:
    """The simulator has as many cameras as the policy reads.

    Example: `num_images_in_input: 2` with `type: libero` and `wrist_camera: true`; 1 with `type:
    wan`, which has no wrist camera.
    """
    path = "actor.model.num_images_in_input"
    wanted = int(getattr(context.config.actor.model, "num_images_in_input", 0))
    for name, env in (("train", context.config.env.train), ("eval", context.config.env.eval)):
        if env is not None and env.image_shape[0] < wanted:
            has = env.image_shape[0]
            message = f"the policy reads {wanted} cameras, env.{name} (`{env.type}`) has {has}"
            changes: list[Change] = [{path: has}]
            if hasattr(env, "wrist_camera"):
                changes.append({f"env.{name}.wrist_camera": True})
            fix = context.fix("JR412", *changes, otherwise=f"read {has}")
            yield finding("JR412", (path, f"env.{name}.type"), message, fix)
            return


_PICTURE_TOKENS = 256
"""Tokens of one picture of GR00T N1.5."""


@rule(
    "JR413",
    reads=("actor.model.padding_value", "env.train"),
    passes={"actor.model": _GR00T, "env.train": _LIBERO},
    fails={"actor.model": {**_GR00T, "padding_value": 512}, "env.train": _LIBERO},
)
def pictures_fit_padding(context: RuleContext) -> Iterator[Finding]:
    """Pictures and prompt fit GR00T's `padding_value`.

    Each camera takes 256 tokens, and the prompt comes on top.

    Example: 2 cameras x 256 = 512 tokens leave 58 of 570 for the prompt.
    """
    env, path = context.config.env.train, "actor.model.padding_value"
    length = int(getattr(context.config.actor.model, "padding_value", 0))
    cameras = env.image_shape[0]
    used = cameras * _PICTURE_TOKENS
    # A word is a token or more.
    words = max(len(prompt.split()) for prompt in env.task_prompts)
    if length and used + words > length:
        message = (
            f"{cameras} cameras x {_PICTURE_TOKENS} = {used} tokens, and a prompt of {words} words "
            f"or more, exceed padding_value {length}"
        )
        fix = context.fix("JR413", {path: used + 58}, otherwise="a larger padding_value")
        yield finding("JR413", (path, "env.train.type"), message, fix)


_TEMPLATE_WORDS = 9
"""Words of OpenVLA's prompt around the instruction."""
_USUAL_LENGTH = 128
"""Prompt tokens of OpenVLA-OFT policies for LIBERO."""


@rule(
    "JR414",
    reads=("actor.model.max_prompt_length", "env.train", "env.eval"),
    passes={"actor.model": {**_OFT, "max_prompt_length": 30}, "env.train": _LIBERO},
    fails={"actor.model": {**_OFT, "max_prompt_length": 8}, "env.train": _LIBERO},
)
def prompts_fit(context: RuleContext) -> Iterator[Finding]:
    """The longest prompt fits `max_prompt_length`.

    Prompts are padded to this many tokens. A word is a token or more, and OpenVLA's own prompt puts
    9 words around the instruction.

    Example: "pick up the black bowl on the stove and place it on the plate" are 14 words: 30 is
    enough, 20 is not.
    """
    path = "actor.model.max_prompt_length"
    length = int(getattr(context.config.actor.model, "max_prompt_length", 0))
    for name, env in (("train", context.config.env.train), ("eval", context.config.env.eval)):
        words = max(len(prompt.split()) for prompt in env.task_prompts) if env is not None else 0
        if env is not None and words + _TEMPLATE_WORDS > length:
            message = (
                f"a prompt of {words} words and the {_TEMPLATE_WORDS} around it exceed "
                f"max_prompt_length {length}"
            )
            fix = context.fix("JR414", {path: _USUAL_LENGTH}, otherwise="a larger one")
            yield finding("JR414", (path, f"env.{name}.type"), message, fix)
            return
