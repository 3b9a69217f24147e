import multiprocessing
import time

import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher import policy_cache


def key(make_plan, **changes):
    config = {"sft": {"steps": 10}}
    for path, value in changes.items():
        node = config
        *parents, last = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    env = {"type": "fake_parts:FakeEnv", **config.pop("env", {}).get("train", {})}
    actor = config.pop("actor", {})
    model = {"model_type": "fake_parts:FakeModel", **actor.pop("model", {})}
    config |= {"env": {"train": env}, "actor": {**actor, "model": model}}
    return policy_cache.policy_key(make_plan(config=config).config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("env__train__total_num_envs", 64),
        ("env__train__num_workers", 4),
        ("actor__optim", {"lr": 0.5}),
        ("actor__model__predict_micro_batch_size", 3),
        ("sft__eval_episodes", 50),
        ("runner__max_steps", 7),
        ("algorithm", {"group_size": 4}),
    ],
)
def test_what_leaves_the_policy_as_it_is_keeps_the_key(make_plan, path, value):
    assert key(make_plan, **{path: value}) == key(make_plan)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("env__train__task", "reach"),
        ("env__train__max_episode_steps", 20),
        ("actor__model__width", 16),
        ("actor__precision", "bf16"),
        ("sft__num_demos", 7),
        ("runner__seed", 1),
    ],
)
def test_what_changes_the_policy_changes_the_key(make_plan, path, value):
    assert key(make_plan, **{path: value}) != key(make_plan)


def test_cache_lies_where_xdg_says(make_plan, tmp_path, monkeypatch):
    config = make_plan(config={"sft": {}}).config
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert policy_cache.cached_policy(config).parent == tmp_path / "joyrl" / "policies"


def _hold(target, held, release):
    with policy_cache.reserved(target, lambda: None):
        held.set()
        release.wait(20)


def test_only_one_process_makes_a_policy(tmp_path):
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    target = tmp_path / "policies" / "abc"
    holder = context.Process(target=_hold, args=(target, held, release))
    holder.start()
    assert held.wait(20)
    waited = []

    def on_wait():
        waited.append(time.monotonic())
        release.set()

    with policy_cache.reserved(target, on_wait):
        assert len(waited) == 1
    holder.join()


def test_what_a_crash_left_behind_is_removed(tmp_path):
    target = tmp_path / "abc"
    stale = tmp_path / ".abc.partial-123"
    stale.mkdir()
    other = tmp_path / ".xyz.partial-123"
    other.mkdir()
    partial = policy_cache.fresh_partial(target)
    assert not stale.exists()
    assert other.exists()
    assert not partial.exists()


def test_a_discarded_policy_loses_its_name(tmp_path):
    target = tmp_path / "abc"
    target.mkdir()
    (target / "config.json").write_text("{}")
    policy_cache.discard(target)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_cache_names_the_variable(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentNotReadyError) as caught,
        policy_cache.reserved(tmp_path / "file" / "abc", lambda: None),
    ):
        pass
    assert "XDG_CACHE_HOME" in caught.value.fix
