"""Placements that may be meant by one that does not work; the rules say which of them do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from joyrlinf_core.config.schema import ClusterConfig
from joyrlinf_core.plan.placement import (
    ROLES,
    as_ranges,
    limit,
    parsed_entries,
    ranks_per_node,
)
from joyrlinf_core.plan.rules.changes import Change

PLACEMENT = "cluster.component_placement"


def nearby(cluster: ClusterConfig) -> Iterator[Change]:
    """Yield changes of a placement, the smallest first.

    The same ranks on every node; the ranks that are there with idle ones given to a neighbour; and
    halves for `env,rollout` and `actor`, or all roles everywhere.
    """
    per_node = ranks_per_node(cluster)
    if per_node is None:
        return
    size = limit(cluster, per_node)
    named = [rank for _, ranks in parsed_entries(cluster) for rank in ranks or ()]
    spread = cluster.num_nodes > 1 and cluster.placement_basis == "global"
    if spread and named and max(named) < per_node:
        yield {"cluster.placement_basis": "per_node"}
    roles = _roles(cluster, size)
    for upwards in (None, False, True):
        yield {PLACEMENT: told(_filled(roles, size, upwards=upwards))}
    everywhere = tuple(range(size))
    if size > 1 and not set(roles["env"]) >= set(roles["actor"]):
        first, second = everywhere[: size // 2], everywhere[size // 2 :]
        yield {PLACEMENT: told({"env": first, "rollout": first, "actor": second})}
    yield {PLACEMENT: told(dict.fromkeys(ROLES, everywhere))}


def completions(cluster: ClusterConfig) -> Iterator[Change]:
    """Yield placements in which the roles that have no ranks get some; all others keep theirs.

    They take those of an unknown role; else the ranks that are left, or as many more where the
    cluster's size is not given; else the same ranks as the others.
    """
    known: dict[str, tuple[int, ...]] = {}
    unknown: tuple[int, ...] = ()
    for entry, ranks in parsed_entries(cluster):
        if ranks and entry.role in ROLES:
            known.setdefault(entry.role, ranks)
        elif ranks:
            unknown = unknown or ranks
    missing = [role for role in ROLES if role not in known]
    if not missing:
        yield {PLACEMENT: told(known)}
        return
    used = tuple(sorted(set[int]().union(*known.values())))
    if unknown:
        yield {PLACEMENT: told({**known, **dict.fromkeys(missing, unknown)})}
    if not used:
        return
    per_node = cluster.gpus_per_node
    size = limit(cluster, per_node) if per_node else 2 * (used[-1] + 1)
    free = tuple(rank for rank in range(size) if rank not in set(used))
    # Simulators and policy take what the other one has; the learner gets ranks of its own first.
    near = next((known[role] for role in ("rollout", "env") if role in known), None)
    if "actor" in missing and near is not None and free:
        simulated = {role: known.get(role, near) for role in ("env", "rollout")}
        yield {PLACEMENT: told({**simulated, "actor": free})}
    elif "actor" in known and free:
        yield {PLACEMENT: told({**dict.fromkeys(missing, free), **known})}
    yield {PLACEMENT: told({**dict.fromkeys(missing, near or used), **known})}


def told(roles: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return a placement as it is written; roles on the same ranks share a line."""
    together: dict[tuple[int, ...], list[str]] = {}
    for role in ROLES:
        together.setdefault(roles[role], []).append(role)
    return {",".join(names): as_ranges(ranks) for ranks, names in together.items()}


def _roles(cluster: ClusterConfig, size: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each role that are there; a role without any follows another one."""
    every = tuple(range(size))
    found: dict[str, tuple[int, ...]] = {}
    for entry, named in parsed_entries(cluster):
        ranks = every if named is None else tuple(rank for rank in named if rank < size)
        if ranks and entry.role in ROLES:
            found.setdefault(entry.role, ranks)
    some = found.get("rollout") or found.get("env") or found.get("actor") or every
    env = found.get("env", some)
    taken = {*env, *some}
    left = tuple(rank for rank in every if rank not in taken)
    return {"env": env, "rollout": some, "actor": found.get("actor") or left or some}


def _filled(
    roles: dict[str, tuple[int, ...]], size: int, *, upwards: bool | None
) -> dict[str, tuple[int, ...]]:
    """Return roles that take the idle ranks beside theirs.

    Args:
        roles: Ranks by role.
        size: Ranks that there are.
        upwards: Whether the role below an idle rank takes it, or the one above; None: the one with
            fewer ranks.
    """
    groups = {role: set(ranks) for role, ranks in roles.items()}
    taken = {role: set(ranks) for role, ranks in roles.items()}
    busy = sorted(set[int]().union(*groups.values()))

    def ranks_there(rank: int) -> int:
        return min(len(ranks) for ranks in groups.values() if rank in ranks)

    # Between two busy neighbours, before the first and behind the last one.
    for below, above in pairwise([-1, *busy, size]):
        if above == below + 1 or not busy:
            continue
        beside = [rank for rank in (below, above) if 0 <= rank < size]
        if upwards is None:
            source = min(beside, key=ranks_there)
        else:
            source = beside[0] if upwards else beside[-1]
        for role, ranks in groups.items():
            if source in ranks:
                taken[role].update(range(below + 1, above))
    return {role: tuple(sorted(ranks)) for role, ranks in taken.items()}
