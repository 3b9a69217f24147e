"""`RunPlan`: everything derived from a config, computed once and written as `plan.json`.

Workers read it and derive nothing again. See `build.py` for how each number comes about.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from joyrlinf_core.config.schema import Config

Job = Literal["train", "sft", "eval"]
PlacementMode = Literal["colocated", "disaggregated", "split", "hybrid"]


class Placement(BaseModel):
    """Which global rank plays which role."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: PlacementMode
    world_size: int
    num_nodes: int
    ranks_per_node: int
    ranks_per_node_inferred: bool
    env_ranks: tuple[int, ...]
    rollout_ranks: tuple[int, ...]
    actor_ranks: tuple[int, ...]


class BatchPlan(BaseModel):
    """Batch arithmetic, in the letters of the shape contract."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_envs: int
    """E: envs of all ranks."""
    envs_per_rank: int
    """Envs of one env rank, all stages."""
    envs_per_stage: int
    """b: envs of one env rank in one stage."""
    num_groups: int
    """E / G."""
    group_size: int
    """G."""
    chunk_size: int
    """C."""
    action_dim: int
    """D."""
    chunk_steps: int
    """T: chunk steps of one rollout epoch."""
    rollout_epochs: int
    """R."""
    t_eff: int
    """T_eff = R * T."""
    columns_per_actor: int
    """B = E / actors."""
    samples_per_actor: int
    """N = T_eff * B."""
    optimizer_steps_per_epoch: int
    """N / (micro_batch_size * gradient_accumulation_steps)."""
    optimizer_steps_per_update: int
    """The same times update_epoch."""
    eval_episodes: int
    """Held-out episodes of one evaluation; 0 when evaluation is off."""


class RunPlan(BaseModel):
    """The plan of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    job: Job
    args: dict[str, str] = Field(default_factory=dict)
    """Inputs of the job that are no config: `output` (sft: policy directory to write), `policy` and
    `checkpoint` (eval: what to evaluate)."""
    config: Config
    placement: Placement
    batch: BatchPlan
