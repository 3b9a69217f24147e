"""JR82x, JR83x: keys without effect on evaluation, optimizer, imitation; see `unused.py`."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import evaluation_is_on
from joyrlinf_core.plan.rules.rule import RuleContext, rule
from joyrlinf_core.plan.rules.unused import keys_of, report_unused


@rule(
    "JR821",
    reads=("env.train.num_episodes", "env.eval.num_episodes"),
    passes={"env.train.num_episodes": 50},
    fails={"env.train.num_episodes": 50, "env.eval.num_episodes": 60},
)
def training_episodes(context: RuleContext) -> Iterator[Finding]:
    """`num_episodes` is set in `env.eval`.

    It counts held-out episodes. Training plays as many as its envs and rollout epochs give; a value
    in `env.train` only serves an `env.eval` that has none of its own.

    Example: `num_episodes: 200` under `env.eval`. A warning.
    """
    train, evaluation = context.config.env.train, context.config.env.eval
    if evaluation is not None and train.num_episodes != evaluation.num_episodes:
        why = "it counts evaluation episodes, and env.eval has its own"
        yield from report_unused(context, "JR821", ("env.train.num_episodes",), why)


_EVAL = keys_of("env.eval", "auto_reset max_steps_per_rollout_epoch")


@rule(
    "JR822",
    reads=_EVAL,
    passes={"env.eval.total_num_envs": 20},
    fails={"env.eval.auto_reset": True},
)
def evaluation_episodes(context: RuleContext) -> Iterator[Finding]:
    """`auto_reset` and `max_steps_per_rollout_epoch` are set in `env.train`.

    Evaluation plays each episode once, to its end; a free env takes the next episode by itself.

    Example: `env.eval.num_episodes: 200` is all that it needs. A warning.
    """
    why = "evaluation plays each episode once, to its end"
    yield from report_unused(context, "JR822", _EVAL, why)


@rule(
    "JR823",
    reads=(
        "env.eval.num_episodes",
        "runner.val_check_interval",
        "runner.eval_at_start",
        "runner.eval_at_end",
        "env.eval.rollout_epoch",
    ),
    passes={"env.eval.rollout_epoch": 2, "runner.eval_at_end": True},
    fails={
        "env.eval.rollout_epoch": 2,
        "env.eval.num_episodes": 60,
        "runner.eval_at_end": True,
    },
)
def evaluation_epochs(context: RuleContext) -> Iterator[Finding]:
    """`env.eval.rollout_epoch` is set where `num_episodes` is not.

    Without `num_episodes`, evaluation plays `total_num_envs` x `rollout_epoch` episodes.

    Example: `num_episodes: 200` alone. A warning.
    """
    evaluation = context.config.env.eval
    if evaluation is None or not evaluation_is_on(context.config):
        return
    if evaluation.num_episodes is not None:
        why = f"num_episodes {evaluation.num_episodes} says how many episodes are played"
        yield from report_unused(context, "JR823", ("env.eval.rollout_epoch",), why)


_SCRIPTED = keys_of("sft", "num_demos expert_noise steps_after_success max_episode_steps")


@rule(
    "JR831",
    reads=("sft.dataset", *_SCRIPTED),
    passes={"sft.num_demos": 20},
    fails={"sft.num_demos": 20, "sft.dataset": "demos"},
)
def scripted_demonstrations(context: RuleContext) -> Iterator[Finding]:
    """Keys of scripted demonstrations are set without `sft.dataset`.

    `num_demos`, `expert_noise`, `steps_after_success` and `max_episode_steps` say how experts play;
    a data set on disk is taken as it is.

    Example: `sft: {num_demos: 100}`, or `sft: {dataset: demos/push}`. A warning.
    """
    sft = context.config.sft
    if sft is not None and sft.dataset is not None:
        why = "scripted experts use it, here demonstrations come from sft.dataset"
        yield from report_unused(context, "JR831", _SCRIPTED, why)


@rule(
    "JR832",
    reads=("sft.eval_episodes", "sft.eval_interval"),
    passes={"sft.eval_interval": 100, "sft.eval_episodes": 50},
    fails={"sft.eval_interval": 100},
)
def imitation_evaluation(context: RuleContext) -> Iterator[Finding]:
    """`sft.eval_interval` is set with `sft.eval_episodes`.

    Without episodes behaviour cloning does not evaluate.

    Example: `eval_interval: 200` with `eval_episodes: 50`. A warning.
    """
    sft = context.config.sft
    if sft is not None and sft.eval_episodes == 0 and sft.eval_interval > 0:
        why = "it evaluates sft.eval_episodes, which is 0"
        yield from report_unused(context, "JR832", ("sft.eval_interval",), why)


_OPTIM = ("actor.optim.lr_schedule", "actor.optim.min_lr_ratio")


@rule(
    "JR833",
    reads=_OPTIM,
    passes={"actor.optim.lr_schedule": "cosine", "actor.optim.min_lr_ratio": 0.2},
    fails={"actor.optim.min_lr_ratio": 0.2},
)
def schedule_keys(context: RuleContext) -> Iterator[Finding]:
    """`actor.optim.min_lr_ratio` is set with `lr_schedule: cosine`.

    It is where the cosine ends. A constant rate stays.

    Example: `lr_schedule: cosine` with `min_lr_ratio: 0.1`. A warning.
    """
    if context.config.actor.optim.lr_schedule == "constant":
        why = "`lr_schedule: cosine` uses it, this is constant"
        yield from report_unused(context, "JR833", ("actor.optim.min_lr_ratio",), why)


@rule(
    "JR834",
    reads=("actor.fsdp.strategy", "actor.fsdp.shard_above_params"),
    passes={"actor.fsdp.shard_above_params": 1000},
    fails={"actor.fsdp.shard_above_params": 1000, "actor.fsdp.strategy": "ddp"},
)
def sharding_keys(context: RuleContext) -> Iterator[Finding]:
    """`actor.fsdp.shard_above_params` is set with `strategy: auto`.

    It is the size from which `auto` shards; `ddp` never does, `fsdp2` always.

    Example: `strategy: auto` with `shard_above_params: 100000000`. A warning.
    """
    strategy = context.config.actor.fsdp.strategy
    if strategy != "auto":
        why = f"`strategy: auto` uses it, this is {strategy}"
        yield from report_unused(context, "JR834", ("actor.fsdp.shard_above_params",), why)


@rule(
    "JR835",
    reads=("profiler.enable", "profiler.all_ranks", "profiler.ranks"),
    passes={"profiler.enable": True, "profiler.ranks": [0]},
    fails={"profiler.enable": True, "profiler.all_ranks": True, "profiler.ranks": [0]},
)
def profiled_ranks(context: RuleContext) -> Iterator[Finding]:
    """`profiler.ranks` is set without `all_ranks`.

    Example: `ranks: [0, 4]`, or `all_ranks: true`. A warning.
    """
    profiler = context.config.profiler
    if profiler.enable and profiler.all_ranks:
        yield from report_unused(context, "JR835", ("profiler.ranks",), "all_ranks is true")
