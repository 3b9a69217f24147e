"""Text tokenizers: SentencePiece files, small ones trained on the spot, and plain bytes.

sentencepiece is imported inside functions: `joyrl validate` must start fast. The plan needs sizes
before there is a tokenizer: `estimate_tokens` and `estimate_vocab_size`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from joyrlinf_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

FILE_NAME = "tokenizer.model"

_VOCAB_SIZE = 400
_BYTES = 256
_SPECIAL = 4
_PIECES_PER_LETTER = 1.7
"""Pieces that training makes of a letter that follows another one, measured; see the tests."""
_PIECE = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


class Tokenizer(Protocol):
    """Text to token ids."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def bos(self) -> int:
        """Id that starts a prompt."""
        ...

    @property
    def model(self) -> bytes | None:
        """Content of `tokenizer.model`; None where there is no file."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without a start token."""
        ...

    def whole(self, text: str) -> int | None:
        """Return the id of the one token that is exactly `text`, or None."""
        ...


class ByteTokenizer:
    """UTF-8 bytes with an offset: pad 0, end 1, start 2, byte b = 3 + b. Needs no file."""

    vocab_size = 3 + 256
    bos = 2
    model = None

    def encode(self, text: str) -> list[int]:
        """Return one id per UTF-8 byte."""
        return [3 + byte for byte in text.encode("utf-8")]

    def whole(self, text: str) -> int | None:
        """Return the id of a one-byte text, or None."""
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 else None


class SentencePieceTokenizer:
    """A SentencePiece model.

    Args:
        model: Content of the `.model` file.
    """

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        try:
            self._processor: SentencePieceProcessor = sentencepiece.SentencePieceProcessor(
                model_proto=model
            )
        except RuntimeError as error:
            raise CheckpointError(
                f"not a SentencePiece model ({len(model)} bytes): {error}",
                fix="give the .model file of the policy's tokenizer",
            ) from error
        self.vocab_size: int = self._processor.get_piece_size()
        self.bos: int = self._processor.bos_id()

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without a start token."""
        return self._processor.encode(text)

    def whole(self, text: str) -> int | None:
        """Return the id of the piece `text`, or None."""
        token = self._processor.piece_to_id(text)
        return None if token == self._processor.unk_id() else token


def load_tokenizer(path: Path) -> SentencePieceTokenizer:
    """Load a SentencePiece `.model` file.

    Raises:
        CheckpointError: The file can't be read or is no SentencePiece model.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"tokenizer file {path} can't be read: {error.strerror}",
            fix="set actor.model.tokenizer_path to a SentencePiece .model file",
        ) from error
    return SentencePieceTokenizer(content)


def train_tokenizer(
    prompts: Sequence[str], *, symbols: Iterable[str] = (), vocab_size: int = _VOCAB_SIZE
) -> SentencePieceTokenizer:
    r"""Train a small SentencePiece model on task prompts, in well under a second.

    Every word of the prompts becomes one piece; any other text still encodes, byte by byte where no
    piece fits. One thread, so that the same prompts always give the same model.

    Args:
        prompts: Instructions to learn words from.
        symbols: Texts that are always one token, beside the newline.
        vocab_size: Upper bound of the number of pieces; 256 bytes and the symbols come on top.
    """
    import sentencepiece

    if not prompts:
        raise ConfigError(
            message="a tokenizer needs at least one prompt to train on, got none",
            fix="give an env with task prompts, or set actor.model.tokenizer_path",
        )
    fixed = ["\n", *symbols]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sorted(set(prompts))),
        model_writer=writer,
        model_type="bpe",
        vocab_size=vocab_size + _BYTES + len(fixed),
        hard_vocab_limit=False,
        byte_fallback=True,
        split_digits=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        user_defined_symbols=fixed,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        num_threads=1,
        minloglevel=2,
    )
    return SentencePieceTokenizer(writer.getvalue())


def estimate_tokens(text: str) -> int:
    """Return about how many tokens `text` has: one a word, a digit, a punctuation mark."""
    return len(_PIECE.findall(text))


def estimate_vocab_size(prompts: Sequence[str], *, symbols: int = 0) -> int:
    """Return about how many ids `train_tokenizer` ends up with, within a few percent."""
    words = {word for prompt in prompts for word in re.findall(r"(?:^| )[^ ]*", prompt)}
    pieces = _PIECES_PER_LETTER * sum(len(word) - 1 for word in words)
    letters = len(set("".join(prompts)))
    fixed = _BYTES + symbols + 1
    return fixed + min(_VOCAB_SIZE, _SPECIAL + letters + round(pieces))
