import os
import sys
from pathlib import Path

import pytest

from joyrlinf_core.config.schema import Config
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.run_plan import BatchPlan, Placement

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture
def make_plan(tmp_path, monkeypatch):
    """Returns a function that makes a plan of the fake env and model; workers can read it too."""
    monkeypatch.syspath_prepend(str(HERE))
    places = [str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))

    def make(*, ranks=1, nodes=1, config=None, **args):
        full = {
            "env": {"train": {"type": "fake_parts:FakeEnv"}},
            "actor": {"model": {"model_type": "fake_parts:FakeModel"}},
            "runner": {"logger": {"log_path": str(tmp_path / "results"), "logger_backends": []}},
            **(config or {}),
        }
        every = tuple(range(ranks * nodes))
        placement = Placement(
            mode="colocated", world_size=ranks * nodes, num_nodes=nodes, ranks_per_node=ranks,
            ranks_per_node_inferred=True, env_ranks=every, rollout_ranks=every, actor_ranks=every,
        )  # fmt: skip
        batch = BatchPlan(**dict.fromkeys(BatchPlan.model_fields, 1))
        return assemble("train", args, Config.model_validate(full), placement, batch)

    return make


@pytest.fixture
def fake_worker():
    return [str(HERE / "fake_worker.py")]


@pytest.fixture(autouse=True)
def _forget_fake_parts():
    yield
    sys.modules.pop("fake_parts", None)
