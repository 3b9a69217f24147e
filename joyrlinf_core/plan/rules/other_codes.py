"""Pages of the codes that are no rules: reading a config, a running job, estimates."""

from __future__ import annotations

OTHER_CODES: dict[str, str] = {
    "JR001": """A named preset or file exists.

    A name that ends in `.yaml` or `.yml` is a file; another one is a preset first and a file
    second. `joyrl presets list` shows the presets.
    """,
    "JR002": """A config file can be read.

    It is UTF-8 text of moderate size, and its permissions allow reading.
    """,
    "JR003": """A config file is YAML.

    The finding shows where reading stopped, or what was opened and not closed; the mistake is there
    or on the line before. Control characters are no YAML.

    Example: a tab at the start of a line; YAML indents with spaces.
    """,
    "JR004": """No key is set twice in one section.

    Plain YAML readers keep the last one silently. Both lines are named; delete one.

    Example: `actor:` at the top and again at the bottom of a file.
    """,
    "JR005": """A config uses plain YAML only.

    Values are text, numbers, true, false, null, lists and sections, keys are text. Tags other than
    those of these types (`!!int`, `!!str`), such as `!!python/object`, aliases that contain
    themselves, and files that expand to very many values are refused.
    """,
    "JR006": """A config file holds sections.

    An empty file, a list or a single value is no config.

    Example: the shortest config is `extends: quickstart`.
    """,
    "JR007": """`extends` names one preset, or one file beside the config.

    The base may extend another one, but no chain comes back to where it began.

    Example: `extends: quickstart`, or `extends: base.yaml`.
    """,
    "JR010": """A required key is set.

    Most keys have defaults; those without, such as `env.train.total_num_envs`, must be given.
    """,
    "JR011": """A value has the right type and lies in its range.

    Numbers follow YAML 1.2: `1e-5` is a number, `010` is 10; `"5"` in quotes, `1_000`, `yes` and
    `12:30` are text, true and false are the only switches. NaN and infinity are refused.
    """,
    "JR012": """A key is one that its section has.

    A typing error would otherwise silently leave the default in place. The finding says what the
    key may stand for, or which section it belongs to.

    Example: `micro_batchsize` in `actor`: did you mean `micro_batch_size`?
    """,
    "JR013": """`type` and `model_type` name a simulator and a policy family.

    A name is a file of `envs/` or `policies/`, an entry point of an installed package, or
    `pkg.module:Attr`.
    """,
    "JR099": """Every rule could be checked.

    A rule whose keys could not be read is skipped, not lost: this line names the rules and the key
    that each waits for, or the broken rule that comes first. Mend the errors above it and check
    again. An info.
    """,
    "JR601": """Episodes succeed now and then.

    A warning of a running job: no episode was successful for `algorithm.dead_signal_steps` steps in
    a row. Reinforcement learning amplifies what works, so it needs a start above zero. Measure the
    policy with `joyrl eval`; prompt, camera and action scale are the usual causes of zero.
    """,
    "JR602": """Groups have variance in their returns.

    A warning of a running job: for `algorithm.dead_signal_steps` steps in a row every group had
    equal returns, so that all advantages were zero. Tasks are too easy or too hard for the policy,
    or groups are too small.
    """,
    "JR603": """A resumed run keeps its config.

    A warning of a running job: the checkpoint was written under another config. The new values are
    used; `joyrl resume` lists the differences.
    """,
    "JR901": """What the run keeps in memory fits the card and the host.

    From `joyrl estimate`: weights, optimizer, activations and rollouts of the rank that needs most,
    against nine tenths or so of the memory. The fix names keys that make it fit, largest effect
    first.

    Example: a smaller `actor.micro_batch_size`, or `actor.gradient_checkpointing: true`.
    """,
    "JR902": """The policy family tells its sizes.

    From `joyrl estimate`: without them neither memory nor throughput can be estimated. A family
    tells them by `ModelConfig.footprint`.
    """,
}
"""Code -> page: a first line that says what must hold, then why, as the docstrings of rules do."""
