"""`Settings`: what a policy directory records beside its weights (`config.json`). No torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies.openpi.architecture import Architecture

Normalization = Literal["mean_std", "quantile"]
FILE_NAME = "config.json"
_SECTION = "joyrl"


@dataclass(frozen=True)
class Settings:
    """Everything that the weights were trained with and can't be seen in their shapes.

    Attributes:
        architecture: Sizes.
        action_dim: D: leading action dimensions that the env takes.
        normalization: How state and actions are scaled.
        normalize_actions: False where the env's actions are the model's, unscaled.
        state_clip: Bound on the normalised state; 0 has none.
        discrete_state_input: The prompt carries the state as numbers (Pi0.5 only).
        pad_discrete_state: Those numbers include the padding up to `state_dim`.
        asset_id: Directory of `norm_stats.json`.
        tokenizer: `sentencepiece` reads `tokenizer.model`; `bytes` needs no file.
    """

    architecture: Architecture
    action_dim: int
    normalization: Normalization
    normalize_actions: bool
    state_clip: float
    discrete_state_input: bool
    pad_discrete_state: bool
    asset_id: str
    tokenizer: Literal["sentencepiece", "bytes"]


def write_settings(directory: Path, settings: Settings) -> None:
    """Write `config.json`: the upstream keys, and all of `settings` in a section of their own."""
    architecture = settings.architecture
    document = {
        "type": architecture.family,
        "pi05": architecture.family == "pi05",
        "action_dim": architecture.action_dim,
        "action_horizon": architecture.horizon,
        "max_token_len": architecture.max_token_len,
        "discrete_state_input": settings.discrete_state_input,
        _SECTION: asdict(settings),
    }
    (directory / FILE_NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_document(directory: Path) -> dict[str, Any]:
    """Return the content of `config.json`; empty where there is none.

    Raises:
        CheckpointError: The file is no JSON object.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} can't be read: {error}", fix="restore the file from where the policy came"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(
            f"{path} holds {type(document).__name__}, not an object",
            fix="restore the file from where the policy came",
        )
    return document


def recorded(document: dict[str, Any], path: Path) -> Settings | None:
    """Return the settings that joyrl wrote, or None for a directory from elsewhere.

    Raises:
        CheckpointError: The section is there but has other keys than this version writes.
    """
    section = document.get(_SECTION)
    if section is None:
        return None
    try:
        sizes = dict(section["architecture"])
        for name in ("value_widths", "noise_widths"):
            sizes[name] = tuple(sizes[name])
        return Settings(**{**section, "architecture": Architecture(**sizes)})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path / FILE_NAME}: section '{_SECTION}' is not understood ({error})",
            fix="write the policy directory again with this version of joyrl",
        ) from error
