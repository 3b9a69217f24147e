"""JR1xx: batch arithmetic. Every message shows the numbers, every suggestion was checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import BatchShape, Number, nearest, nearest_pair
from joyrlinf_core.plan.rules.changes import Change, told
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, amount, finding, rule

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
READS = (
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


def _fix(
    context: RuleContext,
    shape: BatchShape,
    code: str,
    numbers: tuple[Number, ...],
    *more: Change,
) -> str:
    """Return the nearest working values of each number, a pair where these are far or none."""
    if context.probing:
        return ""
    near: list[Change] = []
    far: list[Change] = []
    for number in numbers:
        key, now = _KEYS[number], getattr(shape, number)
        values = nearest(shape, number, code, lambda v, k=key: context.settles(code, {k: v}))
        if not values:
            values = nearest(shape, number, code, lambda v, k=key: context.mends(code, {k: v}))
        for value in values:
            (near if value <= 2 * now else far).append({key: value})
    near.extend(change for change in more if context.mends(code, change))
    batch: tuple[Number, ...] = ("micro_batch_size", "gradient_accumulation_steps")
    if not any(set(change) - {_ENVS} for change in near):
        others: tuple[Number, ...] = ("num_envs", "stages", "group_size", *batch)
        pairs: list[tuple[tuple[Number, ...], tuple[Number, ...]]] = [(batch, batch)]
        if code != "JR103":
            pairs = [] if near else [((one,), others) for one in numbers]
        for first, second in pairs:
            pair = nearest_pair(
                shape, code, first, second, lambda p: context.mends(code, _as_change(p))
            )
            if pair is not None and _as_change(pair) not in near:
                near.append(_as_change(pair))
    keys = " or ".join(_KEYS[number] for number in numbers)
    # Far more of something is no help while there is something nearer, except more envs.
    distant = [change for change in far if not near or _ENVS in change]
    text = told(context.best([*near, *distant]))
    return text or f"no single value of {keys} that was tried helps, and no pair; change several"


def _as_change(numbers: Mapping[Number, int]) -> Change:
    return {_KEYS[number]: value for number, value in numbers.items()}


@rule(
    "JR101",
    reads=READS,
    passes={"cluster.component_placement": {"env,rollout,actor": "0-1"}},
    fails={"cluster.component_placement": {"env,rollout,actor": "0-2"}},
)
def envs_divide_by_ranks(context: RuleContext) -> Iterator[Finding]:
    """Every env rank simulates the same number of envs.

    Ranks work in step: a rank with fewer envs would wait for the others, and batches of different
    sizes could not be dealt out.

    Example: 256 envs on 6 env ranks leave 4 over; 252 and 258 do not.
    """
    shape = context.breaks("JR101")
    if shape is not None:
        message = (
            f"envs do not divide into ranks: {shape.num_envs} envs / "
            f"{amount(shape.env_ranks, 'env rank')} leaves {shape.num_envs % shape.env_ranks}"
        )
        yield finding("JR101", (_ENVS,), message, _fix(context, shape, "JR101", ("num_envs",)))


@rule(
    "JR102",
    reads=READS,
    passes={"rollout.pipeline_stage_num": 2},
    fails={"rollout.pipeline_stage_num": 3},
)
def envs_divide_by_stages(context: RuleContext) -> Iterator[Finding]:
    """Every pipeline stage of a rank has the same number of envs, at least one.

    With `rollout.pipeline_stage_num` S, a rank splits its envs into S stages; while one simulates,
    the policy infers for the next.

    Example: 256 envs / 8 ranks = 32 envs; 32 % 3 stages = 2, so 3 stages do not work, 2 and 4 do.
    """
    shape = context.breaks("JR102")
    if shape is not None:
        per_rank = shape.num_envs // shape.env_ranks
        message = (
            f"the envs of a rank do not divide into stages: {shape.num_envs} envs / "
            f"{amount(shape.env_ranks, 'env rank')} = {per_rank}; {per_rank} % "
            f"{amount(shape.stages, 'stage')} = "
            f"{per_rank % shape.stages}"
        )
        paths = (_KEYS["stages"], _ENVS)
        yield finding(
            "JR102", paths, message, _fix(context, shape, "JR102", ("stages", "num_envs"))
        )


@rule(
    "JR103",
    reads=READS,
    passes={"actor.micro_batch_size": 16, "actor.gradient_accumulation_steps": 4},
    fails={"actor.micro_batch_size": 24, "actor.gradient_accumulation_steps": 4},
)
def samples_divide_by_batches(context: RuleContext) -> Iterator[Finding]:
    """The samples of an actor make up whole optimizer batches.

    A sample is one chunk of one env. An actor has T_eff x B of them in a training step, where
    T_eff = `rollout_epoch` x `max_steps_per_rollout_epoch` / `num_action_chunks` and B = envs /
    actor ranks. One optimizer step takes `micro_batch_size` x `gradient_accumulation_steps`.

    Example: T_eff x B = 60 x 16 = 960 samples; 32 x 4 = 128; 960 % 128 = 64. With a
    `micro_batch_size` of 30 (8 optimizer steps) or 40 (6) nothing is left over.
    """
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
        yield finding("JR103", paths, message, _fix(context, shape, "JR103", numbers))


@rule(
    "JR104",
    reads=READS,
    passes={"algorithm.group_size": 4},
    fails={"algorithm.group_size": 7},
)
def groups_fit_stages(context: RuleContext) -> Iterator[Finding]:
    """A group lies within one rank and stage.

    The `group_size` envs of a group start from one initial state and are compared with each other.
    They are consecutive envs, so that the envs of a stage must be whole groups.

    Example: 256 envs / 8 ranks / 2 stages = 16 envs; groups of 8 fit, groups of 12 do not.
    """
    shape = context.breaks("JR104")
    if shape is not None:
        per_stage = shape.num_envs // (shape.env_ranks * shape.stages)
        message = (
            f"a group would straddle ranks or stages: {shape.num_envs} envs / "
            f"{amount(shape.env_ranks, 'env rank')} / {amount(shape.stages, 'stage')} = "
            f"{amount(per_stage, 'env')}; {per_stage} % group_size "
            f"{shape.group_size} = {per_stage % shape.group_size}"
        )
        paths = (_KEYS["group_size"], _ENVS, _KEYS["stages"])
        numbers: tuple[Number, ...] = ("group_size", "num_envs", "stages")
        fix = _fix(context, shape, "JR104", numbers)
        yield finding("JR104", paths, message, fix)


@rule(
    "JR105",
    reads=READS,
    passes={"cluster.component_placement": {"env,rollout": "0", "actor": "0-1"}},
    fails={"cluster.component_placement": {"env,rollout": "0", "actor": "0-2"}},
)
def groups_fit_actors(context: RuleContext) -> Iterator[Finding]:
    """Trajectories are dealt to actors in whole groups.

    A group that straddled two actors would be normalised by two different means, without any
    message.

    Example: 48 envs / groups of 8 = 6 groups; they do not divide over 4 actors, but over 2, 3 or 6.
    """
    shape = context.breaks("JR105")
    placement = context.placement
    # Where actors are the env ranks, JR101 and JR104 already say the same.
    if shape is None or placement is None or placement.actor_ranks == placement.env_ranks:
        return
    envs, size = shape.num_envs, shape.group_size
    if envs % size:
        message = f"envs are no whole groups: {envs} envs % group_size {size} = {envs % size}"
    else:
        groups = envs // size
        message = (
            f"groups do not divide over actors: {envs} envs / group_size {size} = "
            f"{amount(groups, 'group')}; "
            f"{groups} % {amount(shape.actor_ranks, 'actor rank')} = {groups % shape.actor_ranks}"
        )
    paths = (_ENVS, _KEYS["group_size"])
    yield finding(
        "JR105", paths, message, _fix(context, shape, "JR105", ("num_envs", "group_size"))
    )


@rule(
    "JR106",
    reads=READS,
    passes={"actor.model.num_action_chunks": 8},
    fails={"actor.model.num_action_chunks": 7},
)
def epoch_divides_by_chunk(context: RuleContext) -> Iterator[Finding]:
    """A rollout epoch is made of whole chunks.

    The policy is asked once for `num_action_chunks` actions, which are all executed. The length of
    an epoch is `max_steps_per_rollout_epoch`, or `max_episode_steps` where that is not set.

    Example: 80 env steps are 16 chunks of 5, and no whole number of chunks of 6.
    """
    shape = context.breaks("JR106")
    if shape is not None:
        steps, chunk = shape.steps_per_epoch, shape.chunk_size
        message = (
            f"a rollout epoch does not divide into chunks: {steps} env steps % "
            f"num_action_chunks {chunk} = {steps % chunk}"
        )
        paths = (_KEYS["chunk_size"], _KEYS["steps_per_epoch"], _KEYS["max_episode_steps"])
        numbers: tuple[Number, ...] = ("chunk_size", "max_episode_steps", "steps_per_epoch")
        fix = _fix(context, shape, "JR106", numbers)
        yield finding("JR106", paths, message, fix)


@rule(
    "JR107",
    reads=READS,
    passes={"env.train.max_steps_per_rollout_epoch": 40, "env.train.auto_reset": True},
    fails={"env.train.max_steps_per_rollout_epoch": 40},
)
def episode_fits_epoch(context: RuleContext) -> Iterator[Finding]:
    """Without auto_reset an episode must be able to end within its rollout epoch.

    Each epoch is then one episode. An epoch that is shorter cuts episodes off before their time
    limit, and what could have been a success counts as a failure.

    Example: `max_episode_steps` 480 with `max_steps_per_rollout_epoch` 240: set both to 480, or
    `auto_reset: true`, where episodes go on in the next epoch.
    """
    shape = context.breaks("JR107")
    if shape is not None:
        message = (
            f"episodes would be cut off: max_episode_steps {shape.max_episode_steps} > "
            f"max_steps_per_rollout_epoch {shape.steps_per_epoch}, and auto_reset is off"
        )
        paths = (_KEYS["steps_per_epoch"], _KEYS["max_episode_steps"])
        numbers: tuple[Number, ...] = ("steps_per_epoch", "max_episode_steps")
        fix = _fix(context, shape, "JR107", numbers, {"env.train.auto_reset": True})
        yield finding("JR107", paths, message, fix)


@rule(
    "JR108",
    reads=READS,
    passes={"env.train.max_steps_per_rollout_epoch": 160, "env.train.auto_reset": True},
    fails={"env.train.max_steps_per_rollout_epoch": 160},
)
def epoch_not_longer_than_episode(context: RuleContext) -> Iterator[Finding]:
    """Without auto_reset, a rollout epoch is no longer than its episode.

    Steps after the time limit are simulated and masked out: they cost time and teach nothing.

    Example: episodes of 80 steps in epochs of 160 waste half of the simulation. A warning.
    """
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
        changes = ({_KEYS["steps_per_epoch"]: needed}, {"env.train.auto_reset": True})
        fix = context.fix("JR108", *changes, otherwise="shorten the epoch")
        yield finding("JR108", (_KEYS["steps_per_epoch"],), message, fix, "warning")


@rule(
    "JR110",
    reads=READS,
    passes={"cluster.component_placement": {"env": "0", "rollout": "1-2", "actor": "0"}},
    fails={
        "cluster.component_placement": {"env": "0", "rollout": "1-3", "actor": "0"},
    },
)
def rollout_rows_divide(context: RuleContext) -> Iterator[Finding]:
    """Every rollout rank answers the same number of envs, in whole groups.

    Where env and rollout run on different ranks, the envs are dealt to the stages of the rollout
    ranks in equal parts. From there trajectories go to the actors in whole groups, so that no group
    may lie on two rollout ranks or in two stages.

    Example: 256 envs in 2 stages are 128 rows; 3 rollout ranks leave 2 over, 4 leave none. These 32
    rows hold whole groups of 8, and none of 64.
    """
    shape, placement = context.breaks("JR110"), context.placement
    if shape is None or placement is None or placement.rollout_ranks == placement.env_ranks:
        return
    rows, ranks, size = shape.num_envs // shape.stages, shape.rollout_ranks, shape.group_size
    numbers: tuple[Number, ...] = ("num_envs", "stages")
    if rows % ranks:
        message = (
            f"envs do not divide over rollout ranks: {shape.num_envs} envs / "
            f"{amount(shape.stages, 'stage')} = {rows}; {rows} % "
            f"{amount(ranks, 'rollout rank')} = {rows % ranks}"
        )
    else:
        numbers = ("group_size", *numbers)
        message = (
            f"a group would straddle rollout ranks or their stages: {shape.num_envs} envs / "
            f"{amount(ranks, 'rollout rank')} / {amount(shape.stages, 'stage')} = "
            f"{amount(rows // ranks, 'env')}; "
            f"{rows // ranks} % group_size {size} = {rows // ranks % size}"
        )
    paths = tuple(_KEYS[number] for number in numbers)
    yield finding("JR110", paths, message, _fix(context, shape, "JR110", numbers))
