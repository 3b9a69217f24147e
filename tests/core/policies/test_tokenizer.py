from __future__ import annotations

import pytest

from joyrlinf_core.errors import CheckpointError, ConfigError
from joyrlinf_core.policies.tokenizer import (
    ByteTokenizer,
    SentencePieceTokenizer,
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
