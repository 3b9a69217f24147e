from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.catalogue import catalogue, missing_runtime


def test_what_runs_comes_first_and_like_stands_by_like():
    entries = catalogue()
    assert sorted(entry.preset.name for entry in entries) == presets.names()
    keys = [(bool(entry.missing), entry.simulator, entry.model, entry.mode) for entry in entries]
    assert keys == sorted(keys)


def test_missing_names_everything_that_is_missing():
    config = load_config("maniskill-gr00t-async").config
    assert len(missing_runtime(config)) == 2
    told = " ".join(missing_runtime(config))
    assert all(word in told for word in ("gr00t", "maniskill"))
    assert missing_runtime(load_config("quickstart").config) == ()
