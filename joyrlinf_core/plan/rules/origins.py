"""`Origins`: which keys the user wrote, and which keys of `env.eval` follow `env.train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joyrlinf_core.config.schema import AlgorithmConfig, ClusterConfig, Config, RunnerConfig
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.config.source_map import SET_ORIGIN, SourceMap

_TRAIN, _EVAL = "env.train.", "env.eval."


@dataclass(frozen=True)
class Origins:
    """What the rules want to know of the files behind a config.

    Attributes:
        written: Dotted keys of the user's own file and of `--set`, not of what the file extends.
            Empty where nobody knows, and for a file that writes every key there is, such as the
            config of a run: it says nothing about what its author meant.
        given: Those of them that come from `--set`.
        inherited: Names under `env.eval` whose value is that of `env.train`; None where nobody
            knows, then equal values count as inherited.
    """

    written: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    inherited: frozenset[str] | None = None

    @classmethod
    def of(cls, sources: SourceMap) -> Origins:
        """Read them from the places of a config's values."""
        root = sources.exact("")
        own = root.key.file if root is not None else ""
        written: set[str] = set()
        given: set[str] = set()
        inherited: set[str] = set()
        for path, node in sources.entries.items():
            if path.startswith(_EVAL):
                train = sources.exact(_TRAIN + path.removeprefix(_EVAL))
                if train is not None and train.at == node.at:
                    inherited.add(path.removeprefix(_EVAL))
                    continue
            if node.key.file == SET_ORIGIN:
                given.add(path)
            elif node.key.file == own:
                written.add(path)
        own_words = given if _is_complete(written | given) else written | given
        return cls(frozenset(own_words), frozenset(given), frozenset(inherited))

    def distance(self, path: str) -> int:
        """Return how near a key is to the user: 0 by `--set`, 1 in the own file, 2 elsewhere."""
        return 0 if path in self.given else 1 if path in self.written else 2

    def with_followers(self, changes: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """Return changes together with what they change in `env.eval`.

        Args:
            changes: Dotted key -> new value.
            config: The config that they change.
        """
        every = dict(changes)
        train: Section | None = getattr(config.env, "train", None)
        evaluation: Section | None = getattr(config.env, "eval", None)
        for path, value in changes.items():
            name = path.removeprefix(_TRAIN)
            if name == path or evaluation is None or name not in type(evaluation).model_fields:
                continue
            follows = name in self.inherited if self.inherited is not None else None
            if follows is None:
                follows = getattr(train, name, None) == getattr(evaluation, name, None)
            if follows:
                every.setdefault(_EVAL + name, value)
        return every


def _is_complete(written: set[str]) -> bool:
    sections: dict[str, type[Section]] = {
        "cluster": ClusterConfig,
        "runner": RunnerConfig,
        "algorithm": AlgorithmConfig,
    }
    return all(
        f"{name}.{key}" in written for name, cls in sections.items() for key in cls.model_fields
    )
