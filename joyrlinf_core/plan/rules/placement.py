"""JR2xx: placement and pipeline modes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.placement import (
    ROLES,
    RankSyntaxError,
    as_ranges,
    idle_ranks,
    limit,
    parse_ranks,
    parsed_entries,
    ranks_per_node,
    role_entries,
)
from joyrlinf_core.plan.rules.changes import Change, told
from joyrlinf_core.plan.rules.placements import completions, nearby
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, amount, finding, rule

_PLACEMENT = "cluster.component_placement"


@rule(
    "JR201",
    reads=CLUSTER,
    passes={_PLACEMENT: {"env": 0, "rollout, actor": 0}},
    fails={_PLACEMENT: {"env,rolout": 0, "actor": 0}},
)
def roles_are_complete(context: RuleContext) -> Iterator[Finding]:
    """Every role is placed once, and there is no other.

    The roles are `env` (simulators), `rollout` (policy inference) and `actor` (learner). Several
    share a line: `env,rollout: 0-3`.

    Example: `env,rollout: 0-3` alone says nothing of the actor; add `actor: 4-7`.
    """
    cluster = context.config.cluster
    entries = role_entries(cluster)
    complete = _complete(context) if not context.probing else ""
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.role not in ROLES:
            near = difflib.get_close_matches(entry.role, ROLES, n=1, cutoff=0.6)
            fix = f"did you mean `{near[0]}`?" if near else complete
            fix = fix or f"roles are {', '.join(ROLES)}"
            yield finding("JR201", (entry.path,), f"unknown role `{entry.role}`", fix)
        elif entry.role in seen:
            message = f"the role `{entry.role}` is placed twice, in `{seen[entry.role]}` and here"
            yield finding("JR201", (entry.path,), message, "keep one of them")
        seen.setdefault(entry.role, entry.key)
    missing = [role for role in ROLES if role not in seen]
    if missing:
        message = f"no ranks are given for {', '.join(missing)}"
        fix = complete or "place every role, as in `env,rollout: 0-3`"
        yield finding("JR201", (_PLACEMENT,), message, fix)


def _complete(context: RuleContext) -> str:
    """Return the nearest placements of every role as a fix; empty if none works."""
    cluster = context.config.cluster
    offered = [change for change in completions(cluster) if context.mends("JR201", change)]
    if offered:
        return told(context.best(offered[:2]))
    gpus = cluster.gpus_per_node
    everything = {_PLACEMENT: {",".join(ROLES): f"0-{gpus - 1}" if gpus and gpus > 1 else "0"}}
    return _nearby(context, "JR201") or context.fix("JR201", everything)


@rule(
    "JR202",
    reads=(_PLACEMENT,),
    passes={_PLACEMENT: {"env,rollout,actor": "0-1,2,3"}},
    fails={_PLACEMENT: {"env,rollout,actor": "3-0"}},
)
def ranks_are_readable(context: RuleContext) -> Iterator[Finding]:
    """A placement value is `all`, an int, or ranges.

    Ranges run upwards, and no rank is named twice.

    Example: `actor: 0-3,6` means ranks 0, 1, 2, 3 and 6; `3-0` and `0-3,2` can't be read.
    """
    reported: set[str] = set()
    for entry in role_entries(context.config.cluster):
        try:
            parse_ranks(entry.value)
        except RankSyntaxError as error:
            if entry.key not in reported:
                reported.add(entry.key)
                message = f"`{entry.key}: {entry.value}`: {error}"
                yield finding("JR202", (entry.path,), message, "write `all`, `0`, or `0-3,6`")


@rule(
    "JR203",
    reads=CLUSTER,
    passes={
        "cluster.num_nodes": 2,
        "cluster.gpus_per_node": 1,
        _PLACEMENT: {"env,rollout,actor": "all"},
    },
    fails={"cluster.num_nodes": 2, _PLACEMENT: {"env,rollout,actor": "0-1"}},
)
def cluster_size_is_known(context: RuleContext) -> Iterator[Finding]:
    """`gpus_per_node` is given wherever it can't be inferred.

    On one node the largest rank tells it: ranks 0-7 are 8 GPUs. Several nodes,
    `placement_basis: per_node`, and `all` without any number need the key.

    Example: `num_nodes: 2` with `env,rollout,actor: all` and `gpus_per_node: 8` are 16 ranks.
    """
    cluster = context.config.cluster
    if ranks_per_node(cluster) is not None:
        return
    if cluster.placement_basis == "per_node":
        reason = "`placement_basis: per_node`"
    elif cluster.num_nodes > 1:
        reason = f"a run on {cluster.num_nodes} nodes"
    elif any(ranks is None for _, ranks in parsed_entries(cluster)):
        reason = "`all` without any numbered rank"
    else:
        return  # nothing could be read; JR201 or JR202 says why
    path = "cluster.gpus_per_node"
    message = f"{reason} needs `{path}`"
    named = [rank for _, ranks in parsed_entries(cluster) if ranks for rank in ranks]
    nodes = 1 if cluster.placement_basis == "per_node" else cluster.num_nodes
    guess = -(-(max(named) + 1) // nodes) if named else 8
    fix = context.fix("JR203", {path: guess}, otherwise="say how many GPUs a node has")
    yield finding("JR203", (path,), message, fix)


@rule(
    "JR204",
    reads=CLUSTER,
    passes={"cluster.gpus_per_node": 2, _PLACEMENT: {"env,rollout,actor": "0-1"}},
    fails={"cluster.gpus_per_node": 2, _PLACEMENT: {"env,rollout,actor": "0-4"}},
)
def ranks_exist(context: RuleContext) -> Iterator[Finding]:
    """No placement names a rank that the cluster lacks.

    Ranks count over all nodes: node 1 of 8 GPUs has ranks 8-15. With `placement_basis: per_node`
    they are local, 0-7 on every node.

    Example: `actor: 4-7` with `gpus_per_node: 4` on one node names ranks that are not there.
    """
    cluster = context.config.cluster
    per_node = ranks_per_node(cluster)
    if per_node is None:
        return
    size = limit(cluster, per_node)
    reported: set[str] = set()
    for entry, ranks in parsed_entries(cluster):
        if ranks is None or ranks[-1] < size or entry.key in reported:
            continue
        reported.add(entry.key)
        if cluster.placement_basis == "per_node":
            holds = f"a node has local ranks 0-{size - 1} (gpus_per_node {per_node})"
        else:
            holds = (
                f"the cluster has ranks 0-{size - 1} ("
                f"{amount(cluster.num_nodes, 'node')} x gpus_per_node {per_node})"
            )
        message = f"`{entry.key}: {entry.value}` names rank {ranks[-1]}, but {holds}"
        gpus = "cluster.gpus_per_node"
        nodes = 1 if cluster.placement_basis == "per_node" else cluster.num_nodes
        change = {gpus: -(-(ranks[-1] + 1) // nodes)}
        # A larger node is another machine; another placement is a matter of two lines.
        fix = _nearby(context, "JR204") or context.fix("JR204", change)
        fix = fix or f"ranks 0-{size - 1}, or more GPUs"
        yield finding("JR204", (entry.path, gpus), message, fix)


@rule(
    "JR205",
    reads=CLUSTER,
    passes={_PLACEMENT: {"env,rollout,actor": "0-1"}},
    fails={_PLACEMENT: {"env,rollout,actor": "1"}},
)
def no_rank_is_idle(context: RuleContext) -> Iterator[Finding]:
    """Every rank plays a role.

    A process is started for each rank; one without a role would hold a GPU and do nothing.

    Example: `env,rollout: 0-3` and `actor: 5-7` leave rank 4 idle.
    """
    cluster = context.config.cluster
    idle = idle_ranks(cluster)
    if not idle:
        return
    per_node = ranks_per_node(cluster) or 0
    world = per_node * cluster.num_nodes
    inferred = "" if cluster.gpus_per_node else " (gpus_per_node inferred from the largest rank)"
    plural = "ranks" if len(idle) > 1 else "rank"
    verb = "play" if len(idle) > 1 else "plays"
    message = f"{plural} {_named(idle)} of 0-{world - 1} {verb} no role{inferred}"
    busy = {rank for _, ranks in parsed_entries(cluster) if ranks for rank in ranks}
    moved = {rank: place for place, rank in enumerate(sorted(busy))}
    placed = {
        entry.key: as_ranges(tuple(moved[rank] for rank in ranks)) if ranks else "all"
        for entry, ranks in parsed_entries(cluster)
    }
    path = "cluster.gpus_per_node"
    changes: list[Change] = [{path: max(busy, default=0) + 1}]
    if any(rank != place for rank, place in moved.items()):
        fewer = {path: len(busy)} if cluster.gpus_per_node is not None else {}
        changes.append({_PLACEMENT: placed, **fewer})
    fix = context.fix("JR205", *changes)
    fix = ", or ".join(part for part in (_nearby(context, "JR205"), fix) if part) or (
        "give every rank a role, or number them from 0 and lower cluster.gpus_per_node"
    )
    yield finding("JR205", (_PLACEMENT,), message, fix)


@rule(
    "JR208",
    reads=(*CLUSTER, "algorithm.pipeline_mode"),
    passes={"algorithm.pipeline_mode": "async", _PLACEMENT: {"env,rollout": "0", "actor": "1"}},
    fails={"algorithm.pipeline_mode": "async", _PLACEMENT: {"env,rollout,actor": "0-1"}},
)
def async_is_disjoint(context: RuleContext) -> Iterator[Finding]:
    """In `async` no rank is both rollout and actor.

    Both work at the same time, all the time. `sync` allows any overlap.

    Example: on 8 GPUs `env,rollout: 0-3` with `actor: 4-7`.
    """
    placement = context.placement
    if placement is None or context.config.algorithm.pipeline_mode != "async":
        return
    shared = tuple(rank for rank in placement.rollout_ranks if rank in placement.actor_ranks)
    if not shared:
        return
    path, world = "algorithm.pipeline_mode", placement.world_size
    message = (
        f"`async` needs rollout and actor on different ranks; rollout "
        f"{_named(placement.rollout_ranks)} and actor {_named(placement.actor_ranks)} share "
        f"{_named(shared)}"
    )
    # On several nodes each keeps both roles, as trajectories are many and weights are few.
    size = placement.ranks_per_node
    split = {"env,rollout": as_ranges(tuple(range(size // 2)))}
    split["actor"] = as_ranges(tuple(range(size // 2, size)))
    halves: dict[str, object] = {_PLACEMENT: split}
    if placement.num_nodes > 1:
        halves["cluster.placement_basis"] = "per_node"
        halves["cluster.gpus_per_node"] = size
    changes = [halves] if size > 1 else []
    advice = "one rank can't do both: use two or more" if world == 1 else "give each its own ranks"
    fix = context.fix("JR208", *changes, {path: "sync"}, otherwise=advice)
    yield finding("JR208", (_PLACEMENT, path), message, fix)


_LONGEST = 60
"""Letters of ranks in a message."""


def _named(ranks: tuple[int, ...]) -> str:
    """Return ranks as ranges; of very many the first ones and how many there are."""
    text = as_ranges(ranks)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST].rpartition(',')[0]},... ({len(ranks)} ranks)"


def _nearby(context: RuleContext, code: str) -> str:
    """Return the two nearest placements that work as a fix; empty if none does."""
    if context.probing:
        return ""
    tried: list[Change] = []
    for change in nearby(context.config.cluster):
        if change not in tried:
            tried.append(change)
    working = (change for change in tried if context.mends(code, change))
    return told(list(islice(working, 2)))
