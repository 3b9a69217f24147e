"""JR3xx: advantages, losses, filtering."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from joyrlinf_core import registry
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule

_LEVELS = ("token_level", "action_level", "chunk_level")
"""From fine to coarse."""


@rule(
    "JR301",
    reads=("algorithm.adv_type", "algorithm.group_size"),
    passes={"algorithm.adv_type": "grpo", "algorithm.group_size": 2},
    fails={"algorithm.adv_type": "grpo", "algorithm.group_size": 1},
)
def grpo_needs_groups(context: RuleContext) -> Iterator[Finding]:
    """GRPO compares the members of a group."""
    algorithm = context.config.algorithm
    if algorithm.adv_type == "grpo" and algorithm.group_size < 2:
        message = "`adv_type: grpo` compares the members of a group, but group_size is 1"
        paths = ("algorithm.group_size", "algorithm.adv_type")
        yield finding("JR301", paths, message, "algorithm.group_size 8, or adv_type gae")


@rule(
    "JR302",
    reads=("algorithm.adv_type", "algorithm.loss_type", "actor.model.add_value_head"),
    passes={
        "algorithm.adv_type": "gae",
        "algorithm.loss_type": "actor_critic",
        "actor.model.add_value_head": True,
    },
    fails={"algorithm.adv_type": "gae", "algorithm.loss_type": "actor_critic"},
)
def critic_needs_value_head(context: RuleContext) -> Iterator[Finding]:
    """GAE and a critic loss read values."""
    algorithm = context.config.algorithm
    asks = [
        f"`{key}: {value}`"
        for key, value in (("adv_type", algorithm.adv_type), ("loss_type", algorithm.loss_type))
        if value in ("gae", "actor_critic")
    ]
    if asks and not context.config.actor.model.add_value_head:
        verb = "need" if len(asks) > 1 else "needs"
        message = f"{' and '.join(asks)} {verb} values, but add_value_head is false"
        paths = ("actor.model.add_value_head", "algorithm.adv_type", "algorithm.loss_type")
        yield finding("JR302", paths, message, "actor.model.add_value_head true")


@rule(
    "JR303",
    reads=("algorithm.reward_type", "algorithm.logprob_type"),
    passes={"algorithm.reward_type": "chunk_level", "algorithm.logprob_type": "token_level"},
    fails={"algorithm.reward_type": "action_level", "algorithm.logprob_type": "chunk_level"},
)
def logprob_not_coarser(context: RuleContext) -> Iterator[Finding]:
    """A ratio per chunk can't be weighted by an advantage per action."""
    algorithm = context.config.algorithm
    reward, logprob = algorithm.reward_type, algorithm.logprob_type
    if _LEVELS.index(logprob) > _LEVELS.index(reward):
        message = f"`logprob_type: {logprob}` is coarser than `reward_type: {reward}`"
        paths = ("algorithm.logprob_type", "algorithm.reward_type")
        fix = f"algorithm.logprob_type {reward}, or algorithm.reward_type {logprob}"
        yield finding("JR303", paths, message, fix)


@rule(
    "JR304",
    reads=(
        "algorithm.filter_rewards",
        "algorithm.rewards_lower_bound",
        "algorithm.rewards_upper_bound",
    ),
    passes={"algorithm.filter_rewards": True},
    fails={"algorithm.filter_rewards": True, "algorithm.rewards_lower_bound": 0.95},
)
def filter_keeps_something(context: RuleContext) -> Iterator[Finding]:
    """The bounds of the reward filter leave room for a group."""
    algorithm = context.config.algorithm
    low, high = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    if algorithm.filter_rewards and low > high:
        message = f"no group can pass: rewards_lower_bound {low} > rewards_upper_bound {high}"
        paths = ("algorithm.rewards_lower_bound", "algorithm.rewards_upper_bound")
        yield finding("JR304", paths, message, "swap the bounds")


@rule(
    "JR305",
    reads=(
        "algorithm.filter_rewards",
        "algorithm.rewards_lower_bound",
        "algorithm.rewards_upper_bound",
        "env.train.reward_coef",
    ),
    passes={"algorithm.filter_rewards": True, "env.train.reward_coef": 1.0},
    fails={"algorithm.filter_rewards": True, "algorithm.rewards_upper_bound": 4.5},
)
def filter_matches_reward_scale(context: RuleContext) -> Iterator[Finding]:
    """The bounds are in reward units, where a success returns `reward_coef`."""
    algorithm, coef = context.config.algorithm, context.config.env.train.reward_coef
    low, high = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    if algorithm.filter_rewards and (low < 0 or high > coef):
        message = (
            f"the filter bounds [{low}, {high}] reach beyond [0, {coef}]: a success returns "
            f"reward_coef = {coef}, so with a success reward they filter less than they say"
        )
        paths = ("algorithm.rewards_upper_bound", "algorithm.rewards_lower_bound")
        fix = f"bounds inside [0, {coef}]; leave them with a dense reward"
        yield finding("JR305", paths, message, fix, "warning")


@rule(
    "JR306",
    reads=("algorithm.adv_type", "algorithm.loss_type"),
    passes={"algorithm.adv_type": "grpo", "algorithm.loss_type": "actor"},
    fails={"algorithm.adv_type": "grpo", "algorithm.loss_type": "actor_critic"},
)
def critic_needs_returns(context: RuleContext) -> Iterator[Finding]:
    """GRPO makes no returns that a critic could learn."""
    algorithm = context.config.algorithm
    if algorithm.adv_type == "grpo" and algorithm.loss_type == "actor_critic":
        message = "`loss_type: actor_critic` learns returns, and `adv_type: grpo` makes none"
        paths = ("algorithm.loss_type", "algorithm.adv_type")
        yield finding("JR306", paths, message, "algorithm.loss_type actor, or adv_type gae")


@rule(
    "JR307",
    reads=("algorithm.adv_type", "algorithm.loss_type"),
    passes={"algorithm.adv_type": "grpo"},
    fails={"algorithm.adv_type": "grop"},
)
def algorithm_names_are_known(context: RuleContext) -> Iterator[Finding]:
    """Advantage estimator and loss exist."""
    algorithm = context.config.algorithm
    kinds: tuple[tuple[registry.Kind, str, str], ...] = (
        ("advantages", "adv_type", algorithm.adv_type),
        ("losses", "loss_type", algorithm.loss_type),
    )
    for kind, key, name in kinds:
        try:
            registry.load(kind, name)
        except registry.UnknownNameError as error:
            near = difflib.get_close_matches(name, error.known, n=1, cutoff=0.6)
            fix = f"did you mean `{near[0]}`?" if near else ""
            message = f"unknown `{key}: {name}`; known: {', '.join(error.known)}"
            yield finding("JR307", (f"algorithm.{key}",), message, fix)
