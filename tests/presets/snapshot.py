"""Key numbers of every preset's plan: `python -m tests.presets.snapshot` writes `plans.json`."""

from __future__ import annotations

import json
from pathlib import Path

from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.placement import as_ranges
from joyrlinf_core.plan.run_plan import RunPlan

FILE = Path(__file__).with_name("plans.json")


def numbers(plan: RunPlan) -> dict[str, object]:
    placement, batch, config = plan.placement, plan.batch, plan.config
    algorithm, actor = config.algorithm, config.actor
    memory = plan.memory
    assert memory is not None
    return {
        "mode": f"{algorithm.pipeline_mode}, {placement.mode}",
        "algorithm": f"{algorithm.adv_type}, {algorithm.loss_type}",
        "levels": f"{algorithm.reward_type}, {algorithm.logprob_type}",
        "nodes x ranks": f"{placement.num_nodes} x {placement.ranks_per_node}",
        "env ranks": as_ranges(placement.env_ranks),
        "rollout ranks": as_ranges(placement.rollout_ranks),
        "actor ranks": as_ranges(placement.actor_ranks),
        "E": batch.num_envs,
        "envs of a rank and stage": batch.envs_per_stage,
        "G": batch.group_size,
        "C x D": f"{batch.chunk_size} x {batch.action_dim}",
        "R": batch.rollout_epochs,
        "T": batch.chunk_steps,
        "T_eff": batch.t_eff,
        "B": batch.columns_per_actor,
        "N": batch.samples_per_actor,
        "micro-batch x accumulation": (
            f"{actor.micro_batch_size} x {actor.gradient_accumulation_steps}"
        ),
        "optimizer steps": batch.optimizer_steps_per_update,
        "evaluation episodes": batch.eval_episodes,
        "parameters": memory.parameters,
        "trainable": memory.trainable,
    }


def every_plan() -> dict[str, RunPlan]:
    plans = {}
    for name in presets.names():
        config = load_config(name).config
        assert config is not None, f"preset {name} is broken"
        plans[name] = build_plan(config, None)
    return plans


if __name__ == "__main__":
    found = {name: numbers(plan) for name, plan in every_plan().items()}
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
