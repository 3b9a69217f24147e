import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan, check_loaded
from joyrlinf_core.plan.run_plan import RunPlan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", presets.names())
def test_preset_has_no_findings_and_a_plan(name):
    loaded = load_config(name)
    assert check_loaded(loaded) == ()
    plan = build_plan(loaded.config, "train")
    assert RunPlan.model_validate_json(plan.model_dump_json()) == plan


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
