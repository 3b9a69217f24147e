"""JR4xx: the policy and its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.changes import Change
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule

_PATH = "actor.model.model_path"
_LORA = "actor.model.lora_path"
_SEARCHED = 100
"""Chunks that are looked at."""
_OPENPI = {"actor.model": {"model_type": "openpi", "variant": "tiny-pi0", "num_action_chunks": 10}}


@rule(
    "JR401",
    reads=(_PATH, "sft"),
    passes={"sft": {"steps": 10}},
    fails={"sft": None},
)
def policy_has_a_source(context: RuleContext) -> Iterator[Finding]:
    """A run starts from a policy directory or from a recipe that makes one.

    Reinforcement learning needs a policy that succeeds now and then. `actor.model.model_path` names
    its directory; without it, behaviour cloning by the `sft` section makes one first and keeps it.

    Example: `model_path: checkpoints/pi05_libero`, or `sft: {num_demos: 100, steps: 800}`.
    """
    if context.job == "eval" or context.config.sft is not None:
        return  # `joyrl eval` is told on the command line what to evaluate
    if context.job == "sft":
        message = "behaviour cloning needs an `sft` section"
        yield finding("JR401", ("sft",), message, "add `sft: {num_demos: 100, steps: 800}`")
    elif context.config.actor.model.model_path is None:
        message = "no policy to start from: there is neither `model_path` nor an `sft` section"
        fix = f"set {_PATH} to a policy directory, or add an `sft` section"
        yield finding("JR401", (_PATH, "sft"), message, fix)


@rule(
    "JR402",
    reads=("actor.model", "sft"),
    passes={_PATH: None},
    fails={_PATH: "/no/such/policy"},
)
def policy_directory_is_complete(context: RuleContext) -> Iterator[Finding]:
    """Policy and adapter directories are there and hold their files.

    An absent one is a warning under `joyrl validate`, because the config may be meant for another
    machine, and an error with `--check-paths` and where a run is started.

    Example: `model_path: checkpoints/pi05_libero` with weights, `norm_stats.json` and tokenizer.
    """
    if context.probing or context.job in ("sft", "eval"):
        return
    model = context.config.actor.model
    for path, value in ((_PATH, model.model_path), (_LORA, model.lora_path)):
        if value is None:
            continue
        directory = Path(value).expanduser()
        if not directory.is_dir():
            place = "" if directory.is_absolute() else f" (looked up from {Path.cwd()})"
            message = f"`{path}`: no directory {directory}{place}"
            optional = context.config.sft is not None or path == _LORA
            fix = f"download the checkpoint and set {path} to its directory"
            fix += ", or delete the key" if optional else ""
            yield finding("JR402", (path,), message, fix, context.path_severity)
        elif path == _PATH:
            lacking = model.check_directory(directory)
            if lacking:
                message = f"`{path}: {value}` is incomplete: {'; '.join(lacking)}"
                yield finding("JR402", (path,), message, "", "error")


@rule(
    "JR403",
    reads=("actor.model",),
    passes={},
    fails={"actor.model": {"model_type": "tests.doubles.toy:PlannedModel"}},
)
def policy_can_run(context: RuleContext) -> Iterator[Finding]:
    """The policy family can run in this version.

    Some families are there as configs only, so that their runs can be validated, planned and
    estimated. Starting one is an error until a later version runs it.

    Example: `joyrl presets list` marks what runs today.
    """
    model = context.config.actor.model
    if model.missing_runtime:
        path = "actor.model.model_type"
        fix = "choose a policy that runs; `joyrl presets list` marks them"
        yield finding("JR403", (path,), model.missing_runtime, fix, context.runtime_severity)


@rule(
    "JR404",
    reads=("actor.model",),
    passes={_LORA: None},
    fails={_LORA: "adapter"},
)
def adapter_can_be_loaded(context: RuleContext) -> Iterator[Finding]:
    """`lora_path` is set only for a policy family that takes adapters.

    Elsewhere the adapter would have to be merged into the weights first.

    Example: OpenPI policies take none: merge it with the tool that trained it, and set
    `model_path`.
    """
    model = context.config.actor.model
    if model.lora_path is not None and not model.takes_adapter:
        message = f"`{_LORA}: {model.lora_path}`: `{model.model_type}` policies take no adapter"
        fix = context.fix("JR404", {_LORA: None}, otherwise="leave lora_path out")
        yield finding(
            "JR404", (_LORA,), message, f"{fix}, with the adapter merged into the weights"
        )


@rule(
    "JR405",
    reads=("actor.model",),
    passes=_OPENPI,
    fails={"actor.model": {**_OPENPI["actor.model"], "num_action_chunks": 16}},
)
def chunk_fits_horizon(context: RuleContext) -> Iterator[Finding]:
    """A chunk is no longer than what the policy predicts.

    A flow policy predicts H actions at once, and the first `num_action_chunks` of them are
    executed. A policy directory that is not on this machine is taken to predict what
    `actor.model.variant` does; a longer chunk is a warning then.

    Example: Pi0.5 for LIBERO predicts 10 actions: chunks of 5 and 10 work, of 16 do not.
    """
    model = context.config.actor.model
    chunk, horizon = model.num_action_chunks, model.planned_horizon
    if horizon is not None and chunk > horizon:
        path = "actor.model.num_action_chunks"
        message = f"num_action_chunks {chunk} > {horizon}, the actions that one call predicts"
        certain = model.horizon_is_certain
        if not certain:
            message += ", as far as `variant` tells; the policy directory can't be read here"
        # The longest chunk that other rules about chunks accept as well.
        shorter: list[Change] = [{path: size} for size in range(horizon, 0, -1)[:_SEARCHED]]
        tests = (context.settles, context.mends)
        works = (change for test in tests for change in shorter if test("JR405", change))
        best = next(works, None)
        fix = context.fix("JR405", *([best] if best else []), otherwise=f"at most {horizon}")
        yield finding("JR405", (path,), message, fix, "error" if certain else "warning")


@rule(
    "JR406",
    reads=("actor.model.action_dim", "env.train"),
    passes={"actor.model.action_dim": 4},
    fails={"actor.model.action_dim": 7},
)
def action_fits_env(context: RuleContext) -> Iterator[Finding]:
    """`actor.model.action_dim` is the number of action dimensions that the env takes.

    The policy may compute with more (Pi0 pads to 32); what it sends to the env may not differ. Left
    out, it is the env's own.

    Example: LIBERO and ManiSkill's WidowX take 7: three of position, three of rotation, a gripper.
    """
    asked, env = context.config.actor.model.action_dim, context.config.env.train
    if asked is not None and asked != env.action_dim:
        path = "actor.model.action_dim"
        message = f"action_dim {asked}, but env `{env.type}` takes {env.action_dim} numbers"
        fix = context.fix("JR406", {path: env.action_dim}, otherwise="leave it out")
        yield finding("JR406", (path, "env.train.type"), message, fix)


@rule(
    "JR407",
    reads=("actor.model.noise_method", "actor.model.joint_logprob"),
    passes=_OPENPI,
    fails={"actor.model": {**_OPENPI["actor.model"], "noise_method": "flow_noise"}},
)
def scoring_fits_noise(context: RuleContext) -> Iterator[Finding]:
    """`joint_logprob` is true with `flow_noise` and false with the other noise methods.

    The learned noise of `flow_noise` acts at every denoise step; scored at one random step only,
    most of the noise head's output gets no gradient. `flow_sde` and `flow_cps` are trained with one
    noisy step per prediction, which costs one pass in the update, not one per step. The other
    combinations work. A warning.

    Example: `noise_method: flow_noise` with `joint_logprob: true`; `flow_sde` with false.
    """
    model = context.config.actor.model
    method, joint = getattr(model, "noise_method", ""), bool(getattr(model, "joint_logprob", False))
    if joint != (method == "flow_noise"):
        usual = "every denoise step is scored" if not joint else "one denoise step is scored"
        message = f"with `noise_method: {method}` usually {usual}; joint_logprob is {joint}".lower()
        paths = ("actor.model.joint_logprob", "actor.model.noise_method")
        fix = context.fix("JR407", {paths[0]: not joint})
        yield finding(
            "JR407", paths, message, fix or f"joint_logprob {not joint}".lower(), "warning"
        )


@rule(
    "JR408",
    reads=("sft.dataset",),
    passes={"sft.dataset": None},
    fails={"sft.dataset": "/no/such/data"},
)
def dataset_is_there(context: RuleContext) -> Iterator[Finding]:
    """The demonstrations that `sft.dataset` names are there.

    An absent directory is a warning under `joyrl validate`, and an error with `--check-paths` and
    where a run is started.

    Example: `dataset: demos/push` holds what `joyrl sft` or LeRobot wrote; without the key,
    scripted experts play the demonstrations.
    """
    sft = context.config.sft
    if context.probing or context.job == "eval" or sft is None or sft.dataset is None:
        return
    if context.job == "train" and not _starts_from_sft(context):
        return
    if not Path(sft.dataset).expanduser().is_dir():
        message = f"`sft.dataset: {sft.dataset}` is no directory on this machine"
        fix = "mend the path, or delete it to collect with scripted experts"
        yield finding("JR408", ("sft.dataset",), message, fix, context.path_severity)


def _starts_from_sft(context: RuleContext) -> bool:
    model = getattr(getattr(context.config, "actor", None), "model", None)
    return getattr(model, "model_path", None) is None


@rule(
    "JR409",
    reads=("actor.model.tokenizer_path",),
    passes=_OPENPI,
    fails={"actor.model": {**_OPENPI["actor.model"], "tokenizer_path": "/no/such.model"}},
)
def tokenizer_is_there(context: RuleContext) -> Iterator[Finding]:
    """The file that `actor.model.tokenizer_path` names is there.

    An absent file is a warning under `joyrl validate`, and an error with `--check-paths` and where
    a run is started.

    Example: `tokenizer_path: paligemma_tokenizer.model`; without the key, that of the policy
    directory.
    """
    path = "actor.model.tokenizer_path"
    value = getattr(context.config.actor.model, "tokenizer_path", None)
    if context.probing or value is None or Path(str(value)).expanduser().is_file():
        return
    message = f"`{path}: {value}` is no file on this machine"
    yield finding("JR409", (path,), message, "mend the path, or delete it", context.path_severity)


_GR00T = {"model_type": "gr00t", "num_action_chunks": 10}
_WIDOWX = {"type": "maniskill", "total_num_envs": 80, "max_episode_steps": 80}
_TAGS = {
    "libero_franka": ("libero", "wan"),
    "libero_panda": ("libero", "wan"),
    "maniskill_widowx": ("maniskill",),
}
"""Embodiment tag of GR00T -> simulators that it was trained in."""


@rule(
    "JR410",
    reads=("actor.model.embodiment_tag", "env.train"),
    passes={
        "actor.model": {**_GR00T, "embodiment_tag": "maniskill_widowx"},
        "env.train": _WIDOWX,
        "env.eval": None,
    },
    fails={"actor.model": _GR00T, "env.train": _WIDOWX, "env.eval": None},
)
def embodiment_fits_env(context: RuleContext) -> Iterator[Finding]:
    """GR00T's `embodiment_tag` is that of the simulator's robot.

    The tag chooses the encoders, decoders and statistics of a robot; those of another robot run
    without any message and never succeed. Tags that joyrl does not know are not compared.

    Example: `embodiment_tag: libero_franka` with `type: libero`, `maniskill_widowx` with `type:
    maniskill` and a WidowX task.
    """
    env, path = context.config.env.train, "actor.model.embodiment_tag"
    tag = str(getattr(context.config.actor.model, "embodiment_tag", ""))
    trained_in = _TAGS.get(tag)
    if trained_in is None or env.type not in {name for names in _TAGS.values() for name in names}:
        return
    robot = str(getattr(env, "robot", ""))
    if env.type in trained_in and (env.type != "maniskill" or robot in tag):
        return
    where = f"`{env.type}`" + (f" with a {robot}" if robot else "")
    message = f"embodiment_tag {tag} belongs to {' and '.join(trained_in)}, this is {where}"
    changes = [
        {path: one}
        for one, names in _TAGS.items()
        if env.type in names and (env.type != "maniskill" or robot in one)
    ]
    fix = context.fix("JR410", *changes, otherwise="the tag and embodiment_id of your robot")
    yield finding("JR410", (path, "env.train.type"), message, fix)


_OFT = {"model_type": "openvla_oft", "num_action_chunks": 8}


@rule(
    "JR411",
    reads=("actor.model.add_value_head", "actor.model.value_type", "algorithm.reward_type"),
    passes={
        "actor.model": {**_OFT, "add_value_head": True},
        "algorithm.reward_type": "action_level",
        "algorithm.logprob_type": "token_level",
    },
    fails={
        "actor.model": {**_OFT, "add_value_head": True, "value_type": "chunk_level"},
        "algorithm.reward_type": "action_level",
        "algorithm.logprob_type": "token_level",
    },
)
def values_fit_rewards(context: RuleContext) -> Iterator[Finding]:
    """`value_type` is `algorithm.reward_type`.

    A value is compared with the return of the same span: of a chunk, or of one action.

    Example: `value_type: action_level` with `reward_type: action_level`.
    """
    model, reward = context.config.actor.model, context.config.algorithm.reward_type
    value, path = str(getattr(model, "value_type", reward)), "actor.model.value_type"
    if model.add_value_head and value != reward:
        message = f"value_type {value} is not reward_type {reward}"
        fix = context.fix("JR411", {path: reward}, otherwise=f"{reward} values")
        yield finding("JR411", (path, "algorithm.reward_type"), message, fix)
