"""JR1xx: batch arithmetic. Every message shows the numbers, every suggestion was checked."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import BatchShape, Number, nearest
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_KEYS: dict[Number, str] = {
    "num_envs": "env.train.total_num_envs",
    "stages": "rollout.pipeline_stage_num",
    "group_size": "algorithm.group_size",
    "chunk_size": "actor.model.num_action_chunks",
    "steps_per_epoch": "env.train.max_steps_per_rollout_epoch",
    "max_episode_steps": "env.train.max_episode_steps",
    "micro_batch_size": "actor.micro_batch_size",
    "gradient_accumulation_steps": "actor.gradient_accumulation_steps",
}
_ENVS = _KEYS["num_envs"]
_READS = (
    *CLUSTER,
    "rollout.pipeline_stage_num",
    "algorithm.group_size",
    "env.train.total_num_envs",
    "env.train.rollout_epoch",
    "env.train.auto_reset",
    "env.train.max_episode_steps",
    "env.train.max_steps_per_rollout_epoch",
    "actor.micro_batch_size",
    "actor.gradient_accumulation_steps",
    "actor.model.num_action_chunks",
)
"""`BatchShape` needs them all."""


def _fix(shape: BatchShape, code: str, numbers: tuple[Number, ...]) -> str:
    """Return the nearest working values of each number, or the advice to change several."""
    parts: list[str] = []
    for number in numbers:
        values = nearest(shape, number, code)
        if values:
            parts.append(f"{_KEYS[number]} {' or '.join(str(value) for value in values)}")
    if not parts:
        return f"no single value of {' or '.join(_KEYS[n] for n in numbers)} helps; change several"
    return ", or ".join(parts)


@rule(
    "JR101",
    reads=_READS,
    passes={"cluster.component_placement": {"env,rollout,actor": "0-1"}},
    fails={"cluster.component_placement": {"env,rollout,actor": "0-2"}},
)
def envs_divide_by_ranks(context: RuleContext) -> Iterator[Finding]:
    """Every env rank simulates the same number of envs."""
    shape = context.breaks("JR101")
    if shape is not None:
        message = (
            f"envs do not divide into ranks: {shape.num_envs} envs / {shape.env_ranks} env ranks "
            f"leaves {shape.num_envs % shape.env_ranks}"
        )
        yield finding("JR101", (_ENVS,), message, _fix(shape, "JR101", ("num_envs",)))


@rule(
    "JR102",
    reads=_READS,
    passes={"rollout.pipeline_stage_num": 2},
    fails={"rollout.pipeline_stage_num": 3},
)
def envs_divide_by_stages(context: RuleContext) -> Iterator[Finding]:
    """Every pipeline stage of a rank has the same number of envs, at least one."""
    shape = context.breaks("JR102")
    if shape is not None:
        per_rank = shape.num_envs // shape.env_ranks
        message = (
            f"the envs of a rank do not divide into stages: {shape.num_envs} envs / "
            f"{shape.env_ranks} env ranks = {per_rank}; {per_rank} % {shape.stages} stages = "
            f"{per_rank % shape.stages}"
        )
        paths = (_KEYS["stages"], _ENVS)
        yield finding("JR102", paths, message, _fix(shape, "JR102", ("stages", "num_envs")))


@rule(
    "JR103",
    reads=_READS,
    passes={"actor.micro_batch_size": 16, "actor.gradient_accumulation_steps": 4},
    fails={"actor.micro_batch_size": 24, "actor.gradient_accumulation_steps": 4},
)
def samples_divide_by_batches(context: RuleContext) -> Iterator[Finding]:
    """The samples of an actor make up whole optimizer batches."""
    shape = context.breaks("JR103")
    if shape is not None:
        n, batch = shape.samples_per_actor, shape.samples_per_optimizer_step
        message = (
            "samples per actor do not divide into optimizer batches: "
            f"T_eff x B_actor = {shape.t_eff} x {shape.columns_per_actor} = {n}; "
            f"micro_batch_size x gradient_accumulation_steps = {shape.micro_batch_size} x "
            f"{shape.gradient_accumulation_steps} = {batch}; {n} % {batch} = {n % batch}"
        )
        numbers: tuple[Number, ...] = (
            "micro_batch_size",
            "gradient_accumulation_steps",
            "num_envs",
        )
        paths = tuple(_KEYS[number] for number in numbers)
        yield finding("JR103", paths, message, _fix(shape, "JR103", numbers))


@rule(
    "JR104",
    reads=_READS,
    passes={"algorithm.group_size": 4},
    fails={"algorithm.group_size": 7},
)
def groups_fit_stages(context: RuleContext) -> Iterator[Finding]:
    """A group lies within one rank and stage."""
    shape = context.breaks("JR104")
    if shape is not None:
        per_stage = shape.num_envs // (shape.env_ranks * shape.stages)
        message = (
            f"a group would straddle ranks or stages: {shape.num_envs} envs / {shape.env_ranks} "
            f"env ranks / {shape.stages} stages = {per_stage} envs; {per_stage} % group_size "
            f"{shape.group_size} = {per_stage % shape.group_size}"
        )
        paths = (_KEYS["group_size"], _ENVS)
        fix = _fix(shape, "JR104", ("group_size", "num_envs"))
        yield finding("JR104", paths, message, fix)


@rule(
    "JR105",
    reads=_READS,
    passes={"cluster.component_placement": {"env,rollout": "0", "actor": "0-1"}},
    fails={"cluster.component_placement": {"env,rollout": "0", "actor": "0-2"}},
)
def groups_fit_actors(context: RuleContext) -> Iterator[Finding]:
    """Trajectories are dealt to actors in whole groups."""
    shape = context.breaks("JR105")
    placement = context.placement
    # Where actors are the env ranks, JR101 and JR104 already say the same.
    if shape is None or placement is None or placement.actor_ranks == placement.env_ranks:
        return
    groups = shape.num_envs // shape.group_size
    message = (
        f"groups do not divide over actors: {shape.num_envs} envs / group_size "
        f"{shape.group_size} = {groups} groups; {groups} % {shape.actor_ranks} actor ranks = "
        f"{groups % shape.actor_ranks}"
    )
    paths = (_ENVS, _KEYS["group_size"])
    yield finding("JR105", paths, message, _fix(shape, "JR105", ("num_envs", "group_size")))


@rule(
    "JR106",
    reads=_READS,
    passes={"actor.model.num_action_chunks": 8},
    fails={"actor.model.num_action_chunks": 7},
)
def epoch_divides_by_chunk(context: RuleContext) -> Iterator[Finding]:
    """A rollout epoch is made of whole chunks."""
    shape = context.breaks("JR106")
    if shape is not None:
        steps, chunk = shape.steps_per_epoch, shape.chunk_size
        message = (
            f"a rollout epoch does not divide into chunks: {steps} env steps % "
            f"num_action_chunks {chunk} = {steps % chunk}"
        )
        paths = (_KEYS["chunk_size"], _KEYS["steps_per_epoch"], _KEYS["max_episode_steps"])
        fix = _fix(shape, "JR106", ("chunk_size", "steps_per_epoch"))
        yield finding("JR106", paths, message, fix)


@rule(
    "JR107",
    reads=_READS,
    passes={"env.train.max_steps_per_rollout_epoch": 40, "env.train.auto_reset": True},
    fails={"env.train.max_steps_per_rollout_epoch": 40},
)
def episode_fits_epoch(context: RuleContext) -> Iterator[Finding]:
    """Without auto_reset an episode must be able to end within its rollout epoch."""
    shape = context.breaks("JR107")
    if shape is not None:
        message = (
            f"episodes would be cut off: max_episode_steps {shape.max_episode_steps} > "
            f"max_steps_per_rollout_epoch {shape.steps_per_epoch}, and auto_reset is off"
        )
        paths = (_KEYS["steps_per_epoch"], _KEYS["max_episode_steps"])
        fix = _fix(shape, "JR107", ("steps_per_epoch", "max_episode_steps"))
        yield finding("JR107", paths, message, f"{fix}, or env.train.auto_reset true")


@rule(
    "JR108",
    reads=_READS,
    passes={"env.train.max_steps_per_rollout_epoch": 160, "env.train.auto_reset": True},
    fails={"env.train.max_steps_per_rollout_epoch": 160},
)
def epoch_not_longer_than_episode(context: RuleContext) -> Iterator[Finding]:
    """Without auto_reset, steps after the time limit hold nothing to learn from."""
    shape = context.shape
    if shape is None or shape.auto_reset:
        return
    chunk, limit = shape.chunk_size, shape.max_episode_steps
    needed = -(-limit // chunk) * chunk
    if shape.steps_per_epoch > needed:
        message = (
            f"a rollout epoch of {shape.steps_per_epoch} env steps outlasts its episodes of "
            f"{limit}: {shape.steps_per_epoch - needed} steps of each epoch are masked out"
        )
        fix = f"env.train.max_steps_per_rollout_epoch {needed}, or env.train.auto_reset true"
        yield finding("JR108", (_KEYS["steps_per_epoch"],), message, fix, "warning")


@rule(
    "JR109",
    reads=(*CLUSTER, "rollout.pipeline_stage_num", "env.eval"),
    passes={"env.eval.total_num_envs": 2, "rollout.pipeline_stage_num": 2},
    fails={"env.eval.total_num_envs": 3, "rollout.pipeline_stage_num": 2},
)
def eval_envs_divide(context: RuleContext) -> Iterator[Finding]:
    """Evaluation envs spread evenly over ranks and stages."""
    env, placement = context.config.env.eval, context.placement
    if env is None or placement is None:
        return
    stages = context.config.rollout.pipeline_stage_num
    unit = len(placement.env_ranks) * stages
    if env.total_num_envs % unit:
        message = (
            f"evaluation envs do not divide: {env.total_num_envs} % ({len(placement.env_ranks)} "
            f"env ranks x {stages} stages) = {env.total_num_envs % unit}"
        )
        below = env.total_num_envs // unit * unit
        fix = " or ".join(str(value) for value in (below, below + unit) if value)
        path = "env.eval.total_num_envs"
        yield finding("JR109", (path,), message, f"{path} {fix}")
