"""What the threads of this process are at: work of their own, or a wait for another rank.

Telling costs about a microsecond and writes nothing, so that every wait and every timed block can
tell. `Heartbeat` looks at it from beside and writes down what others need to know. The main thread
works unless it says that it waits; other threads work only inside blocks that have a name.
Standard library alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Activity(NamedTuple):
    """What a process is at.

    Attributes:
        doing: Innermost block of a thread that works; may be empty.
        beside: It is another thread than the main one.
        waits_for: What the main thread waits for; empty while any thread works.
        moves: Differs from an earlier value if any thread has begun or ended anything since.
    """

    doing: str
    beside: bool
    waits_for: str
    moves: tuple[int, ...]


class _Thread:
    """What one thread is at; written by that thread alone."""

    def __init__(self) -> None:
        self.doing = ""
        self.waits_for = ""
        self.moves = 0


_threads: dict[int, _Thread] = {}


def current() -> Activity:
    """Return what this process is at now."""
    threads = [_threads[ident] for ident in sorted(_threads)]
    moves = tuple(thread.moves for thread in threads)
    main = _threads.get(threading.main_thread().ident or 0)
    if main is None or not main.waits_for:
        return Activity("" if main is None else main.doing, False, "", moves)
    for thread in threads:
        if thread is not main and thread.doing and not thread.waits_for:
            return Activity(thread.doing, True, "", moves)
    return Activity("", False, main.waits_for, moves)


def moved() -> None:
    """Say that this thread has got on."""
    _own().moves += 1


@contextmanager
def block(name: str) -> Iterator[None]:
    """Name what this thread does in this block; other ranks may wait for it."""
    thread = _own()
    outer, thread.doing = thread.doing, name
    thread.moves += 1
    try:
        yield
    finally:
        thread.doing = outer
        thread.moves += 1


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say that this thread waits for another rank in this block.

    Around an inner wait, the outer one tells more and stays.

    Args:
        what: What for, as in `waits for WHAT`.
    """
    thread = _own()
    outer = thread.waits_for
    thread.waits_for = outer or what
    thread.moves += 1
    try:
        yield
    finally:
        thread.waits_for = outer
        thread.moves += 1


def _own() -> _Thread:
    ident = threading.get_ident()
    thread = _threads.get(ident)
    if thread is None:
        thread = _threads[ident] = _Thread()
    return thread
