from __future__ import annotations

import pytest

from joyrlinf_core import registry
from joyrlinf_core.errors import CheckpointError, ConfigError
from joyrlinf_core.policies.tokenizer import (
    ByteTokenizer,
    SentencePieceTokenizer,
    estimate_tokens,
    estimate_vocab_size,
    load_tokenizer,
    train_tokenizer,
)

PROMPTS = ("push the puck to the goal", "open the drawer")


def test_trained_words_are_single_tokens():
    tokenizer = train_tokenizer(PROMPTS)
    assert len(tokenizer.encode(PROMPTS[0])) == 6
    assert max(tokenizer.encode(PROMPTS[0])) < tokenizer.vocab_size


def test_training_is_deterministic_and_ignores_order():
    assert train_tokenizer(PROMPTS).model == train_tokenizer(PROMPTS[::-1]).model


def test_any_text_round_trips_through_bytes():
    tokenizer = train_tokenizer(PROMPTS)
    text = "Task: grasp \u00fc 7, State: 12 255;\nAction: "
    assert tokenizer._processor.decode(tokenizer.encode(text)) == text


def test_symbols_are_single_tokens():
    tokenizer = train_tokenizer(PROMPTS, symbols=[str(number) for number in range(256)])
    ids = tokenizer.encode("12 255")
    assert tokenizer.whole("12") in ids
    assert tokenizer.whole("255") in ids
    assert tokenizer.whole("256") is None


def test_file_round_trip(tmp_path):
    tokenizer = train_tokenizer(PROMPTS)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    loaded = load_tokenizer(path)
    assert loaded.encode("open the puck") == tokenizer.encode("open the puck")
    assert (loaded.bos, loaded.vocab_size) == (2, tokenizer.vocab_size)


def test_wrong_files_are_errors(tmp_path):
    with pytest.raises(CheckpointError, match="tokenizer_path"):
        load_tokenizer(tmp_path / "absent.model")
    with pytest.raises(CheckpointError, match="not a SentencePiece model"):
        SentencePieceTokenizer(b"garbage")
    with pytest.raises(ConfigError, match="at least one prompt"):
        train_tokenizer(())


def test_bytes():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("A\u00fc") == [3 + 65, 3 + 0xC3, 3 + 0xBC]
    assert tokenizer.whole("A") == 68
    assert tokenizer.whole("AB") is None


SIMULATORS = [
    {"type": "metaworld", "tasks": "push-v3"},
    {"type": "metaworld", "tasks": "MT50"},
    {"type": "libero", "suite": "libero_object"},
    {"type": "libero", "suite": "libero_130"},
    {"type": "maniskill"},
    {"type": "maniskill", "task_id": "PickCube-v1"},
]


@pytest.mark.parametrize("keys", SIMULATORS, ids=lambda keys: " ".join(keys.values()))
def test_sizes_are_estimated_before_there_is_a_tokenizer(keys):
    prompts = registry.load("envs", keys["type"])(total_num_envs=8, **keys).task_prompts
    tokenizer = train_tokenizer(prompts)
    assert estimate_vocab_size(prompts) == pytest.approx(tokenizer.vocab_size, rel=0.05)
    longest = max(len(tokenizer.encode(prompt)) for prompt in prompts)
    assert max(map(estimate_tokens, prompts)) == pytest.approx(longest, abs=1)


def test_estimate_counts_words_digits_and_marks():
    assert estimate_tokens("Task: put 12 cups_here, now;") == 10
