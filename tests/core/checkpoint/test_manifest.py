"""The manifest."""

from __future__ import annotations

import hashlib

import pytest

from joyrlinf_core.checkpoint.manifest import config_hash, problems, read_meta, sha256_of
from joyrlinf_core.config.schema import AlgorithmConfig, RunnerConfig
from joyrlinf_core.config.schema.base import Section


class _Config(Section):
    """Stands in for the whole config: two of its sections."""

    algorithm: AlgorithmConfig = AlgorithmConfig()
    runner: RunnerConfig = RunnerConfig()


def test_hash_ignores_what_a_resumed_run_may_change():
    base = config_hash(_Config())  # type: ignore[arg-type]
    longer = _Config(runner=RunnerConfig(max_steps=5, save_interval=1))
    assert config_hash(longer) == base  # type: ignore[arg-type]
    other = _Config(algorithm=AlgorithmConfig(clip_ratio_low=0.1))
    assert config_hash(other) != base  # type: ignore[arg-type]


def test_sha256(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"joyrl" * 300_000)
    assert sha256_of(path) == hashlib.sha256(b"joyrl" * 300_000).hexdigest()


def test_missing_directory_is_one_problem(tmp_path):
    assert problems(tmp_path / "global_step_1", checksums=True) == [
        f"{tmp_path / 'global_step_1'} is no directory"
    ]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"step": 1}'])
def test_bad_manifest_is_named(tmp_path, content):
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "meta.json").write_text(content)
    found = read_meta(tmp_path)
    assert isinstance(found, str)
    assert "is no checkpoint manifest" in found
    assert len(problems(tmp_path, checksums=False)) == 4
