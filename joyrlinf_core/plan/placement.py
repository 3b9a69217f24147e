"""Placement: `cluster.component_placement` -> which global rank plays which role.

A role is `env`, `rollout` or `actor`; `env,rollout: 0-3` sets both. A value is `all`, an int, or
ranges such as `0-3,6`. The rules of `rules/placement.py` say what is wrong; `resolve_placement`
returns None then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from joyrlinf_core.config.schema import ClusterConfig
from joyrlinf_core.plan.run_plan import Placement, PlacementMode

ROLES = ("env", "rollout", "actor")

_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?\Z")
_DIGITS = 9
"""Python takes long to read very many."""
MAX_RANKS = 65_536
"""Largest rank number that is accepted; a larger one is a typing error."""


class RankSyntaxError(ValueError):
    """A placement value can't be read."""


def parse_ranks(value: str | int) -> tuple[int, ...] | None:
    """Return the ranks that a placement value names, ascending; None for `all`.

    Raises:
        RankSyntaxError: The value is no int, `all` or list of ranges, or names a rank twice.
    """
    text = str(value).strip()
    return None if text == "all" else _parsed(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[int, ...]:
    """Return the ranks of ranges; rules ask for the same ones again and again."""
    ranks: list[int] = []
    for part in text.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise RankSyntaxError(f"`{part.strip()}` is no rank and no range")
        for number in match.groups(""):
            if len(number.lstrip("0")) > _DIGITS:
                shown = number if len(number) <= 20 else f"{number[:20]}..."
                raise RankSyntaxError(f"rank {shown} is beyond {MAX_RANKS - 1}")
        first = int(match[1].lstrip("0") or "0")
        last = int(match[2].lstrip("0") or "0") if match[2] is not None else first
        if last < first:
            raise RankSyntaxError(f"the range {first}-{last} runs backwards")
        if last >= MAX_RANKS:
            raise RankSyntaxError(f"rank {last} is beyond {MAX_RANKS - 1}")
        ranks.extend(range(first, last + 1))
    ranks.sort()
    for rank, following in pairwise(ranks):
        if rank == following:
            raise RankSyntaxError(f"rank {rank} is named twice")
    return tuple(ranks)


def as_ranges(numbers: tuple[int, ...]) -> str:
    """Return ascending numbers as ranges, for example `0-3,6`."""
    runs: list[list[int]] = []
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        runs, numbers = [[numbers[0], numbers[-1]]], ()
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@dataclass(frozen=True)
class RoleEntry:
    """One role of one entry of `component_placement`."""

    role: str
    key: str
    value: str | int

    @property
    def path(self) -> str:
        """Dotted config key of the entry."""
        return f"cluster.component_placement.{self.key}"


def role_entries(cluster: ClusterConfig) -> list[RoleEntry]:
    """Return the entries of `component_placement` role by role, in the order of the file."""
    return [
        RoleEntry(role.strip(), key, value)
        for key, value in cluster.component_placement.items()
        for role in key.split(",")
    ]


def parsed_entries(cluster: ClusterConfig) -> list[tuple[RoleEntry, tuple[int, ...] | None]]:
    """Return the entries whose value can be read, with their ranks (None: all)."""
    found: list[tuple[RoleEntry, tuple[int, ...] | None]] = []
    for entry in role_entries(cluster):
        try:
            found.append((entry, parse_ranks(entry.value)))
        except RankSyntaxError:
            continue  # rule JR202 reports it
    return found


def ranks_per_node(cluster: ClusterConfig) -> int | None:
    """Return the processes per node, inferred on one node; None if nothing tells it."""
    if cluster.gpus_per_node is not None:
        return cluster.gpus_per_node
    if cluster.num_nodes > 1 or cluster.placement_basis == "per_node":
        return None
    largest = [ranks[-1] for _, ranks in parsed_entries(cluster) if ranks]
    return max(largest) + 1 if largest else None


def limit(cluster: ClusterConfig, per_node: int) -> int:
    """Return the number of ranks that a placement value can name."""
    return per_node if cluster.placement_basis == "per_node" else per_node * cluster.num_nodes


def role_ranks(cluster: ClusterConfig) -> dict[str, tuple[int, ...]] | None:
    """Return global ranks by role; None while an entry or the size of the cluster is unclear."""
    entries = parsed_entries(cluster)
    per_node = ranks_per_node(cluster)
    if per_node is None or sorted(e.role for e, _ in entries) != sorted(ROLES):
        return None
    size = limit(cluster, per_node)
    roles: dict[str, tuple[int, ...]] = {}
    for entry, named in entries:
        ranks = named if named is not None else tuple(range(size))
        if ranks[-1] >= size:
            return None
        if cluster.placement_basis == "per_node":
            nodes = range(cluster.num_nodes)
            ranks = tuple(node * per_node + rank for node in nodes for rank in ranks)
        roles[entry.role] = ranks
    return roles


def idle_ranks(cluster: ClusterConfig) -> tuple[int, ...]:
    """Return the global ranks that play no role; empty while the placement is unclear."""
    return _resolved(cluster)[1]


def resolve_placement(cluster: ClusterConfig) -> Placement | None:
    """Return the placement, None if any of its rules finds an error."""
    return _resolved(cluster)[0]


def colocated(placement: Placement) -> Placement:
    """Return the same ranks with every role on each, as jobs other than training use them."""
    every = tuple(range(placement.world_size))
    roles = {"env_ranks": every, "rollout_ranks": every, "actor_ranks": every}
    return placement.model_copy(update={"mode": "colocated", **roles})


def _resolved(cluster: ClusterConfig) -> tuple[Placement | None, tuple[int, ...]]:
    """Return the placement and the idle ranks; one of them at most is there."""
    roles = tuple(cluster.component_placement.items())
    return _resolve(cluster.num_nodes, cluster.gpus_per_node, cluster.placement_basis, roles)


@lru_cache(maxsize=16)
def _resolve(
    num_nodes: int,
    gpus_per_node: int | None,
    placement_basis: Literal["global", "per_node"],
    component_placement: tuple[tuple[str, str | int], ...],
) -> tuple[Placement | None, tuple[int, ...]]:
    """Do the work of `_resolved` once; rules and their fixes ask for few placements, often."""
    cluster = ClusterConfig(
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        placement_basis=placement_basis,
        component_placement=dict(component_placement),
    )
    roles, per_node = role_ranks(cluster), ranks_per_node(cluster)
    if roles is None or per_node is None:
        return None, ()
    world = per_node * num_nodes
    if not any(len(ranks) == world for ranks in roles.values()):
        busy = set[int]().union(*roles.values())
        if len(busy) < world:
            return None, tuple(rank for rank in range(world) if rank not in busy)
    placement = Placement(
        mode=_mode(roles),
        world_size=world,
        num_nodes=num_nodes,
        ranks_per_node=per_node,
        ranks_per_node_inferred=gpus_per_node is None,
        env_ranks=roles["env"],
        rollout_ranks=roles["rollout"],
        actor_ranks=roles["actor"],
    )
    return placement, ()


def _mode(roles: dict[str, tuple[int, ...]]) -> PlacementMode:
    if roles["env"] == roles["rollout"] == roles["actor"]:
        return "colocated"
    env, rollout, actor = (set(roles[role]) for role in ROLES)
    if env == rollout and not env & actor:
        return "disaggregated"
    if actor >= env | rollout:
        return "hybrid"
    return "split"
