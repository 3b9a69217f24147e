import json
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import check_loaded
from joyrlinf_core.plan.catalogue import missing_runtime
from joyrlinf_core.plan.run_plan import RunPlan
from tests.presets.snapshot import FILE, every_plan, numbers

ROOT = Path(__file__).parents[2]

PATHS = {"JR402", "JR702"}
"""Rules about files, which are on the user's machine."""

RESERVE_GB = 8
"""Left for the simulator, the CUDA context and fragmentation."""


@pytest.fixture(scope="module")
def plans():
    return every_plan()


@cache
def load(name):
    return load_config(name)


@pytest.mark.parametrize("name", presets.names())
def test_preset_passes_every_rule(name):
    found = [one for one in check_loaded(load(name)) if one.code not in PATHS]
    assert [one for one in found if one.severity != "info"] == []


@pytest.mark.parametrize("name", presets.names())
def test_train_refuses_what_can_not_run_yet_and_nothing_else(name):
    loaded = load(name)
    errors = [one for one in check_loaded(loaded, "train") if one.severity == "error"]
    refused = [one.message for one in errors if one.code not in PATHS]
    assert sorted(refused) == sorted(missing_runtime(loaded.config))


def test_plans_are_those_of_the_snapshot(plans):
    update = "python -m tests.presets.snapshot writes them; read the difference before you commit"
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    assert {name: numbers(plan) for name, plan in plans.items()} == stored, update


def test_plans_survive_json(plans):
    for plan in plans.values():
        assert RunPlan.model_validate_json(plan.model_dump_json()) == plan


def test_every_preset_fits_the_gpus_that_it_names(plans):
    for name, plan in plans.items():
        meta = presets.read_meta(presets.find(name))
        placement = plan.placement
        sharing = 2 if plan.config.launcher.mps else 1
        if meta.gpus == 0:
            assert plan.config.cluster.device == "cpu"
            continue
        assert meta.gpus == placement.world_size / sharing, name
        peaks = {rank: one.peak for one in plan.memory.ranks for rank in one.ranks}
        half = placement.ranks_per_node // 2
        shared = [
            peak + (peaks[rank + half] if sharing == 2 and rank < half else 0)
            for rank, peak in peaks.items()
        ]
        assert max(shared) / 1e9 + RESERVE_GB <= meta.gpu_memory_gb, name


def test_every_alias_leads_to_its_preset_and_no_name_is_taken_twice():
    listing = presets.listing()
    every = [name for p in listing for name in (p.name, *p.meta.aliases)]
    assert len(every) == len(set(every))
    for preset in listing:
        assert preset.meta.title
        assert all(presets.find(alias) == preset.path for alias in preset.meta.aliases)


def test_quickstart_evaluates_enough_episodes_before_and_after():
    config = load_config("quickstart").config
    assert config.runner.eval_at_start
    assert config.runner.eval_at_end
    assert config.env.eval.num_episodes >= 200


@pytest.mark.slow
def test_a_wheel_holds_the_presets(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {name for name in packed.namelist() if name.startswith("joyrlinf_core/_presets/")}
    assert held == {f"joyrlinf_core/_presets/{name}.yaml" for name in presets.names()}
