"""Where the files of a policy directory are, upstream and ours alike. No torch."""

from __future__ import annotations

from pathlib import Path

from joyrlinf_core.policies import norm_stats, tokenizer

WEIGHTS_NAME = "model.safetensors"
_TORCH_WEIGHTS = (
    "model_state_dict/full_weights.pt",
    "actor/model_state_dict/full_weights.pt",
)
_TOKENIZERS = (tokenizer.FILE_NAME, "paligemma_tokenizer.model")


def find_weights(directory: Path) -> list[Path]:
    """Return the weight files: every `*.safetensors` of the directory, or one torch file."""
    shards = sorted(
        path
        for path in directory.glob("*.safetensors")
        if not path.name.startswith(("policy_preprocessor", "policy_postprocessor"))
    )
    if shards:
        return shards
    return [directory / name for name in _TORCH_WEIGHTS if (directory / name).is_file()][:1]


def find_norm_stats(directory: Path, asset_id: str | None) -> Path | None:
    """Return the statistics file, or None.

    With an asset id: below `assets/<asset_id>/` or `<asset_id>/`. Without: the only one anywhere in
    the directory.
    """
    if asset_id is not None:
        for base in (directory / "assets", directory):
            path = base / asset_id / norm_stats.FILE_NAME
            if path.is_file():
                return path
        return None
    found = sorted(directory.rglob(norm_stats.FILE_NAME))
    return found[0] if len(found) == 1 else None


def find_tokenizer(directory: Path, tokenizer_path: str | None) -> Path | None:
    """Return the SentencePiece file: the configured one, else the directory's, else None."""
    if tokenizer_path is not None:
        path = Path(tokenizer_path).expanduser()
        return path if path.is_file() else None
    for name in _TOKENIZERS:
        if (directory / name).is_file():
            return directory / name
    return None
