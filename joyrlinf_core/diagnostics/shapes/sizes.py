"""How much of a plan `shape-check` runs. No torch.

C and D stay. Actors are cut to two. Columns of an actor with more than 1,024 samples are cut to the
smallest number of whole groups, at least four, whose samples make whole optimizer steps. Where more
than 8,192 samples, 65,536 actions or 1,024 episodes are left, T and G do not stay either: two
rollout epochs of 16 chunk steps (1,024 actions at most), four groups of 8 and up to four optimizer
steps are run. Policy tensors of more than 64 MiB are halved along the longest axes of their rows.
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
_MANY_SAMPLES, _MANY_ACTIONS, _MANY_EPISODES = 8192, 65536, 1024
"""What an actor may hold whose T and groups are run as planned."""
_EPOCHS, _CHUNK_STEPS, _GROUP_SIZE, _STEPS = 2, 16, 8, 4
"""Most of an actor that holds more."""
_ACTIONS = 1024
"""Actions of an epoch that its chunk steps are cut to as well."""
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
        epochs=batch.rollout_epochs,
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
    sizes = replace(planned, actors=actors)
    if planned.samples > _SAMPLES:
        per_group = planned.t * planned.group_size
        whole = planned.step_rows // gcd(planned.step_rows, per_group)
        groups = min(-(-_GROUPS // whole) * whole, planned.groups)
        sizes = replace(
            sizes,
            columns=groups * planned.group_size,
            optimizer_steps=groups * per_group // planned.step_rows,
        )
    episodes = sizes.epochs * sizes.columns
    few = sizes.samples <= _MANY_SAMPLES and episodes <= _MANY_EPISODES
    return sizes if few and sizes.samples * sizes.chunk <= _MANY_ACTIONS else _small(sizes)


def _small(sizes: Sizes) -> Sizes:
    """Return sizes of which everything that makes a run long is cut."""
    epochs = min(sizes.epochs, _EPOCHS)
    chunk_steps = min(_CHUNK_STEPS, max(1, _ACTIONS // sizes.chunk))
    t = epochs * min(sizes.t // sizes.epochs, chunk_steps)
    size, groups = min(sizes.group_size, _GROUP_SIZE), min(sizes.groups, _GROUPS)
    samples = t * size * groups
    steps = next(
        n for n in range(_STEPS, 0, -1) if n <= sizes.optimizer_steps and t * size % n == 0
    )
    rows = samples // steps
    # As many micro-batches a step as planned, or as many as divide it.
    parts = min(sizes.step_rows // sizes.micro_batch, rows)
    parts = next(n for n in range(parts, 0, -1) if rows % n == 0)
    return replace(
        sizes,
        epochs=epochs,
        t=t,
        columns=groups * size,
        group_size=size,
        optimizer_steps=steps,
        micro_batch=rows // parts,
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
    cut_sizes = (
        ("T", planned.t, ran.t),
        ("G", planned.group_size, ran.group_size),
        ("m", planned.micro_batch, ran.micro_batch),
    )
    parts += [f"{name} {now} of {whole}" for name, whole, now in cut_sizes if now != whole]
    if not parts:
        return "ran in full"
    in_full = f"; T {ran.t} in full" if ran.t == planned.t else ""
    return f"ran reduced: {', '.join(parts)}{in_full}"
