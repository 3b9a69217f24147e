"""JR3xx: advantages, losses, filtering."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from joyrlinf_core import registry
from joyrlinf_core.config.schema import AlgorithmConfig
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.changes import Change
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule

_PPO = {
    "algorithm.adv_type": "gae",
    "algorithm.loss_type": "actor_critic",
    "actor.model.add_value_head": True,
}
_LEVELS = ("token_level", "action_level", "chunk_level")
"""From fine to coarse."""


@rule(
    "JR301",
    reads=("algorithm.adv_type", "algorithm.group_size"),
    passes={"algorithm.adv_type": "grpo", "algorithm.group_size": 2},
    fails={"algorithm.adv_type": "grpo", "algorithm.group_size": 1},
)
def grpo_needs_groups(context: RuleContext) -> Iterator[Finding]:
    """GRPO has at least two envs in a group.

    Its advantage is (score - mean of the group) / standard deviation: a group of one gives zero,
    and nothing is learned.

    Example: `adv_type: grpo` with `group_size: 8`; `adv_type: gae` with a value head and
    `group_size: 1`.
    """
    algorithm = context.config.algorithm
    if algorithm.adv_type == "grpo" and algorithm.group_size < 2:
        message = "`adv_type: grpo` compares the members of a group, but group_size is 1"
        paths = ("algorithm.group_size", "algorithm.adv_type")
        changes = ({"algorithm.group_size": size} for size in (8, 4, 2))
        best = next((change for change in changes if context.mends("JR301", change)), None)
        fix = context.fix("JR301", *([best] if best else []), otherwise="group_size 2 or more")
        yield finding("JR301", paths, message, fix)


@rule(
    "JR302",
    reads=("algorithm.adv_type", "algorithm.loss_type", "actor.model.add_value_head"),
    passes=_PPO,
    fails={"algorithm.adv_type": "gae", "algorithm.loss_type": "actor_critic"},
)
def critic_needs_value_head(context: RuleContext) -> Iterator[Finding]:
    """GAE and a critic loss have a value head.

    GAE bootstraps from the value of the next state, and `loss_type: actor_critic` trains it.

    Example: `adv_type: gae` with `actor.model.add_value_head: true`.
    """
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
        grpo = {"algorithm.adv_type": "grpo", "algorithm.loss_type": "actor"}
        fix = context.fix(
            "JR302",
            {"actor.model.add_value_head": True},
            {key: value for key, value in grpo.items() if _value_at(algorithm, key) != value},
            otherwise="a policy with a value head, or adv_type grpo with loss_type actor",
        )
        yield finding("JR302", paths, message, fix)


@rule(
    "JR303",
    reads=("algorithm.reward_type", "algorithm.logprob_type"),
    passes={"algorithm.reward_type": "chunk_level", "algorithm.logprob_type": "token_level"},
    fails={"algorithm.reward_type": "action_level", "algorithm.logprob_type": "chunk_level"},
)
def logprob_not_coarser(context: RuleContext) -> Iterator[Finding]:
    """`logprob_type` is not coarser than `reward_type`.

    A ratio of one chunk can't be weighted by an advantage of one action. From fine to coarse:
    token_level, action_level, chunk_level.

    Example: `reward_type: action_level` goes with token_level and action_level log-probs;
    `reward_type: chunk_level` with all three.
    """
    algorithm = context.config.algorithm
    reward, logprob = algorithm.reward_type, algorithm.logprob_type
    if _LEVELS.index(logprob) > _LEVELS.index(reward):
        message = f"`logprob_type: {logprob}` is coarser than `reward_type: {reward}`"
        paths = ("algorithm.logprob_type", "algorithm.reward_type")
        changes = ({paths[0]: reward}, {paths[1]: logprob})
        fix = context.fix("JR303", *changes, otherwise="make logprob_type finer")
        yield finding("JR303", paths, message, fix)


_FILTER = tuple(
    f"algorithm.{name}" for name in ("filter_rewards", "rewards_lower_bound", "rewards_upper_bound")
)


@rule(
    "JR304",
    reads=(*_FILTER, "env.train"),
    passes={"algorithm.filter_rewards": True},
    fails={"algorithm.filter_rewards": True, "algorithm.rewards_lower_bound": 0.95},
)
def filter_keeps_something(context: RuleContext) -> Iterator[Finding]:
    """Some group can pass the reward filter.

    With `filter_rewards` a group is kept where its mean return lies in [`rewards_lower_bound`,
    `rewards_upper_bound`]. Bounds that cross, or begin above the largest return of an episode, drop
    every group.

    Example: [0.1, 0.9] keeps groups of 8 with 1 to 7 successes that return 1 each.
    """
    algorithm = context.config.algorithm
    if not algorithm.filter_rewards:
        return
    most = context.config.env.train.largest_return
    low, high = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    lower, upper = "algorithm.rewards_lower_bound", "algorithm.rewards_upper_bound"
    swapped = {lower: high, upper: low}
    inside = {lower: 0.1 * (most or 1), upper: 0.9 * (most or 1)}
    changes = [swapped] if swapped == inside else [swapped, inside]
    fix = context.fix("JR304", *changes, otherwise="bounds that leave room for a group")
    if low > high:
        message = f"no group can pass: rewards_lower_bound {low} > rewards_upper_bound {high}"
        yield finding("JR304", (lower, upper), message, fix)
    elif most is not None and low > most:
        message = f"no group can pass: rewards_lower_bound {low} > largest return {most:g}"
        yield finding("JR304", (lower, "env.train.reward_coef"), message, fix)


@rule(
    "JR305",
    reads=(*_FILTER, "env.train"),
    passes={"algorithm.filter_rewards": True, "env.train.reward_coef": 1.0},
    fails={"algorithm.filter_rewards": True, "algorithm.rewards_upper_bound": 4.5},
)
def filter_matches_reward_scale(context: RuleContext) -> Iterator[Finding]:
    """The bounds of the reward filter lie within the returns that an episode can have.

    They are in reward units: where a success returns `reward_coef`, returns lie in [0,
    `reward_coef`]. A bound outside filters nothing on its side.

    Example: with `reward_coef: 1` bounds of 0.5 and 4.5 drop no solved group; 0.1 and 0.9 do. A
    warning.
    """
    algorithm = context.config.algorithm
    if not algorithm.filter_rewards:
        return
    most = context.config.env.train.largest_return
    low, high = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    if most is None or not low <= min(high, most):
        return
    if low < 0 or high > most:
        message = (
            f"the filter bounds [{low}, {high}] reach beyond [0, {most:g}], the returns that an "
            "episode can have: they filter less than they say"
        )
        paths = ("algorithm.rewards_upper_bound", "algorithm.rewards_lower_bound")
        inside = {paths[1]: max(low, 0.1 * most), paths[0]: min(high, 0.9 * most)}
        change = {key: round(value, 6) for key, value in inside.items()}
        fix = context.fix("JR305", change, otherwise=f"bounds inside [0, {most:g}]")
        yield finding("JR305", paths, message, fix, "warning")


@rule(
    "JR306",
    reads=("algorithm.adv_type", "algorithm.loss_type"),
    passes={"algorithm.adv_type": "grpo", "algorithm.loss_type": "actor"},
    fails={"algorithm.adv_type": "grpo", "algorithm.loss_type": "actor_critic"},
)
def critic_needs_returns(context: RuleContext) -> Iterator[Finding]:
    """A critic loss has returns to learn.

    GAE makes returns, the targets of the value head; GRPO makes none.

    Example: `loss_type: actor_critic` with `adv_type: gae`, `loss_type: actor` with `adv_type:
    grpo`.
    """
    algorithm = context.config.algorithm
    if algorithm.adv_type == "grpo" and algorithm.loss_type == "actor_critic":
        message = "`loss_type: actor_critic` learns returns, and `adv_type: grpo` makes none"
        paths = ("algorithm.loss_type", "algorithm.adv_type")
        changes = ({paths[0]: "actor"}, {paths[1]: "gae"})
        fix = context.fix("JR306", *changes, otherwise="loss_type actor, or adv_type gae")
        yield finding("JR306", paths, message, fix)


@rule(
    "JR307",
    reads=("algorithm.adv_type", "algorithm.loss_type"),
    passes={"algorithm.adv_type": "grpo"},
    fails={"algorithm.adv_type": "grop"},
)
def algorithm_names_are_known(context: RuleContext) -> Iterator[Finding]:
    """Advantage estimator and loss exist.

    A name is a file of `algorithms/advantages/` or `algorithms/losses/`, an entry point of an
    installed package, or `pkg.module:Attr`.

    Example: `adv_type: grpo` with `loss_type: actor`.
    """
    algorithm = context.config.algorithm
    kinds: tuple[tuple[registry.Kind, str, str], ...] = (
        ("advantages", "adv_type", algorithm.adv_type),
        ("losses", "loss_type", algorithm.loss_type),
    )
    for kind, key, name in kinds:
        try:
            registry.check(kind, name)
        except registry.UnknownNameError as error:
            near = difflib.get_close_matches(name, error.known, n=1, cutoff=0.6)
            path = f"algorithm.{key}"
            fix = context.fix("JR307", *({path: one} for one in near), otherwise="choose one")
            message = f"unknown `{key}: {name}`; known: {', '.join(error.known)}"
            yield finding("JR307", (path,), message, fix)


@rule(
    "JR308",
    reads=("algorithm.reward_type", "algorithm.logprob_type", "actor.model"),
    passes={"algorithm.reward_type": "chunk_level", "algorithm.logprob_type": "chunk_level"},
    fails={"algorithm.reward_type": "action_level", "algorithm.logprob_type": "token_level"},
)
def levels_are_usual(context: RuleContext) -> Iterator[Finding]:
    """`reward_type` and `logprob_type` are those that the policy family is trained with.

    Flow policies (OpenPI, GR00T) score a chunk as a whole: chunk_level and chunk_level. OpenVLA-OFT
    scores tokens: action_level and token_level. Other legal pairs (see JR303) work, but published
    settings do not carry over: a chunk of 5 x 7 numbers has a far larger log ratio than one token.

    Example: `model_type: openvla_oft` with `reward_type: action_level` and `logprob_type:
    token_level`. A warning.
    """
    algorithm, model = context.config.algorithm, context.config.actor.model
    pair = (algorithm.reward_type, algorithm.logprob_type)
    legal = _LEVELS.index(pair[1]) <= _LEVELS.index(pair[0])
    if legal and pair != model.expected_levels:
        reward, logprob = model.expected_levels
        message = (
            f"`{model.model_type}` is trained with reward_type {reward} and logprob_type {logprob};"
            f" this is {pair[0]} and {pair[1]}"
        )
        paths = ("algorithm.reward_type", "algorithm.logprob_type")
        fix = context.fix("JR308", {paths[0]: reward, paths[1]: logprob})
        yield finding("JR308", paths, message, fix or f"{reward} and {logprob}", "warning")


@rule(
    "JR309",
    reads=("algorithm.entropy_bonus", "actor.model"),
    passes={"algorithm.entropy_bonus": 0.0},
    fails={"algorithm.entropy_bonus": 0.005},
)
def entropy_can_be_raised(context: RuleContext) -> Iterator[Finding]:
    """An entropy bonus needs a policy whose actions have an entropy that it can change.

    Token policies have one, and flow policies with `noise_method: flow_noise`, whose noise is
    learned. With a fixed noise level the entropy is a constant.

    Example: `entropy_bonus: 0.005` with `noise_method: flow_noise`; 0 with `flow_sde`.
    """
    bonus, model = context.config.algorithm.entropy_bonus, context.config.actor.model
    if bonus > 0 and not model.has_entropy:
        message = f"entropy_bonus {bonus} has nothing to raise: this policy has no entropy"
        changes: list[Change] = [{"algorithm.entropy_bonus": 0}]
        if hasattr(model, "noise_method"):
            changes.append({"actor.model.noise_method": "flow_noise"})
        paths = ("algorithm.entropy_bonus", "actor.model.noise_method")
        yield finding("JR309", paths, message, context.fix("JR309", *changes))


@rule(
    "JR310",
    reads=("algorithm.adv_type", "algorithm.group_size", "algorithm.filter_rewards"),
    passes={**_PPO, "algorithm.group_size": 1},
    fails={**_PPO, "algorithm.group_size": 8},
)
def gae_plays_different_states(context: RuleContext) -> Iterator[Finding]:
    """GAE needs no groups.

    It compares no envs with each other, so that `group_size` envs that start from one state only
    make the data less varied. The reward filter is the one reason for groups.

    Example: `adv_type: gae` with `group_size: 1`. A warning.
    """
    algorithm = context.config.algorithm
    size = algorithm.group_size
    if algorithm.adv_type == "gae" and size > 1 and not algorithm.filter_rewards:
        message = f"`adv_type: gae` compares no envs, yet {size} envs start from each state"
        fix = context.fix("JR310", {"algorithm.group_size": 1}, otherwise="a smaller group_size")
        yield finding(
            "JR310", ("algorithm.group_size", "algorithm.adv_type"), message, fix, "warning"
        )


@rule(
    "JR311",
    reads=("algorithm.adv_type", "algorithm.filter_rewards", "algorithm.group_size"),
    passes={"algorithm.filter_rewards": True},
    fails={**_PPO, "algorithm.filter_rewards": True, "algorithm.group_size": 1},
)
def filter_sees_groups(context: RuleContext) -> Iterator[Finding]:
    """The reward filter has groups of two or more.

    It looks at the mean return of a group. The mean of one episode is that episode's own return, so
    that bounds such as [0.1, 0.9] drop every failure and every success.

    Example: `filter_rewards: true` with `group_size: 8`. A warning.
    """
    algorithm = context.config.algorithm
    if algorithm.filter_rewards and algorithm.group_size == 1 and algorithm.adv_type != "grpo":
        message = "filter_rewards looks at groups, but group_size is 1: it drops single episodes"
        changes = ({"algorithm.filter_rewards": False}, {"algorithm.group_size": 8})
        paths = ("algorithm.filter_rewards", "algorithm.group_size")
        yield finding("JR311", paths, message, context.fix("JR311", *changes), "warning")


def _value_at(algorithm: AlgorithmConfig, path: str) -> object:
    return getattr(algorithm, path.rpartition(".")[2])
