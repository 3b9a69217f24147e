"""Generator states as text, for `CheckpointMeta.rng_states`.

Draws that matter come from `seeding.stream` and need no state; these are what libraries draw from
behind our back (dropout, third-party code).
"""

from __future__ import annotations

import torch


def capture() -> dict[str, str]:
    """Return the states of this process's default generators: CPU, and the CUDA device in use."""
    states = {"cpu": _to_text(torch.get_rng_state())}
    if torch.cuda.is_initialized():
        states["cuda"] = _to_text(torch.cuda.get_rng_state())
    return states


def restore(states: dict[str, str]) -> None:
    """Set the default generators to states from `capture`; one that is not in use is left alone."""
    torch.set_rng_state(_to_tensor(states["cpu"]))
    if torch.cuda.is_initialized() and "cuda" in states:
        torch.cuda.set_rng_state(_to_tensor(states["cuda"]))


def _to_text(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def _to_tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
