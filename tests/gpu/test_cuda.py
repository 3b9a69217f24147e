"""The engine on a CUDA device: what CPU tests can't see (device placement, bf16, NCCL)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.comm.sharding import shard
from joyrlinf_core.policies.base import FieldStats, NormStats
from tests.core.engine.harness import make_config, make_policy, run

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_policy(tmp_path_factory.mktemp("policy") / "p", make_config()))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_runs_and_the_first_ratio_holds(
    policy: str, tmp_path: Path, precision: str
) -> None:
    config = make_config(actor__model__model_path=policy, actor__precision=precision)
    status, events = run(config, tmp_path / "run", device="cuda")
    assert status == "completed"
    assert any("train/grad_norm" in step.metrics for step in events.steps)


def test_ppo_with_a_value_head(policy: str, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy,
        actor__model__add_value_head=True,
        algorithm__adv_type="gae",
        algorithm__loss_type="actor_critic",
        algorithm__group_size=1,
        actor__precision="bf16",
        actor__gradient_checkpointing=True,
    )
    _, events = run(config, tmp_path / "ppo", device="cuda")
    assert events.steps[-1].metrics["train/value_loss"] > 0


def test_actions_equal_those_of_the_cpu(policy: str) -> None:
    config = make_config()
    env = config.env.train
    outputs = []
    for device in ("cpu", "cuda"):
        model = config.actor.model.load(Path(policy))
        model.set_precision("fp32")
        model.module.to(device)
        generator = torch.Generator().manual_seed(0)
        observation = Observation(
            images=torch.randint(0, 256, (6, *env.image_shape), generator=generator).byte(),
            state=torch.randn(6, env.state_dim, generator=generator),
            task=torch.zeros(6, dtype=torch.int64),
            prompts=env.task_prompts,
        )
        inputs = {k: v.to(device) for k, v in model.prepare(observation).items()}
        draws = {k: v.to(device) for k, v in model.draw(generator, 6).items()}
        outputs.append(model.predict(inputs, draws, "train"))
    assert torch.allclose(outputs[0].actions, outputs[1].actions.cpu(), atol=1e-4)
    assert torch.allclose(outputs[0].logprobs, outputs[1].logprobs.cpu(), atol=1e-3)


def test_sharded_training_on_one_device(policy: str, tmp_path: Path) -> None:
    """FSDP2 with NCCL; one rank shards nothing, but every hook runs."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
    try:
        config = make_config()
        plain = FieldStats((0.0,) * 4, (1.0,) * 4, (-1.0,) * 4, (1.0,) * 4)
        actions = FieldStats((0.0,) * 2, (1.0,) * 2, (-1.0,) * 2, (1.0,) * 2)
        model = config.actor.model.create(config.env.train, NormStats(plain, actions), seed=0)
        model.module.to("cuda")
        shard(model, torch.device("cuda"))
        count = 4
        observation = Observation(
            images=torch.zeros(count, *config.env.train.image_shape, dtype=torch.uint8),
            state=torch.zeros(count, 4),
            task=torch.zeros(count, dtype=torch.int64),
            prompts=config.env.train.task_prompts,
        )
        inputs = model.prepare(observation)
        on_device = {k: v.cuda() for k, v in inputs.items()}
        draws = {k: v.cuda() for k, v in model.draw(torch.Generator(), count).items()}
        output = model.predict(on_device, draws, "train")
        scores = model.evaluate_actions(on_device, output.replay)
        assert torch.allclose(scores.logprobs, output.logprobs, atol=1e-4)
        scores.logprobs.sum().backward()
        gradients = [p.grad for _, p in model.trainable_parameters() if p.grad is not None]
        assert gradients
    finally:
        torch.distributed.destroy_process_group()
