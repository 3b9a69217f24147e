"""Finds the tasks of an env in a data set by their instructions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def match_prompts(wanted: Sequence[str], found: Iterable[str]) -> dict[str, int]:
    """Return found instruction -> index of the wanted one; those without one are left out.

    Case and extra white space do not count.
    """
    index = {_plain(prompt): task for task, prompt in enumerate(wanted)}
    return {prompt: index[_plain(prompt)] for prompt in found if _plain(prompt) in index}


def _plain(prompt: str) -> str:
    return " ".join(prompt.casefold().split())
