"""What `joyrl train --dry-run` prints: the whole plan as tables."""

from __future__ import annotations

from collections.abc import Sequence

from joyrlinf_cli.render.table import heading, shown_bytes, table
from joyrlinf_cli.render.text import Line, wrapped
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.placement import as_ranges
from joyrlinf_core.plan.run_plan import MemoryItem, MemoryPlan, RankPlan, RunPlan, Shard

_WHEN = {
    "always": "all the time",
    "predict": "while acting",
    "update": "while computing the update",
    "step": "in the optimizer step",
}


def dry_run_lines(plan: RunPlan) -> list[Line]:
    """Return the plan as lines: ranks, batch, shard map, traffic, memory."""
    return [
        *_rank_lines(plan),
        *_batch_lines(plan),
        *_shard_lines(plan),
        *_traffic_lines(plan),
        *memory_lines(plan),
    ]


def unrunnable_lines(blockers: Sequence[Finding], width: int | None = None) -> list[Line]:
    """Return the lines that say why this version can plan a config but not run it, if so.

    Args:
        blockers: The findings that say it.
        width: Columns that lines are broken to; None: as they are.
    """
    if not blockers:
        return []
    reasons = "; ".join(f"{one.code} {one.message}" for one in blockers)
    line: Line = [("does not run in this version: ", "bold yellow"), (reasons, "")]
    return [*wrapped(line, width, 2), []]


def _rank_lines(plan: RunPlan) -> list[Line]:
    place = plan.placement
    nodes = f"{place.num_nodes} node{'s' if place.num_nodes > 1 else ''}"
    inferred = ", gpus_per_node inferred from the largest rank"
    told = inferred if place.ranks_per_node_inferred else ""
    title = f"placement: {place.mode}, {nodes} x {place.ranks_per_node} ranks{told}"
    alike: dict[tuple[object, ...], list[RankPlan]] = {}
    for rank in plan.ranks:
        alike.setdefault((rank.roles, rank.envs, rank.groups), []).append(rank)
    rows: list[list[str]] = []
    for ranks in alike.values():
        first, last = ranks[0], ranks[-1]
        ids = f"{first.first_env}-{last.first_env + last.envs - 1}" if first.envs else "-"
        rows.append(
            [
                as_ranges(tuple(rank.rank for rank in ranks)),
                as_ranges(tuple(sorted({rank.node for rank in ranks}))),
                as_ranges(tuple(sorted({rank.local_rank for rank in ranks}))),
                as_ranges(tuple(sorted({rank.device for rank in ranks}))),
                ", ".join(first.roles),
                str(first.envs or "-"),
                str(first.groups or "-"),
                ids,
            ]
        )
    headers = ["rank", "node", "local rank", "GPU", "role", "envs each", "groups each", "env ids"]
    if plan.config.cluster.device == "cpu":
        headers, *rows = [[*cells[:3], *cells[4:]] for cells in (headers, *rows)]
    return [[(title, "bold cyan")], *table(headers, rows, right=("envs each", "groups each"))]


def _batch_lines(plan: RunPlan) -> list[Line]:
    batch, config = plan.batch, plan.config
    actor, epochs = config.actor, config.algorithm.update_epoch
    steps = batch.chunk_steps * batch.chunk_size
    micro, accumulated = actor.micro_batch_size, actor.gradient_accumulation_steps
    per_epoch = batch.samples_per_actor // micro
    actors = len(plan.placement.actor_ranks)
    rows = [
        ("E", batch.num_envs, f"envs, {batch.num_groups} groups of G {batch.group_size}"),
        (
            "S",
            config.rollout.pipeline_stage_num,
            f"pipeline stages of {batch.envs_per_stage} envs on each rank",
        ),
        ("T", batch.chunk_steps, f"chunk steps: {steps} env steps / C {batch.chunk_size}"),
        ("T_eff", batch.t_eff, f"R {batch.rollout_epochs} x T {batch.chunk_steps}"),
        ("B", batch.columns_per_actor, f"columns per actor: E {batch.num_envs} / {actors} actors"),
        ("N", batch.samples_per_actor, "samples per actor: T_eff x B"),
        (
            "micro-batches",
            per_epoch * epochs,
            f"N / {micro} x {epochs} update epochs, on each actor",
        ),
        (
            "optimizer steps",
            batch.optimizer_steps_per_update,
            f"per update: N / ({micro} x {accumulated} accumulated) = "
            f"{batch.optimizer_steps_per_epoch} x {epochs} update epochs",
        ),
    ]
    if batch.eval_episodes:
        rows.append(("evaluation", batch.eval_episodes, "held-out episodes"))
    cells = [[name, str(number), text] for name, number, text in rows]
    return [*heading("batch"), *table(["", "", ""], cells)]


def _shard_lines(plan: RunPlan) -> list[Line]:
    title = heading("shard map: who trains on which columns")
    if all(shard.in_process for shard in plan.shards):
        return [*title, [("  every actor trains on its own rank's columns, in process", "")]]
    alike: dict[tuple[int, int, int, bool], list[Shard]] = {}
    for shard in plan.shards:
        key = (shard.source_column, shard.columns, shard.destination_column, shard.in_process)
        alike.setdefault(key, []).append(shard)
    rows: list[list[str]] = []
    for shards in alike.values():
        first = shards[0]
        size = plan.traffic.column_bytes
        sent = "unknown" if size is None else shown_bytes(first.columns * size)
        rows.append(
            [
                _pairs(shards),
                f"{first.source_column}-{first.source_column + first.columns - 1}",
                f"{first.destination_column}-{first.destination_column + first.columns - 1}",
                str(first.groups),
                "0 (in process)" if first.in_process else sent,
            ]
        )
    headers = ["rollout -> actor rank", "columns", "are its columns", "groups", "bytes each"]
    return [*title, *table(headers, rows, right=("groups", "bytes each"))]


_PAIRS = 8
"""Pairs of ranks that are named one by one."""


def _pairs(shards: Sequence[Shard]) -> str:
    """Return which rank sends to which, of very many the first ones and their number."""
    named = ", ".join(f"{shard.source}->{shard.destination}" for shard in shards[:_PAIRS])
    return named if len(shards) <= _PAIRS else f"{named}, ... ({len(shards)} pairs)"


def _traffic_lines(plan: RunPlan) -> list[Line]:
    traffic = plan.traffic
    trajectories = _or_unknown(traffic.trajectory_bytes)
    if traffic.trajectory_bytes_between_nodes:
        between = shown_bytes(traffic.trajectory_bytes_between_nodes)
        trajectories += f", of these {between} between nodes"
    weights = _or_unknown(traffic.weight_bytes_all)
    if traffic.weight_receivers:
        receivers = as_ranges(traffic.weight_receivers)
        weights += f": {_or_unknown(traffic.weight_bytes)} to each rollout rank of {receivers}"
    else:
        weights += ": rollout and actor share one copy"
    rows = [["trajectories", trajectories], ["weight sync", weights]]
    return [*heading("bytes sent per training step"), *table(["", ""], rows)]


def _or_unknown(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else shown_bytes(nbytes)


def memory_lines(plan: RunPlan) -> list[Line]:
    """Return the memory estimate as a table: what by kind of rank."""
    title = "memory of one rank, estimated without simulators, CUDA context and fragmentation"
    memory = plan.memory
    if memory is None:
        model = plan.config.actor.model.model_type
        text = f"  unknown: policies of `{model}` do not tell their sizes"
        return [*heading(title), [(text, "")]]
    weights = (
        f"  {memory.parameters / 1e6:.4g} M weights, {memory.trainable / 1e6:.4g} M of them "
        f"trained ({memory.strategy}), {plan.config.actor.precision}; "
        f"up to {memory.predict_rows} rows per predict call"
    )
    headers = ["role", "what", *(f"rank {as_ranges(g.ranks)}" for g in memory.ranks), "when"]
    return [
        *heading(title),
        [(weights, "")],
        *table(headers, _memory_rows(memory), right=headers[2:-1]),
    ]


def _memory_rows(memory: MemoryPlan) -> list[list[str]]:
    kinds: dict[tuple[str, str, str, str], None] = {}
    for group in memory.ranks:
        kinds |= dict.fromkeys(_kind(item) for item in group.items)

    def sizes(kind: tuple[str, str, str, str]) -> list[str]:
        found: list[str] = []
        for group in memory.ranks:
            own = [item.nbytes for item in group.items if _kind(item) == kind]
            found.append(shown_bytes(own[0]) if own else "-")
        return found

    rows = [
        [
            role,
            name,
            *sizes((role, name, where, when)),
            _WHEN[when] if where == "device" else "host",
        ]
        for role, name, where, when in kinds
    ]
    totals: Sequence[tuple[str, list[int]]] = (
        ("resident", [group.resident for group in memory.ranks]),
        ("peak", [group.peak for group in memory.ranks]),
        ("host", [group.host for group in memory.ranks]),
    )
    rows += [["", name, *(shown_bytes(size) for size in found), ""] for name, found in totals]
    return rows


def _kind(item: MemoryItem) -> tuple[str, str, str, str]:
    return item.role, item.name, item.where, item.when
