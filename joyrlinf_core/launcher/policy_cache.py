"""Policies that an `sft` section describes: made once, kept in the user cache, keyed by config."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import EnvironmentNotReadyError

RECIPE_VERSION = 1
"""Raise it when the same config begins to give another policy."""

_IRRELEVANT: dict[str, frozenset[str]] = {
    "env": frozenset({"ignore_terminations", "reward_coef"}),
    "model": frozenset({"model_path", "predict_micro_batch_size"}),
    "sft": frozenset({"log_interval", "eval_interval", "eval_episodes"}),
}
"""Keys that leave demonstrations and weights as they are, beside `EnvConfig.schedule_keys`."""

WAIT_SECONDS = 0.2


def policy_key(config: Config) -> str:
    """Return the cache key: equal for configs whose `sft` job gives the same policy."""
    if config.sft is None:
        raise AssertionError("only a config with an `sft` section has a key")
    env = config.env.train
    parts: dict[str, Any] = {
        "env": env.model_dump(mode="json", exclude=set(env.schedule_keys)),
        "model": config.actor.model.model_dump(mode="json"),
        "sft": config.sft.model_dump(mode="json"),
    }
    for name, dropped in _IRRELEVANT.items():
        parts[name] = {key: value for key, value in parts[name].items() if key not in dropped}
    parts |= {
        "seed": config.runner.seed,
        "ranks": config.cluster.component_placement,
        "precision": config.actor.precision,
        "recipe": RECIPE_VERSION,
    }
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def cached_policy(config: Config) -> Path:
    """Return where the policy of a config's `sft` section is kept; it need not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "joyrl" / "policies" / policy_key(config)


@contextmanager
def reserved(target: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the right to make the policy directory `target`; one process at a time.

    Args:
        target: The directory to be made.
        on_wait: Called once if another process holds it.

    Raises:
        EnvironmentNotReadyError: The place can't be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"can't write to {target.parent}: {error.strerror or error}",
            fix="set XDG_CACHE_HOME to a directory that you can write, or use `joyrl sft --output`",
        ) from error
    try:
        _lock(descriptor, on_wait)
        yield
    finally:
        os.close(descriptor)


def discard(target: Path) -> None:
    """Remove a policy directory that can't be used; it loses its name before its content.

    Only while `target` is reserved.
    """
    aside = target.parent / f".{target.name}.partial-discarded"
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def fresh_partial(target: Path) -> Path:
    """Return the name under which `target` is being made; remove what crashes left behind.

    Only while `target` is reserved.
    """
    for stale in target.parent.glob(f".{target.name}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    return target.parent / f".{target.name}.partial-{os.getpid()}"


def _lock(descriptor: int, on_wait: Callable[[], None]) -> None:
    waited = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waited:
                on_wait()
            waited = True
            time.sleep(WAIT_SECONDS)
        else:
            return
