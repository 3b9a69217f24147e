"""A policy family that tells its sizes, with numbers that are easy to add up by hand."""

from __future__ import annotations

from joyrlinf_core.config.schema import EnvConfig
from joyrlinf_core.config.schema.footprint import Footprint, TensorSpec
from tests.doubles.toy import ToyModel


class SizedModel(ToyModel):
    """A million weights by default; stores a picture, a state and one chain."""

    weights: int = 1_000_000
    """Weights."""

    train_expert_only: bool = False
    """Train a tenth of the weights."""

    row: int = 1_000
    """Working memory of `predict` per row; the update takes ten times that."""

    def footprint(self, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint:
        trainable = self.weights // 10 if self.train_expert_only else self.weights
        return Footprint(
            parameters=self.weights,
            trainable=trainable,
            sharding_unit=self.weights // 20,
            inputs={
                "images": TensorSpec(env.image_shape, "uint8"),
                "state": TensorSpec((env.state_dim,), "float32"),
            },
            replay={"x": TensorSpec((2, 5), "float32"), "step": TensorSpec((), "int64")},
            predict_flops=2.0 * self.weights,
            update_flops=6.0 * trainable,
            predict_bytes=self.row,
            activation_bytes=(1 if gradient_checkpointing else 10) * self.row,
        )
