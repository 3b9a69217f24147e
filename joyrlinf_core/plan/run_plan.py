"""`RunPlan`: everything derived from a config, computed once and written as `plan.json`.

Workers read it and derive nothing again. See `build.py` for how each number comes about.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from joyrlinf_core.config.schema import Config

Job = Literal["train", "sft", "eval"]
PlacementMode = Literal["colocated", "disaggregated", "split", "hybrid"]
Role = Literal["env", "rollout", "actor"]


class Placement(BaseModel):
    """Which global rank plays which role."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    mode: PlacementMode
    world_size: int
    num_nodes: int
    ranks_per_node: int
    ranks_per_node_inferred: bool
    env_ranks: tuple[int, ...]
    rollout_ranks: tuple[int, ...]
    actor_ranks: tuple[int, ...]

    @property
    def metrics_rank(self) -> int:
        """Global rank that collects metrics, writes checkpoints and speaks for the run."""
        return self.actor_ranks[0]

    def node_of(self, rank: int) -> int:
        """Return the node of a global rank."""
        return rank // self.ranks_per_node


class RankPlan(BaseModel):
    """What one process does."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: int
    """Global rank."""
    node: int
    local_rank: int
    """Rank within the node."""
    device: int
    """Number of its GPU within the node, where it runs on one."""
    roles: tuple[Role, ...]
    first_env: int
    """Env id of its first env."""
    envs: int
    """Envs that it simulates, numbered from `first_env` on; 0 without the role `env`."""
    groups: int
    """Groups that these envs make up."""


class BatchPlan(BaseModel):
    """Batch arithmetic, in the letters of the shape contract."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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


class Shard(BaseModel):
    """Neighbouring columns that one rollout rank hands to one actor: whole groups.

    A rollout rank's columns are its envs, stage after stage.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: int
    """Rollout rank."""
    source_column: int
    """First of the columns on the rollout rank."""
    destination: int
    """Actor rank."""
    destination_column: int
    """Where they start in the actor's batch."""
    columns: int
    groups: int

    @property
    def in_process(self) -> bool:
        """Whether both roles are played by one process, so that nothing is sent."""
        return self.source == self.destination


class PairBytes(BaseModel):
    """What one rank sends to another in one training step."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: int
    destination: int
    nbytes: int


class Traffic(BaseModel):
    """Bytes between processes in one training step; None where the policy's sizes are unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    column_bytes: int | None
    """One column of a rollout: everything recorded of one env."""
    trajectories: tuple[PairBytes, ...] | None
    """Rollout -> actor, without what stays in a process."""
    trajectory_bytes: int | None
    """All of these."""
    trajectory_bytes_between_nodes: int | None
    """Of these, bytes that leave a node."""
    weight_receivers: tuple[int, ...]
    """Rollout ranks that have weights of their own and get new ones."""
    weight_bytes: int | None
    """One weight sync to one receiver: trained weights in the precision of the rollout."""
    weight_bytes_all: int | None
    """One weight sync to all receivers."""


class MemoryItem(BaseModel):
    """One thing that takes memory on a rank."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    role: Role
    name: str
    where: Literal["device", "host"]
    when: Literal["always", "predict", "update", "step"]
    """`step` is the optimizer step, after activations are gone."""
    nbytes: int


class RankMemory(BaseModel):
    """Memory of ranks that are alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ranks: tuple[int, ...]
    roles: tuple[Role, ...]
    items: tuple[MemoryItem, ...]
    resident: int
    """Device bytes of one rank that stay."""
    peak: int
    """Device bytes of one rank in the phase that takes most."""
    host: int
    """Host bytes of one rank."""


class MemoryPlan(BaseModel):
    """Estimated memory, without simulators and without the CUDA context."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    parameters: int
    trainable: int
    strategy: Literal["ddp", "fsdp2"]
    """How actors hold what they train: whole, or sharded."""
    predict_rows: int
    """Most rows of one `predict` call."""
    ranks: tuple[RankMemory, ...]


class RunPlan(BaseModel):
    """The plan of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    job: Job
    args: dict[str, str] = Field(default_factory=dict)
    """Inputs of the job that are no config: `output` (sft: policy directory to write), `policy` and
    `checkpoint` (eval: what to evaluate)."""
    config: Config
    placement: Placement
    batch: BatchPlan
    ranks: tuple[RankPlan, ...]
    """Every process, by global rank."""
    shards: tuple[Shard, ...]
    """Which columns of which rollout rank go to which actor, by actor and column."""
    traffic: Traffic
    memory: MemoryPlan | None
    """None where the policy does not tell its sizes."""
