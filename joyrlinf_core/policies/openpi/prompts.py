"""Prompt text of Pi0 and Pi0.5, and its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from joyrlinf_core.errors import ConfigError
from joyrlinf_core.policies.tokenizer import Tokenizer

STATE_BINS = 256


def scaffold(prompt: str, state: Sequence[int]) -> str:
    """Return the prompt of a policy that reads its state as text."""
    numbers = " ".join(str(number) for number in state)
    return f"Task: {clean(prompt)}, State: {numbers};\nAction: "


def clean(prompt: str) -> str:
    """Return a task instruction as the models were trained on it."""
    return prompt.strip().replace("_", " ").replace("\n", " ")


def state_bins(state: Tensor) -> Tensor:
    """Return the bin of each normalised state value: int64, 0 to 255 over [-1, 1], -1 below."""
    edges = torch.linspace(-1.0, 1.0, STATE_BINS + 1, dtype=torch.float64)[:-1]
    return torch.bucketize(state.double(), edges, right=True) - 1


class PromptEncoder:
    """Turns instructions into padded token ids, remembering what it has seen.

    Args:
        tokenizer: Text to ids.
        max_token_len: L: every prompt is padded to this many tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_token_len: int) -> None:
        self.tokenizer = tokenizer
        self.max_token_len = max_token_len
        self._tables: dict[tuple[str, ...], tuple[Tensor, Tensor]] = {}

    def tasks(self, prompts: tuple[str, ...], task: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the prompt of each row.

        Args:
            prompts: Instruction of each task.
            task: int64 [b], index into `prompts`.

        Returns:
            Ids int32 [b, L] and their number int32 [b].
        """
        if prompts not in self._tables:
            newline = self.tokenizer.encode("\n")
            self._tables[prompts] = self._pad(
                [self.tokenizer.encode(clean(prompt)) + newline for prompt in prompts]
            )
        tokens, counts = self._tables[prompts]
        return tokens[task], counts[task]

    def states(
        self, prompts: tuple[str, ...], task: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode prompts that carry the state.

        Args:
            prompts: Instruction of each task.
            task: int64 [b], index into `prompts`.
            state: float32 [b, S], normalised.

        Returns:
            Ids int32 [b, L] and their number int32 [b].
        """
        rows = zip(task.tolist(), state_bins(state).tolist(), strict=True)
        return self._pad(
            [self.tokenizer.encode(scaffold(prompts[index], bins)) for index, bins in rows]
        )

    def _pad(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        tokens = torch.zeros((len(rows), self.max_token_len), dtype=torch.int32)
        counts = torch.zeros(len(rows), dtype=torch.int32)
        for index, ids in enumerate(rows):
            count = len(ids) + 1
            if count > self.max_token_len:
                raise ConfigError(
                    message=f"a prompt has {count} tokens, the policy takes {self.max_token_len}",
                    fix=f"actor.model.architecture.max_token_len: {count}",
                )
            tokens[index, :count] = torch.tensor([self.tokenizer.bos, *ids], dtype=torch.int32)
            counts[index] = count
        return tokens, counts
