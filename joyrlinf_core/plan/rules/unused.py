"""JR8xx: keys that have no effect with the chosen algorithm, mode, policy or simulator.

Only keys that the user wrote in his own file or with `--set` are reported: a preset's values may
wait for a mode that the file switches off.
"""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_PPO = {
    "algorithm.adv_type": "gae",
    "algorithm.loss_type": "actor_critic",
    "actor.model.add_value_head": True,
}
_OPENPI = {"model_type": "openpi", "variant": "tiny-pi0", "num_action_chunks": 10}


def keys_of(section: str, names: str) -> tuple[str, ...]:
    """Return dotted keys of a section; names are separated by spaces."""
    return tuple(f"{section}.{name}" for name in names.split())


def report_unused(
    context: RuleContext, code: str, keys: tuple[str, ...], why: str
) -> Iterator[Finding]:
    """Report those of the keys that the user wrote; `why` says who uses them."""
    for key in keys:
        if key in context.origins.written:
            message = f"`{key}` has no effect: {why}"
            yield finding(code, (key,), message, "delete it, or make use of it", "warning")


_GAE = keys_of("algorithm", "gamma gae_lambda normalize_advantages")


@rule(
    "JR801",
    reads=("algorithm.adv_type", *_GAE),
    passes={**_PPO, "algorithm.gamma": 0.9},
    fails={"algorithm.adv_type": "grpo", "algorithm.gamma": 0.9},
)
def gae_keys(context: RuleContext) -> Iterator[Finding]:
    """`gamma`, `gae_lambda` and `normalize_advantages` are set with GAE only.

    GRPO neither discounts nor bootstraps; it normalises within each group.

    Example: `gamma: 0.99` with `adv_type: gae`. A warning.
    """
    if context.config.algorithm.adv_type == "grpo":
        yield from report_unused(context, "JR801", _GAE, "`adv_type: gae` uses it, this is grpo")


_CRITIC = keys_of("algorithm", "value_clip huber_delta value_loss_coef")


@rule(
    "JR802",
    reads=("algorithm.loss_type", *_CRITIC),
    passes={**_PPO, "algorithm.value_clip": 0.5},
    fails={"algorithm.loss_type": "actor", "algorithm.value_clip": 0.5},
)
def critic_keys(context: RuleContext) -> Iterator[Finding]:
    """`value_clip`, `huber_delta` and `value_loss_coef` are set with a critic loss only.

    They shape the value loss, which `loss_type: actor` does not have.

    Example: `value_clip: 0.2` with `loss_type: actor_critic`. A warning.
    """
    if context.config.algorithm.loss_type == "actor":
        why = "`loss_type: actor_critic` uses it, this is actor"
        yield from report_unused(context, "JR802", _CRITIC, why)


@rule(
    "JR803",
    reads=("actor.model.add_value_head", "actor.optim.value_lr"),
    passes={**_PPO, "actor.optim.value_lr": 1e-4},
    fails={"actor.optim.value_lr": 1e-4},
)
def value_rate(context: RuleContext) -> Iterator[Finding]:
    """`actor.optim.value_lr` is set with a value head only.

    It is the learning rate of the value head.

    Example: `value_lr: 1e-4` with `actor.model.add_value_head: true`. A warning.
    """
    if not context.config.actor.model.add_value_head:
        why = "a value head uses it (actor.model.add_value_head)"
        yield from report_unused(context, "JR803", ("actor.optim.value_lr",), why)


@rule(
    "JR804",
    reads=("actor.model.add_value_head", "actor.model.detach_critic_input"),
    passes={"actor.model": {**_OPENPI, "add_value_head": True, "detach_critic_input": True}},
    fails={"actor.model": {**_OPENPI}, "actor.model.detach_critic_input": True},
)
def value_head_input(context: RuleContext) -> Iterator[Finding]:
    """`detach_critic_input` is set with a value head only.

    It keeps the value loss from reaching the rest of the policy.

    Example: `detach_critic_input: true` with `add_value_head: true`. A warning.
    """
    if not context.config.actor.model.add_value_head:
        why = "a value head uses it (actor.model.add_value_head)"
        yield from report_unused(context, "JR804", ("actor.model.detach_critic_input",), why)


_SPLIT = {"cluster.component_placement": {"env,rollout": "0", "actor": "1"}}

_ASYNC_KEYS = (
    "algorithm.max_staleness",
    "algorithm.proximal",
    "algorithm.behaviour_weight_max",
)


@rule(
    "JR805",
    reads=("algorithm.pipeline_mode", *_ASYNC_KEYS),
    passes={**_SPLIT, "algorithm.pipeline_mode": "async", "algorithm.max_staleness": 1},
    fails={"algorithm.max_staleness": 1},
)
def async_keys(context: RuleContext) -> Iterator[Finding]:
    """`max_staleness`, `proximal` and `behaviour_weight_max` are set with async only.

    In `sync` the policy that acts is always the one that learns.

    Example: `max_staleness: 1` with `pipeline_mode: async`. A warning.
    """
    if context.config.algorithm.pipeline_mode == "sync":
        why = "`pipeline_mode: async` uses it, this is sync"
        yield from report_unused(context, "JR805", _ASYNC_KEYS, why)


@rule(
    "JR806",
    reads=(*CLUSTER, "algorithm.comm_mode"),
    passes={**_SPLIT, "algorithm.comm_mode": "v2"},
    fails={"algorithm.comm_mode": "v2"},
)
def transport_keys(context: RuleContext) -> Iterator[Finding]:
    """`comm_mode` is set where trajectories travel between ranks.

    With env, rollout and actor on the same ranks they are handed over within the process.

    Example: `comm_mode: v2` with `env,rollout: 0-3` and `actor: 4-7`. A warning.
    """
    placement = context.placement
    if placement is not None and placement.mode == "colocated":
        why = "it is about trajectories between ranks, here all roles are on the same ranks"
        yield from report_unused(context, "JR806", ("algorithm.comm_mode",), why)


_BOUNDS = keys_of("algorithm", "rewards_lower_bound rewards_upper_bound")


@rule(
    "JR807",
    reads=("algorithm.filter_rewards", *_BOUNDS),
    passes={"algorithm.filter_rewards": True, "algorithm.rewards_lower_bound": 0.2},
    fails={"algorithm.filter_rewards": False, "algorithm.rewards_lower_bound": 0.2},
)
def filter_keys(context: RuleContext) -> Iterator[Finding]:
    """`rewards_lower_bound` and `rewards_upper_bound` are set with the reward filter only.

    Example: both bounds with `filter_rewards: true`. A warning.
    """
    if not context.config.algorithm.filter_rewards:
        yield from report_unused(context, "JR807", _BOUNDS, "`filter_rewards: true` uses it")


@rule(
    "JR808",
    reads=keys_of("algorithm", "adv_type adv_args loss_type loss_args"),
    passes={"algorithm.adv_args": {}},
    fails={"algorithm.adv_args": {"a": 1}},
)
def extra_arguments(context: RuleContext) -> Iterator[Finding]:
    """`adv_args` and `loss_args` are set for estimators and losses of your own only.

    Built-in ones read the keys of `algorithm` and take no others.

    Example: `adv_args: {beta: 0.1}` with `adv_type: my_package:my_advantage`. A warning.
    """
    algorithm = context.config.algorithm
    built_in = ("grpo", "gae", "actor", "actor_critic")
    for name, args, key in (
        (algorithm.adv_type, algorithm.adv_args, "algorithm.adv_args"),
        (algorithm.loss_type, algorithm.loss_args, "algorithm.loss_args"),
    ):
        if name in built_in and args:
            yield from report_unused(context, "JR808", (key,), f"`{name}` takes no extra arguments")


@rule(
    "JR809",
    reads=(*CLUSTER, "algorithm.weight_sync"),
    passes={**_SPLIT, "algorithm.weight_sync": "gloo"},
    fails={"algorithm.weight_sync": "gloo"},
)
def weight_keys(context: RuleContext) -> Iterator[Finding]:
    """`weight_sync` is set where weights travel to rollout ranks.

    With rollout and actor on the same ranks both use one copy.

    Example: `weight_sync: gloo` with `env,rollout: 0-3` and `actor: 4-7`. A warning.
    """
    placement = context.placement
    if placement is not None and placement.rollout_ranks == placement.actor_ranks:
        why = "it is about weights between ranks, here rollout and actor are on the same ranks"
        yield from report_unused(context, "JR809", ("algorithm.weight_sync",), why)


_NOISE = ("actor.model.noise_method",)


@rule(
    "JR811",
    reads=(*_NOISE, "actor.model.noise_level"),
    passes={"actor.model": _OPENPI, "actor.model.noise_level": 0.7},
    fails={
        "actor.model": {**_OPENPI, "noise_method": "flow_noise", "joint_logprob": True},
        "actor.model.noise_level": 0.7,
    },
)
def fixed_noise(context: RuleContext) -> Iterator[Finding]:
    """`noise_level` is set with `flow_sde` and `flow_cps` only.

    With `flow_noise` the policy learns its noise, within `noise_logvar_range`.

    Example: `noise_level: 0.5` with `noise_method: flow_sde`. A warning.
    """
    if getattr(context.config.actor.model, "noise_method", "") == "flow_noise":
        why = "the noise of `flow_noise` is learned, within noise_logvar_range"
        yield from report_unused(context, "JR811", ("actor.model.noise_level",), why)


@rule(
    "JR812",
    reads=(*_NOISE, "actor.model.noise_logvar_range"),
    passes={
        "actor.model": {**_OPENPI, "noise_method": "flow_noise", "joint_logprob": True},
        "actor.model.noise_logvar_range": [0.1, 0.2],
    },
    fails={"actor.model": _OPENPI, "actor.model.noise_logvar_range": [0.1, 0.2]},
)
def learned_noise(context: RuleContext) -> Iterator[Finding]:
    """`noise_logvar_range` is set with `flow_noise` only.

    The other methods add noise of a fixed strength, `noise_level`.

    Example: `noise_logvar_range: [0.08, 0.16]` with `noise_method: flow_noise`. A warning.
    """
    method = getattr(context.config.actor.model, "noise_method", "")
    if method != "flow_noise":
        why = f"`noise_method: flow_noise` uses it, this is {method}"
        yield from report_unused(context, "JR812", ("actor.model.noise_logvar_range",), why)


@rule(
    "JR813",
    reads=("actor.model.joint_logprob", "actor.model.ignore_last"),
    passes={"actor.model": _OPENPI, "actor.model.ignore_last": True},
    fails={
        "actor.model": {**_OPENPI, "noise_method": "flow_noise", "joint_logprob": True},
        "actor.model.ignore_last": True,
    },
)
def chosen_step(context: RuleContext) -> Iterator[Finding]:
    """`ignore_last` is set where one denoise step is noisy.

    It keeps the last step from being that one. With `joint_logprob` every step is noisy.

    Example: `ignore_last: true` with `joint_logprob: false`. A warning.
    """
    if getattr(context.config.actor.model, "joint_logprob", False):
        why = "with `joint_logprob: true` every denoise step is noisy"
        yield from report_unused(context, "JR813", ("actor.model.ignore_last",), why)


@rule(
    "JR814",
    reads=("actor.model.joint_logprob", "actor.model.logprob_reduction"),
    passes={
        "actor.model": {**_OPENPI, "noise_method": "flow_noise", "joint_logprob": True},
        "actor.model.logprob_reduction": "sum",
    },
    fails={"actor.model": _OPENPI, "actor.model.logprob_reduction": "sum"},
)
def joint_scores(context: RuleContext) -> Iterator[Finding]:
    """`logprob_reduction` is set with `joint_logprob` only.

    It joins the log-probs of all denoise steps; otherwise there is one.

    Example: `logprob_reduction: sum` with `joint_logprob: true`. A warning.
    """
    if not getattr(context.config.actor.model, "joint_logprob", False):
        why = "`joint_logprob: true` uses it"
        yield from report_unused(context, "JR814", ("actor.model.logprob_reduction",), why)


@rule(
    "JR815",
    reads=("actor.model.lora_rank", "actor.model.lora_alpha"),
    passes={"actor.model": {"model_type": "openvla_oft"}, "actor.model.lora_alpha": 16},
    fails={
        "actor.model": {"model_type": "openvla_oft", "lora_rank": 0},
        "actor.model.lora_alpha": 16,
    },
)
def adapter_scale(context: RuleContext) -> Iterator[Finding]:
    """`lora_alpha` is set with a `lora_rank` above 0.

    It scales the adapter; with rank 0 there is none, and all weights are trained.

    Example: `lora_rank: 32` with `lora_alpha: 32`. A warning.
    """
    if getattr(context.config.actor.model, "lora_rank", 1) == 0:
        why = "a LoRA uses it, and lora_rank is 0"
        yield from report_unused(context, "JR815", ("actor.model.lora_alpha",), why)


@rule(
    "JR816",
    reads=("actor.model.add_value_head", "actor.model.value_type"),
    passes={
        "actor.model": {"model_type": "openvla_oft", "add_value_head": True},
        "actor.model.value_type": "action_level",
    },
    fails={
        "actor.model": {"model_type": "openvla_oft"},
        "actor.model.value_type": "action_level",
    },
)
def value_span(context: RuleContext) -> Iterator[Finding]:
    """`value_type` is set with a value head only.

    It says what one value covers, a chunk or an action.

    Example: `value_type: action_level` with `add_value_head: true`. A warning.
    """
    if not context.config.actor.model.add_value_head:
        why = "a value head uses it (actor.model.add_value_head)"
        yield from report_unused(context, "JR816", ("actor.model.value_type",), why)


@rule(
    "JR817",
    reads=("actor.model.add_value_head", "actor.model.use_vlm_value"),
    passes={
        "actor.model": {"model_type": "gr00t", "add_value_head": True},
        "actor.model.use_vlm_value": True,
    },
    fails={"actor.model": {"model_type": "gr00t"}, "actor.model.use_vlm_value": True},
)
def value_features(context: RuleContext) -> Iterator[Finding]:
    """`use_vlm_value` is set with a value head only.

    It chooses what the value head reads.

    Example: `use_vlm_value: true` with `add_value_head: true`. A warning.
    """
    if not context.config.actor.model.add_value_head:
        why = "a value head uses it (actor.model.add_value_head)"
        yield from report_unused(context, "JR817", ("actor.model.use_vlm_value",), why)
