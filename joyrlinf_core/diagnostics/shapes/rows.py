"""The tensors of a run, with the shapes that they have in the planned run, and the layout table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from joyrlinf_core.batch.layout import AXES
from joyrlinf_core.diagnostics.shapes.report import Sizes, TensorRow

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import TrainBatch
    from joyrlinf_core.config.schema import TensorSpec
    from joyrlinf_core.diagnostics.shapes.run import ShapeRun
    from joyrlinf_core.diagnostics.shapes.sizes import Stored

_BATCH_AXES = {
    "actions": "CD",
    "rewards": "C",
    "dones": "C",
    "terminations": "C",
    "prev_logprobs": "CD",
}
"""Axes of rollout tensors behind T and B."""

_DTYPES = {
    "dones": "bool",
    "terminations": "bool",
    "played": "bool",
    "success": "bool",
    "valid": "bool",
    "finished": "bool",
    "mask": "bool",
    "episode": "int64",
    "group": "int64",
    "task": "int64",
    "versions": "int64",
    "column": "int64",
    "segment": "int64",
    "valid_actions": "int64",
}
"""Types that are not float32."""


class Entry(NamedTuple):
    """A tensor, and what the layout table says about it.

    Attributes:
        stage: Where it comes from.
        name: Name.
        value: The tensor.
        axes: Letters of its leading axes.
        spec: Trailing shape and type that were run, and those of the plan; None behind `axes`.
    """

    stage: str
    name: str
    value: Tensor
    axes: str
    spec: tuple[TensorSpec, TensorSpec] | None = None

    def expected(self, sizes: Sizes) -> tuple[tuple[int, ...], str]:
        """Return shape and type by the layout table."""
        lead = tuple(_length(axis, sizes) for axis in self.axes)
        if self.spec is not None:
            return (*lead, *self.spec[0].shape), self.spec[0].dtype
        return lead, _DTYPES.get(self.name, "float32")


def _length(axis: str, sizes: Sizes) -> int:
    return {
        "T": sizes.t,
        "B": sizes.columns,
        "C": sizes.chunk,
        "D": sizes.action_dim,
        "N": sizes.samples,
        "m": sizes.micro_batch,
    }[axis]


def rollout_entries(run: ShapeRun, stored: Stored) -> Iterator[Entry]:
    """Yield the tensors of the first actor's rollout; `stored` are the planned policy tensors."""
    yield from _batch_entries("rollout", "TB", run.actors[0].rollout, run, stored)


def mask_entries(run: ShapeRun) -> Iterator[Entry]:
    """Yield its masks."""
    mask = run.actors[0].mask
    if mask is not None:
        yield Entry("mask", "segment", mask.segment, "TB")
        yield Entry("mask", "valid", mask.valid, "TBC")
        yield Entry("mask", "finished", mask.finished, "TB")
        yield Entry("mask", "valid_actions", mask.valid_actions, "TB")


def advantage_entries(run: ShapeRun) -> Iterator[Entry]:
    """Yield its advantages."""
    result = run.actors[0].result
    if result is not None:
        level = AXES[run.algorithm.reward_type]
        for name in ("advantages", "returns", "mask", "weights"):
            value = getattr(result, name)
            if value is not None:
                yield Entry("advantage", name, value, f"TB{level}")


def flat_entries(run: ShapeRun, stored: Stored) -> Iterator[Entry]:
    """Yield its rows."""
    flat = run.actors[0].flat
    if flat is not None:
        yield from _batch_entries("flat", "N", flat, run, stored)


def loss_entries(run: ShapeRun, stored: Stored) -> Iterator[Entry]:
    """Yield a micro-batch and its loss."""
    if run.micro_batch is not None and run.micro_output is not None:
        yield from _batch_entries("micro-batch", "m", run.micro_batch, run, stored)
        scores = run.policy.score(run.micro_batch.actions)
        yield Entry("loss", "logprobs", scores.logprobs, "mCD")
        if scores.entropy is not None:
            yield Entry("loss", "entropy", scores.entropy, "m")
        if scores.values is not None:
            yield Entry("loss", "values", scores.values, "m")
        yield Entry("loss", "loss", run.micro_output.loss, "")


def table_row(entry: Entry, run: ShapeRun, storages: set[int]) -> TensorRow:
    """Return the row of a tensor.

    Args:
        entry: The tensor.
        run: The run.
        storages: Addresses of the rollout's tensors; a later tensor there is a view of one.
    """
    value = entry.value
    shape = list(value.shape)
    for axis, letter in enumerate(entry.axes[: len(shape)]):
        if shape[axis] == _length(letter, run.sizes):
            shape[axis] = _length(letter, run.planned)
    if entry.spec is not None:
        shape[len(entry.axes) :] = entry.spec[1].shape
    count = 1
    for length in shape:
        count *= length
    return TensorRow(
        stage=entry.stage,
        tensor=entry.name,
        axes=entry.axes,
        shape=tuple(shape),
        dtype=dtype_name(value),
        nbytes=count * value.element_size(),
        ran=tuple(value.shape),
        is_view=entry.stage != "rollout" and address(value) in storages,
    )


def address(value: Tensor) -> int:
    """Return where a tensor's memory starts; 0 of an empty one."""
    return value.untyped_storage().data_ptr()


def dtype_name(value: Tensor) -> str:
    """Return for example `float32`."""
    return str(value.dtype).removeprefix("torch.")


def _batch_entries(
    stage: str, lead: str, batch: RolloutBatch | TrainBatch, run: ShapeRun, stored: Stored
) -> Iterator[Entry]:
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Mapping):
            planned = getattr(stored, field.name)
            specs: Mapping[str, TensorSpec] = getattr(run.stored, field.name)
            for name, tensor in value.items():
                yield Entry(
                    stage, f"{field.name}.{name}", tensor, lead, (specs[name], planned[name])
                )
        elif value is not None:
            yield Entry(stage, field.name, value, _axes(lead, field.name, run))


def _axes(lead: str, name: str, run: ShapeRun) -> str:
    if lead == "TB":
        return "B" if name == "group" else lead + _BATCH_AXES.get(name, "")
    algorithm = run.algorithm
    if name == "actions":
        return f"{lead}CD"
    if name == "prev_logprobs":
        return lead + AXES[algorithm.logprob_type]
    if name in ("advantages", "mask", "weights", "returns"):
        return lead + AXES[algorithm.reward_type]
    return lead
