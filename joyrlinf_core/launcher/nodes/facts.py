"""What must be the same on all nodes, and the message that says where it is not."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import EnvironmentNotReadyError, UsageError
from joyrlinf_core.launcher.differences import differences
from joyrlinf_core.launcher.nodes.crew import Crew, exchange

CODE = "joyrl's source"
CONFIG = "config"
POLICY = "policy files"

INSTALLED = ("joyrl", CODE, "python", "torch", "transformers", "numpy")
"""Facts of the installation; the others come from the command line."""

PLACES = ("runner.resume_dir", "runner.logger.log_path", "actor.model.model_path")
"""Keys that may differ: paths. What lies there is compared, where it matters."""

SHOWN_KEYS = 5


def own_facts(
    config: Config,
    *,
    command: str,
    ranks_per_node: int,
    policy: Path | None,
    checkpoint: Path | None,
) -> dict[str, str]:
    """Return the facts of this node.

    Args:
        config: The config.
        command: Which command was started.
        ranks_per_node: From the plan.
        policy: Policy directory that the workers will read; None where it is made first.
        checkpoint: Checkpoint that they start from, or None.
    """
    return {
        "joyrl": version("joyrlinf"),
        CODE: _digest_of_source(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **{name: _version(name) for name in ("torch", "transformers", "numpy")},
        "command": command,
        "ranks on each node": str(ranks_per_node),
        "world size": str(ranks_per_node * config.cluster.num_nodes),
        "checkpoint": _identified(checkpoint),
        POLICY: _described(policy),
        CONFIG: _digest(_as_text(config)),
    }


def check_same(crew: Crew, facts: Mapping[str, str], config: Config) -> None:
    """Compare the facts of all nodes; every node raises the same error.

    Raises:
        EnvironmentNotReadyError: The nodes have different versions installed.
        UsageError: They were started with different commands, configs or files.
    """
    every = exchange(crew, "facts", dict(facts))
    wrong = [name for name in facts if len({str(one.get(name)) for one in every}) > 1]
    if not wrong:
        return
    lines = [_line(name, [str(one.get(name)) for one in every], crew) for name in wrong]
    if CONFIG in wrong:
        configs = exchange(crew, "config", json.loads(_as_text(config)))
        at = wrong.index(CONFIG)
        lines[at : at + 1] = _config_lines(configs, crew)
    message = "; ".join(lines)
    if any(name in INSTALLED for name in wrong):
        raise EnvironmentNotReadyError(
            f"the nodes differ: {message}", fix="install the same versions on every node"
        )
    raise UsageError(
        f"the nodes differ: {message}",
        fix="start the same command with the same files on every node",
    )


def _line(name: str, values: Sequence[str], crew: Crew) -> str:
    """Say who has what; nodes that agree stand together."""
    who: dict[str, list[int]] = {}
    for node, value in enumerate(values):
        who.setdefault(value, []).append(node)
    parts = [
        f"{value} on {', '.join(f'node {n}, {crew.hosts[n]}' for n in nodes[:3])}"
        + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        for value, nodes in who.items()
    ]
    return f"{name} is {' and '.join(parts)}"


def _config_lines(configs: Sequence[dict[str, Any]], crew: Crew) -> list[str]:
    """Say which keys differ, at most a few."""
    keys: dict[str, list[str]] = {}
    for node, config in enumerate(configs):
        for key, first, own in differences(configs[0], config):
            values = keys.setdefault(key, [str(first)] * len(configs))
            values[node] = str(own)
    lines = [_line(f"config key {key}", values, crew) for key, values in keys.items()]
    more = len(lines) - SHOWN_KEYS
    return lines[:SHOWN_KEYS] + ([f"and {more} more config keys"] if more > 0 else [])


def _as_text(config: Config) -> str:
    document = config.model_dump(mode="json")
    for place in PLACES:
        *sections, key = place.split(".")
        section = document
        for name in sections:
            section = section[name]
        section.pop(key)
    return json.dumps(document, sort_keys=True, default=str)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _digest_of_source() -> str:
    """Return a digest of joyrl's modules: one version number can stand for several states."""
    root = Path(__file__).parents[2]
    found = hashlib.blake2b(digest_size=6)
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _described(policy: Path | None) -> str:
    """Return number, bytes and a digest of names and sizes; what is in them is not read."""
    if policy is None:
        return "none"
    files = sorted(path for path in policy.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(policy)): path.stat().st_size for path in files}
    digest = _digest(json.dumps(sizes))
    return f"{len(sizes)} of {sum(sizes.values())} bytes ({digest})"


def _identified(checkpoint: Path | None) -> str:
    """Return name and digest of a checkpoint; its manifest has the checksums of all files."""
    if checkpoint is None:
        return "none"
    manifests = [path.read_text(encoding="utf-8") for path in sorted(checkpoint.rglob("*.json"))]
    return f"{checkpoint.name} ({_digest(''.join(manifests))})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
