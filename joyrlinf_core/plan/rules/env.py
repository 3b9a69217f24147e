"""JR7xx: simulators, where they meet policy, algorithm and mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from joyrlinf_core.config.schema import EnvConfig
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_WAN_ENV = {"type": "wan", "total_num_envs": 80, "max_episode_steps": 80}
_WAN = {
    "env.train": _WAN_ENV,
    "env.eval": None,
    "actor.model.num_action_chunks": 8,
    "actor.micro_batch_size": 40,
}
_MANISKILL = {"type": "maniskill", "total_num_envs": 80, "max_episode_steps": 80}
_FILES = ("assets_dir", "world_model_path", "dataset_path", "reward_model_path")
"""Keys of simulators that name a file or directory."""


def _sections(context: RuleContext) -> Iterator[tuple[str, EnvConfig]]:
    """Yield the env sections that there are, with their paths."""
    for name, section in (("train", context.config.env.train), ("eval", context.config.env.eval)):
        if section is not None:
            yield f"env.{name}", section


@rule(
    "JR701",
    reads=("env.train.type", "env.eval"),
    passes={},
    fails={
        "env.train": {
            "type": "tests.doubles.toy:PlannedEnv",
            "total_num_envs": 80,
            "max_episode_steps": 80,
        },
    },
)
def simulator_can_run(context: RuleContext) -> Iterator[Finding]:
    """The simulator can run in this version.

    Some are there as configs only, so that their runs can be validated, planned and estimated.
    Starting one is an error until a later version runs it.

    Example: `joyrl presets list` marks what runs today.
    """
    told: set[str] = set()
    for path, section in _sections(context):
        if section.missing_runtime and section.type not in told:
            told.add(section.type)
            fix = "choose a simulator that runs; `joyrl presets list` marks them"
            severity = context.runtime_severity
            yield finding("JR701", (f"{path}.type",), section.missing_runtime, fix, severity)


@rule(
    "JR702",
    reads=("env",),
    passes={**_WAN, "env.eval": None},
    fails={**_WAN, "env.train": {**_WAN_ENV, "world_model_path": "/no/such/model"}},
)
def simulator_files_are_there(context: RuleContext) -> Iterator[Finding]:
    """The files that a simulator's section names are there.

    Absent ones are a warning under `joyrl validate`, because the config may be meant for another
    machine, and an error with `--check-paths` and where a run is started.

    Example: `env.train.world_model_path: models/wan` with `type: wan`.
    """
    if context.probing:
        return
    told: set[str] = set()
    for path, section in _sections(context):
        for name in _FILES:
            value = getattr(section, name, None)
            if value is None or f"{name}: {value}" in told or Path(value).expanduser().exists():
                continue
            told.add(f"{name}: {value}")
            message = f"`{path}.{name}: {value}` is not on this machine"
            severity = context.path_severity
            yield finding("JR702", (f"{path}.{name}",), message, "mend the path", severity)


@rule(
    "JR703",
    reads=("env.train.enable_offload", "algorithm.pipeline_mode", *CLUSTER),
    passes={"env.train": {**_MANISKILL, "enable_offload": True}, "env.eval": None},
    fails={
        "env.train": {**_MANISKILL, "enable_offload": True},
        "env.eval": None,
        "cluster.component_placement": {"env,rollout": "0", "actor": "1"},
    },
)
def offload_shares_a_gpu(context: RuleContext) -> Iterator[Finding]:
    """`enable_offload` is set only where simulator and learner share a GPU.

    It gives the simulator's memory back while the policy learns. On ranks of its own nothing waits
    for that memory, and in `async` the simulator never pauses.

    Example: `enable_offload: true` with `env,rollout,actor: 0-7`; false with `env,rollout: 0-3` and
    `actor: 4-7`.
    """
    placement = context.placement
    if placement is None or not getattr(context.config.env.train, "enable_offload", False):
        return
    path = "env.train.enable_offload"
    if context.config.algorithm.pipeline_mode == "async":
        message = "enable_offload works between rollouts, but in `async` the simulator never pauses"
    elif not set(placement.env_ranks) & set(placement.actor_ranks):
        message = "enable_offload frees memory for the learner, but none shares the env ranks"
    else:
        return
    fix = context.fix("JR703", {path: False}, otherwise="switch it off")
    yield finding("JR703", (path, "algorithm.pipeline_mode"), message, fix)


@rule(
    "JR704",
    reads=("env.train.chunk", "env.train.type", "env.eval", "actor.model.num_action_chunks"),
    passes=_WAN,
    fails={**_WAN, "actor.model.num_action_chunks": 5},
)
def chunk_fits_world_model(context: RuleContext) -> Iterator[Finding]:
    """The policy's chunk is as long as the world model's.

    A world model imagines `env.train.chunk` frames for as many actions in one call.

    Example: `type: wan` with `chunk: 8` and `num_action_chunks: 8`.
    """
    size, path = context.config.actor.model.num_action_chunks, "actor.model.num_action_chunks"
    for section, env in _sections(context):
        chunk = getattr(env, "chunk", None)
        if chunk is not None and chunk != size:
            message = f"num_action_chunks {size}, but `{env.type}` imagines {chunk} frames a call"
            fix = context.fix("JR704", {path: chunk}, otherwise=f"chunks of {chunk}")
            yield finding("JR704", (path, f"{section}.chunk"), message, fix)
            return


@rule(
    "JR705",
    reads=("env.train.use_fixed_reset_state_ids", "algorithm.group_size"),
    passes={"env.train": _MANISKILL, "env.eval": None},
    fails={"env.train": {**_MANISKILL, "use_fixed_reset_state_ids": False}, "env.eval": None},
)
def group_starts_from_one_state(context: RuleContext) -> Iterator[Finding]:
    """The envs of a group start from one initial state.

    With `use_fixed_reset_state_ids: false` each starts from its own, and a group would compare
    tasks of different difficulty.

    Example: `use_fixed_reset_state_ids: true` with `group_size: 8`; false with `group_size: 1`.
    """
    fixed = getattr(context.config.env.train, "use_fixed_reset_state_ids", True)
    size = context.config.algorithm.group_size
    if not fixed and size > 1:
        path = "env.train.use_fixed_reset_state_ids"
        message = f"a group of {size} envs would start from {size} different states"
        changes = ({path: True}, {"algorithm.group_size": 1})
        fix = context.fix("JR705", *changes, otherwise="start groups from one state")
        yield finding("JR705", (path, "algorithm.group_size"), message, fix)


@rule(
    "JR706",
    reads=("env.train", "env.eval"),
    passes={},
    fails={"env.eval": {"type": "libero", "total_num_envs": 40}},
)
def evaluation_takes_the_same_actions(context: RuleContext) -> Iterator[Finding]:
    """Training and evaluation take the same actions.

    The policy is the same, so the number of action dimensions is.

    Example: training in `wan` (7) and evaluating in `libero` (7) works, in `metaworld` (4) not.
    """
    train, evaluation = context.config.env.train, context.config.env.eval
    if evaluation is not None and evaluation.action_dim != train.action_dim:
        message = (
            f"`{evaluation.type}` takes {evaluation.action_dim} action dimensions, `{train.type}` "
            f"{train.action_dim}"
        )
        fix = "evaluate in an env with the same actions"
        yield finding("JR706", ("env.eval.type", "env.train.type"), message, fix)
