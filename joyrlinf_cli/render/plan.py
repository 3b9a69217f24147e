"""A plan in a few lines, for `joyrl validate`."""

from __future__ import annotations

from joyrlinf_cli.render.text import Line, wrapped
from joyrlinf_core.plan.placement import as_ranges
from joyrlinf_core.plan.run_plan import RunPlan


def plan_lines(plan: RunPlan, width: int | None = None) -> list[Line]:
    """Return the plan as lines of plain text: who does what, and the batch arithmetic.

    Args:
        plan: The plan.
        width: Columns that lines are broken to; None: as they are.
    """
    place, batch, config = plan.placement, plan.batch, plan.config
    actor, algorithm, stages = config.actor, config.algorithm, config.rollout.pipeline_stage_num
    nodes = f"{place.num_nodes} node{'s' if place.num_nodes > 1 else ''}"
    inferred = ", gpus_per_node inferred" if place.ranks_per_node_inferred else ""
    per_step = actor.micro_batch_size * actor.gradient_accumulation_steps
    rows = [
        ("placement", f"{place.mode}, {nodes} x {place.ranks_per_node} ranks{inferred}"),
        (
            f"env {as_ranges(place.env_ranks)}",
            f"{batch.envs_per_rank} envs, {_groups(batch.envs_per_rank // batch.group_size)} of "
            f"{batch.group_size} per rank; {batch.num_envs} envs, "
            f"{_groups(batch.num_groups)} in all",
        ),
        (
            f"rollout {as_ranges(place.rollout_ranks)}",
            f"R {batch.rollout_epochs} x T {batch.chunk_steps} chunks of {batch.chunk_size} "
            f"actions, {stages} stage{'s' if stages > 1 else ''} of {batch.envs_per_stage} envs",
        ),
        (
            f"actor {as_ranges(place.actor_ranks)}",
            f"N = T_eff {batch.t_eff} x B {batch.columns_per_actor} = {batch.samples_per_actor} "
            f"samples per rank; / ({actor.micro_batch_size} x {actor.gradient_accumulation_steps} "
            f"= {per_step}) x {algorithm.update_epoch} epochs = "
            f"{batch.optimizer_steps_per_update} optimizer steps per update",
        ),
    ]
    if batch.eval_episodes:
        rows.append(("evaluation", f"{batch.eval_episodes} held-out episodes"))
    names = max(len(name) for name, _ in rows)
    lines: list[Line] = [[(f"  {name:<{names}}  {text}", "")] for name, text in rows]
    return [part for line in lines for part in wrapped(line, width, names + 4)]


def _groups(count: int) -> str:
    return f"{count} group{'' if count == 1 else 's'}"
