"""One JSON object a line: the events as they are, and messages of the launcher."""

from __future__ import annotations

import json
from typing import TextIO

from joyrlinf_core.observability.atomic import plain
from joyrlinf_core.observability.events import Record


class JsonLinesConsole:
    """Writes lines.

    Args:
        stream: Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def on_record(self, record: Record) -> None:
        """Write an event."""
        self._write(plain(record.to_json()))

    def on_notice(self, text: str) -> None:
        """Write a message."""
        self._write({"kind": "notice", "message": text})

    def on_tick(self) -> None:
        """Time alone writes nothing."""

    def close(self) -> None:
        """Nothing stays open."""

    def _write(self, value: dict[str, object]) -> None:
        self._stream.write(json.dumps(value, allow_nan=False) + "\n")
        self._stream.flush()
