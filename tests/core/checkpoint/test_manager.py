"""The checkpoints of one run."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from joyrlinf_core.checkpoint.manager import CheckpointManager, load_model_state
from joyrlinf_core.comm.sharding import TrainingState
from joyrlinf_core.config.schema import AlgorithmConfig, RunnerConfig
from joyrlinf_core.config.schema.base import Section


class _Config(Section):
    """Two sections of the whole config."""

    algorithm: AlgorithmConfig = AlgorithmConfig()
    runner: RunnerConfig


def _manager(directory, *, keep=2, **runner) -> CheckpointManager:
    config = _Config(runner=RunnerConfig(seed=7, **runner))
    plan = SimpleNamespace(config=config, placement=SimpleNamespace(world_size=2))
    return CheckpointManager(directory, keep=keep, plan=plan)  # type: ignore[arg-type]


def _state(value: float) -> TrainingState:
    return TrainingState({"w": torch.full((2,), value)}, {"state": {}}, {"last_epoch": 1})


def test_saves_with_its_facts_and_loads(tmp_path):
    manager = _manager(tmp_path / "checkpoints")
    path = manager.save(4, _state(4.0), {"next_episode": 8, "seconds": 1.5})
    assert path == tmp_path / "checkpoints" / "global_step_4"
    loaded = manager.load(path)
    assert loaded.step == 4
    assert loaded.progress == {"next_episode": 8, "seconds": 1.5}
    assert loaded.model["w"].tolist() == [4.0, 4.0]
    assert loaded.optimizer == {"state": {}}
    assert loaded.scheduler == {"last_epoch": 1}
    meta = loaded.meta
    assert (meta.seed, meta.world_size, meta.torch_version) == (7, 2, torch.__version__)
    assert len(meta.config_hash) == 64
    assert "cpu" in meta.rng_states
    step, model = load_model_state(path)
    assert step == 4
    assert torch.equal(model["w"], loaded.model["w"])


def test_keeps_the_newest_and_what_it_was_resumed_from(tmp_path):
    for step in (1, 2):
        _manager(tmp_path).save(step, _state(step), {})
    resumed = _manager(tmp_path, keep=1, resume_dir=str(tmp_path / "global_step_1"))
    for step in (3, 4):
        resumed.save(step, _state(step), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_1", "global_step_4"]
