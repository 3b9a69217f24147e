from __future__ import annotations

import numpy as np
import pytest
import torch

from joyrlinf_core.errors import ConfigError
from joyrlinf_core.policies.openpi import prompts
from joyrlinf_core.policies.tokenizer import ByteTokenizer


def test_plain_prompt():
    encoder = prompts.PromptEncoder(ByteTokenizer(), 12)
    tokens, counts = encoder.tasks((" pick_it\n", "go"), torch.tensor([1, 0, 1]))
    assert counts.tolist() == [4, 9, 4]
    assert bytes(token - 3 for token in tokens[1, 1:9].tolist()) == b"pick it\n"
    assert tokens[0].tolist()[:1] + tokens[0].tolist()[4:] == [2] + [0] * 8


def test_state_prompt():
    assert prompts.scaffold("push_it", (3, 255)) == "Task: push it, State: 3 255;\nAction: "
    encoder = prompts.PromptEncoder(ByteTokenizer(), 60)
    tokens, counts = encoder.states(("go",), torch.tensor([0]), torch.tensor([[0.0, -1.0]]))
    text = bytes(token - 3 for token in tokens[0, 1 : counts[0]].tolist()).decode()
    assert text == "Task: go, State: 128 0;\nAction: "


def test_state_bins_equal_numpy():
    values = np.concatenate([np.linspace(-1.5, 1.5, 1001), np.linspace(-1, 1, 257)])
    expected = np.digitize(values, np.linspace(-1, 1, 257)[:-1]) - 1
    bins = prompts.state_bins(torch.from_numpy(values))
    assert bins.tolist() == expected.tolist()
    assert (bins.min(), bins.max()) == (-1, 255)


def test_overlong_prompt_says_how_long():
    encoder = prompts.PromptEncoder(ByteTokenizer(), 5)
    with pytest.raises(ConfigError, match="max_token_len: 7"):
        encoder.tasks(("hello",), torch.tensor([0]))
