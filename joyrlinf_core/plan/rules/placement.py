"""JR2xx: placement and pipeline modes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.placement import (
    ROLES,
    RankSyntaxError,
    idle_ranks,
    limit,
    parse_ranks,
    parsed_entries,
    ranks_per_node,
    role_entries,
)
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_PLACEMENT = "cluster.component_placement"


def _shown(ranks: tuple[int, ...]) -> str:
    """Return ranks as ranges, for example `0-3,6`."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


@rule(
    "JR201",
    reads=(_PLACEMENT,),
    passes={_PLACEMENT: {"env": 0, "rollout, actor": 0}},
    fails={_PLACEMENT: {"env,rolout": 0, "actor": 0}},
)
def roles_are_complete(context: RuleContext) -> Iterator[Finding]:
    """Every role is placed once, and there is no other."""
    entries = role_entries(context.config.cluster)
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.role not in ROLES:
            near = difflib.get_close_matches(entry.role, ROLES, n=1, cutoff=0.6)
            fix = f"did you mean `{near[0]}`?" if near else f"roles are {', '.join(ROLES)}"
            yield finding("JR201", (entry.path,), f"unknown role `{entry.role}`", fix)
        elif entry.role in seen:
            message = f"the role `{entry.role}` is placed twice, in `{seen[entry.role]}` and here"
            yield finding("JR201", (entry.path,), message, "keep one of them")
        seen.setdefault(entry.role, entry.key)
    missing = [role for role in ROLES if role not in seen]
    if missing:
        message = f"no ranks are given for {', '.join(missing)}"
        yield finding("JR201", (_PLACEMENT,), message, "for example `env,rollout,actor: 0-7`")


@rule(
    "JR202",
    reads=(_PLACEMENT,),
    passes={_PLACEMENT: {"env,rollout,actor": "0-1,2,3"}},
    fails={_PLACEMENT: {"env,rollout,actor": "3-0"}},
)
def ranks_are_readable(context: RuleContext) -> Iterator[Finding]:
    """A placement value is `all`, an int, or ranges."""
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
    """`gpus_per_node` is given wherever it can't be inferred."""
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
    yield finding("JR203", (path,), message, f"set {path}, for example 8")


@rule(
    "JR204",
    reads=CLUSTER,
    passes={"cluster.gpus_per_node": 2, _PLACEMENT: {"env,rollout,actor": "0-1"}},
    fails={"cluster.gpus_per_node": 2, _PLACEMENT: {"env,rollout,actor": "0-3"}},
)
def ranks_exist(context: RuleContext) -> Iterator[Finding]:
    """No placement names a rank that the cluster lacks."""
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
                f"the cluster has ranks 0-{size - 1} ({cluster.num_nodes} nodes x gpus_per_node "
                f"{per_node})"
            )
        message = f"`{entry.key}: {entry.value}` names rank {ranks[-1]}, but {holds}"
        yield finding("JR204", (entry.path,), message, f"ranks 0-{size - 1}, or more GPUs")


@rule(
    "JR205",
    reads=CLUSTER,
    passes={_PLACEMENT: {"env,rollout,actor": "0-1"}},
    fails={_PLACEMENT: {"env,rollout,actor": "1"}},
)
def no_rank_is_idle(context: RuleContext) -> Iterator[Finding]:
    """Every rank plays a role."""
    cluster = context.config.cluster
    idle = idle_ranks(cluster)
    if not idle:
        return
    per_node = ranks_per_node(cluster) or 0
    world = per_node * cluster.num_nodes
    told = "" if cluster.gpus_per_node else " (gpus_per_node inferred from the largest rank)"
    plural = "ranks" if len(idle) > 1 else "rank"
    verb = "play" if len(idle) > 1 else "plays"
    message = f"{plural} {_shown(idle)} of 0-{world - 1} {verb} no role{told}"
    fix = "give every rank a role, or number the ranks from 0 and lower cluster.gpus_per_node"
    yield finding("JR205", (_PLACEMENT,), message, fix)


@rule(
    "JR206",
    reads=(*CLUSTER, "algorithm.pipeline_mode"),
    passes={_PLACEMENT: {"env,rollout,actor": "0-1"}},
    fails={_PLACEMENT: {"env,rollout": "0", "actor": "1"}},
)
def sync_is_colocated(context: RuleContext) -> Iterator[Finding]:
    """In this release `sync` runs with env, rollout and actor on the same ranks."""
    placement = context.placement
    if placement is None or placement.mode == "colocated":
        return
    if context.config.algorithm.pipeline_mode != "sync":
        return
    message = (
        f"env {_shown(placement.env_ranks)}, rollout {_shown(placement.rollout_ranks)}, actor "
        f"{_shown(placement.actor_ranks)} is a {placement.mode} placement; it runs from the next "
        "release"
    )
    everything = f"0-{placement.world_size - 1}" if placement.world_size > 1 else "0"
    yield finding("JR206", (_PLACEMENT,), message, f"`env,rollout,actor: {everything}`")


@rule(
    "JR207",
    reads=("algorithm.pipeline_mode",),
    passes={"algorithm.pipeline_mode": "sync"},
    fails={"algorithm.pipeline_mode": "async"},
)
def async_is_not_there_yet(context: RuleContext) -> Iterator[Finding]:
    """In this release there is no asynchronous pipeline."""
    if context.config.algorithm.pipeline_mode == "async":
        path = "algorithm.pipeline_mode"
        yield finding("JR207", (path,), "`async` runs from the next release", f"{path} sync")
