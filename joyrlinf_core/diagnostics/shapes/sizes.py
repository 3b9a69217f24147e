"""How much of a plan `shape-check` runs. No torch.

T, C, D and the group size stay. Actors are cut to two. Columns of an actor with more than 1,024
samples are cut to the smallest number of whole groups, at least four, whose samples make whole
optimizer steps. Policy tensors of more than 64 MiB are halved along the longest axes of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from joyrlinf_core.config.schema import TensorSpec
from joyrlinf_core.diagnostics.shapes.report import Sizes
from joyrlinf_core.plan.memory import footprint_of
from joyrlinf_core.plan.run_plan import RunPlan

_ACTORS = 2
_SAMPLES = 1024
_GROUPS = 4
"""Synthetic groups come in three kinds; one more stands twice."""
_STORED_BYTES = 64 << 20
"""Policy tensors of all actors that are run."""

Specs = Mapping[str, TensorSpec]


@dataclass(frozen=True)
class Stored:
    """Rows of the policy tensors that a rollout stores, by name."""

    inputs: Specs
    replay: Specs

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return sum(spec.nbytes for spec in (*self.inputs.values(), *self.replay.values()))


def planned_sizes(plan: RunPlan) -> Sizes:
    """Return the sizes of a plan."""
    batch = plan.batch
    return Sizes(
        actors=len(plan.placement.actor_ranks),
        t=batch.t_eff,
        columns=batch.columns_per_actor,
        group_size=batch.group_size,
        chunk=batch.chunk_size,
        action_dim=batch.action_dim,
        optimizer_steps=batch.optimizer_steps_per_epoch,
        micro_batch=plan.config.actor.micro_batch_size,
    )


def sizes_to_run(planned: Sizes) -> Sizes:
    """Return the sizes to run, by the rule at the top."""
    actors = min(planned.actors, _ACTORS)
    if planned.samples <= _SAMPLES:
        return replace(planned, actors=actors)
    per_group = planned.t * planned.group_size
    whole = planned.step_rows // gcd(planned.step_rows, per_group)
    groups = min(-(-_GROUPS // whole) * whole, planned.groups)
    return replace(
        planned,
        actors=actors,
        columns=groups * planned.group_size,
        optimizer_steps=groups * per_group // planned.step_rows,
    )


def stored_by(plan: RunPlan) -> tuple[Stored, str]:
    """Return what the policy stores of one row, and a note where it does not tell."""
    footprint = footprint_of(plan.config)
    if footprint is not None:
        return Stored(footprint.inputs, footprint.replay), ""
    env, model = plan.config.env.train, plan.config.actor.model.model_type
    inputs = {
        "images": TensorSpec(env.image_shape, "uint8"),
        "state": TensorSpec((env.state_dim,), "float32"),
    }
    note = f"policies of `{model}` do not tell what they store: images and state, and no replay"
    return Stored(inputs, {}), f"{note}, are taken"


def stored_to_run(stored: Stored, sizes: Sizes) -> Stored:
    """Return the rows to run: the same, or cut so that all of them fit."""
    limit = _STORED_BYTES // (sizes.actors * sizes.samples)
    specs = {("inputs", name): spec for name, spec in stored.inputs.items()}
    specs |= {("replay", name): spec for name, spec in stored.replay.items()}
    while sum(spec.nbytes for spec in specs.values()) > limit:
        key = max(specs, key=lambda key: specs[key].nbytes)
        shape = list(specs[key].shape)
        axis = max(range(len(shape)), key=shape.__getitem__, default=-1)
        if axis < 0 or shape[axis] == 1:
            break
        shape[axis] //= 2
        specs[key] = TensorSpec(tuple(shape), specs[key].dtype)
    return Stored(
        {name: specs["inputs", name] for name in stored.inputs},
        {name: specs["replay", name] for name in stored.replay},
    )


def reduction(planned: Sizes, ran: Sizes, stored: Stored, cut: Stored) -> str:
    """Say what was run of the plan, and why."""
    parts: list[str] = []
    if ran.actors < planned.actors:
        parts.append(f"{ran.actors} of {planned.actors} actors")
    if ran.columns < planned.columns:
        parts.append(
            f"B {ran.columns} of {planned.columns} ({ran.groups} whole groups, "
            f"{ran.optimizer_steps} whole optimizer step{'s' if ran.optimizer_steps > 1 else ''})"
        )
    for before, after in ((stored.inputs, cut.inputs), (stored.replay, cut.replay)):
        parts += [
            f"{name} as {list(after[name].shape)}"
            for name, spec in before.items()
            if after[name] != spec
        ]
    if not parts:
        return "ran in full"
    return f"ran reduced: {', '.join(parts)}; T {ran.t} in full"
