"""Every shipped preset can be read, passes the rules and has a plan."""

import pytest

from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan, check_loaded


@pytest.mark.parametrize("name", presets.names())
def test_preset_has_a_plan(name):
    loaded = load_config(name)
    assert [f for f in check_loaded(loaded) if f.severity == "error"] == []
    assert loaded.config is not None
    assert build_plan(loaded.config, "train").placement.world_size >= 1


@pytest.mark.parametrize("preset", presets.listing(), ids=lambda preset: preset.name)
def test_preset_describes_itself(preset):
    assert preset.meta.title
    assert preset.meta.expected


def test_there_are_presets():
    assert "quickstart" in presets.names()
