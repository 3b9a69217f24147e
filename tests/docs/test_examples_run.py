"""The four example plug-ins train together, through the command line and its worker processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from joyrlinf_core.observability import metric_names
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("point")
    command = [sys.executable, "-m", "joyrlinf_cli.main", "train", "--json", "--console", "off"]
    config = ["--config", "tests/docs/examples/point.yaml"]
    results = ["--set", f"runner.logger.log_path={folder / 'results'}"]
    finished = subprocess.run(
        [*command, *config, *results],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_it_learns(result):
    assert result["ok"]
    assert result["steps"] == 10
    assert result["before"]["episodes"] == result["after"]["episodes"] == 200
    assert result["after"]["ci_low"] > result["before"]["ci_high"]


def test_the_console_finds_its_numbers(result):
    lines = (Path(result["run_dir"]) / "events.jsonl").read_text().splitlines()
    steps = [event for event in map(json.loads, lines) if event["kind"] == "step"]
    assert len(steps) == 10
    # The ratio of the example's loss has no metrics; those of the rollout are always there.
    shown = {
        metric_names.SUCCESS_RATE,
        metric_names.RETURN_MEAN,
        metric_names.ENV_STEPS,
        metric_names.SAMPLES,
        metric_names.GRAD_NORM,
    }
    assert shown <= set(steps[-1]["metrics"])


def test_it_leaves_a_checkpoint_that_is_complete(result):
    actor = Path(result["checkpoint"]) / "actor"
    assert {"model.pt", "optimizer.pt", "scheduler.pt", "meta.json"} <= {
        path.name for path in actor.iterdir()
    }
