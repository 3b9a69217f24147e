from __future__ import annotations

import json
import shutil

import pytest
from pydantic import ValidationError

from joyrlinf_core.errors import CheckpointError, ConfigError
from joyrlinf_core.policies.openpi import OpenPiConfig
from joyrlinf_core.policies.openpi.architecture import VARIANTS, Architecture


def test_every_variant_fits_together():
    assert {name for name, a in VARIANTS.items() if a.problems()} == set()


def test_impossible_sizes_are_all_named():
    problems = Architecture(patch_size=15, vision_heads=7, kv_heads=3, head_dim=3).problems()
    assert len(problems) == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_steps": 1, "ignore_last": True}, "num_steps"),
        ({"num_steps": 1, "noise_method": "flow_cps"}, "num_steps"),
        ({"noise_logvar_range": (0.2, 0.1)}, "noise_logvar_range"),
        ({"variant": "pi1"}, "variant"),
        ({"architecture": {"widht": 3}}, "widht"),
    ],
)
def test_bad_keys(keys, message):
    with pytest.raises(ValidationError, match=message):
        OpenPiConfig(**keys)


def test_tiny_sizes_follow_the_env(env, stats):
    config = OpenPiConfig(variant="tiny-pi0")
    a = config.create(env, stats, seed=0).settings.architecture
    assert (a.image_size, a.action_dim, a.state_dim) == (32, 3, 5)
    assert a.vocab_size < 1000


def test_action_dim_key_wins_over_the_env(env, stats):
    policy = OpenPiConfig(variant="tiny-pi0", action_dim=2).create(env, stats, seed=0)
    assert policy.settings.action_dim == 2


def test_byte_tokenizer(env, stats, tmp_path):
    config = OpenPiConfig(variant="tiny-pi0", tokenizer="bytes")
    policy = config.create(env, stats, seed=0)
    assert policy.settings.architecture.vocab_size == 259
    policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy" / "tokenizer.model").exists()
    assert config.load(tmp_path / "policy").settings.tokenizer == "bytes"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_action_chunks": 11}, "num_action_chunks 11 exceeds the 10 actions"),
        ({"architecture": {"action_dim": 2}}, "3 action dims exceed the model's 2"),
        ({"architecture": {"state_dim": 2}}, "5 state dims exceed the model's 2"),
        ({"architecture": {"heads": 3, "kv_heads": 2}}, "heads 3"),
        ({"discrete_state_input": True}, "needs Pi0.5"),
    ],
)
def test_misfits_to_the_env(env, stats, keys, message):
    with pytest.raises(ConfigError, match=message):
        OpenPiConfig(variant="tiny-pi0", **keys).create(env, stats, seed=0)


@pytest.fixture
def directory(build, tmp_path):
    path = tmp_path / "policy"
    build().save(path)
    return path


CONFIG = OpenPiConfig(variant="tiny-pi0", num_action_chunks=2)


def test_complete_directory(directory):
    assert CONFIG.check_directory(directory) == []


def test_defaults_are_the_directorys_own(directory, build):
    assert CONFIG.settings_of(directory) == build().settings
    assert OpenPiConfig(variant="pi05", num_action_chunks=2).check_directory(directory) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "no weights"),
        ("joyrl", "no normalisation statistics at assets/joyrl/norm_stats.json or joyrl/"),
        ("tokenizer.model", "actor.model.tokenizer_path"),
    ],
)
def test_missing_files(directory, name, message):
    path = directory / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    problems = CONFIG.check_directory(directory)
    assert len(problems) == 1
    assert message in problems[0]
    with pytest.raises(CheckpointError, match="model_path"):
        CONFIG.load(directory)


def test_absent_directory(tmp_path):
    assert CONFIG.check_directory(tmp_path / "none") == [f"{tmp_path / 'none'} is no directory"]


@pytest.mark.parametrize("text", ["{", "[]", '{"joyrl": {}}'])
def test_broken_config_json(directory, text):
    (directory / "config.json").write_text(text)
    problems = CONFIG.check_directory(directory)
    assert len(problems) == 1
    assert "config.json" in problems[0]


def test_broken_statistics(directory):
    document = json.loads((directory / "config.json").read_text())
    del document["joyrl"]
    (directory / "config.json").write_text(json.dumps(document))
    (directory / "joyrl" / "norm_stats.json").write_text("{}")
    problems = CONFIG.check_directory(directory)
    assert len(problems) == 1
    assert "norm_stats.json" in problems[0]


def test_several_statistics_need_a_choice(directory):
    document = json.loads((directory / "config.json").read_text())
    del document["joyrl"]
    (directory / "config.json").write_text(json.dumps(document))
    shutil.copytree(directory / "joyrl", directory / "assets" / "lab" / "arm")
    assert CONFIG.check_directory(directory) == [
        "2 files norm_stats.json: choose one with actor.model.asset_id"
    ]
    chosen = CONFIG.model_copy(update={"asset_id": "lab/arm"})
    assert chosen.check_directory(directory) == []
    assert chosen.settings_of(directory).asset_id == "lab/arm"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"normalize_actions": False}, "normalize_actions is False here and True there"),
        ({"state_clip": 5.0}, "state_clip is 5.0 here and 0.0 there"),
        ({"normalization": "quantile"}, "normalization is quantile here and mean_std there"),
        ({"architecture": {"width": 32}}, "architecture.width is 32 here and 64 there"),
        ({"num_action_chunks": 5}, "num_action_chunks 5 exceeds the 4 actions"),
    ],
)
def test_contradictions_are_errors(directory, keys, message):
    config = OpenPiConfig(**{"variant": "tiny-pi0", "num_action_chunks": 2, **keys})
    problems = config.check_directory(directory)
    assert len(problems) == 1
    assert message in problems[0]


def test_plan_round_trip_changes_nothing(directory):
    again = OpenPiConfig.model_validate_json(CONFIG.model_dump_json())
    assert again == CONFIG
    assert again.check_directory(directory) == []


def test_upstream_directory(directory):
    """A directory from elsewhere takes its sizes from the variant and its own upstream keys."""
    (directory / "config.json").write_text(
        json.dumps({"type": "pi05", "action_dim": 32, "action_horizon": 15, "max_token_len": 120})
    )
    settings = OpenPiConfig(variant="pi05").settings_of(directory)
    assert settings.architecture.horizon == 15
    assert settings.architecture.max_token_len == 120
    assert settings.architecture.width == 2048
    assert (settings.action_dim, settings.normalization) == (3, "quantile")
    assert settings.discrete_state_input is False
