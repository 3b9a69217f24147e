import errno
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.errors import EnvironmentNotReadyError, UsageError
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.plan.run_plan import RunPlan
from tests.doubles.checkpoints import corrupt, write_checkpoint


def complete(run_dir, *steps):
    for step in steps:
        write_checkpoint(run_dir.checkpoint(step))


def test_new_run_never_shares_a_directory_and_holds_its_inputs(make_plan):
    plan = make_plan()
    made = [run_directory.create(plan).root for _ in range(3)]
    assert len(set(made)) == 3
    assert all(path.parent.name == "runs" for path in made)
    written = RunPlan.model_validate_json((made[0] / "plan.json").read_text())
    assert written == plan
    loaded = load_config(made[0] / "config.yaml")
    assert loaded.findings == ()
    assert loaded.config == plan.config


def test_place_that_is_no_directory_names_the_key_to_change(make_plan, tmp_path):
    (tmp_path / "file").write_text("")
    plan = make_plan(config={"runner": {"logger": {"log_path": str(tmp_path / "file")}}})
    with pytest.raises(EnvironmentNotReadyError, match="can't make a run directory") as caught:
        run_directory.create(plan)
    assert "runner.logger.log_path" in caught.value.fix


def test_full_disk_is_found_before_the_start(make_plan, monkeypatch):
    usage = namedtuple("usage", "total used free")(1, 1, 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    plan = make_plan()
    with pytest.raises(EnvironmentNotReadyError, match="only 1 MiB are free"):
        run_directory.create(plan)
    assert not Path(plan.config.runner.logger.log_path).exists()


def test_a_directory_that_can_not_be_filled_is_removed_again(make_plan, monkeypatch):
    def full(_run_dir, _plan):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_directory, "write_inputs", full)
    plan = make_plan()
    with pytest.raises(EnvironmentNotReadyError, match="No space left"):
        run_directory.create(plan)
    assert not list(Path(plan.config.runner.logger.log_path).glob("*/runs/*"))


def test_a_run_is_found_from_anywhere_inside_it(make_plan, tmp_path, monkeypatch):
    run_dir = run_directory.create(make_plan())
    complete(run_dir, 3)
    link = tmp_path / "link"
    link.symlink_to(run_dir.root)
    monkeypatch.chdir(run_dir.root.parent)
    for text in (
        str(run_dir.root),
        f"{run_dir.root}/",
        run_dir.root.name,
        str(run_dir.checkpoints),
        str(run_dir.checkpoint(3) / "actor"),
        str(link),
    ):
        assert run_directory.find_run(text, root=tmp_path) == run_dir, text


def test_latest_is_the_newest_run_of_the_job(make_plan, tmp_path):
    root = tmp_path / "results"
    first, second = (run_directory.create(make_plan()) for _ in range(2))
    assert run_directory.find_run("latest", root=root) == second
    plan = json.loads(second.plan.read_text())
    second.plan.write_text(json.dumps({**plan, "job": "sft"}))
    assert run_directory.find_run("latest", root=root) == first
    assert run_directory.list_runs(root) == [first, second]


@pytest.mark.parametrize("text", ["latest", "/no/such/run", "/tmp"])
def test_what_is_no_run_is_a_usage_error(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        run_directory.find_run(text, root=tmp_path)
    assert caught.value.fix


def test_newest_whole_checkpoint_unless_one_is_named(make_plan):
    run_dir = run_directory.create(make_plan())
    skipped = []

    def find(text):
        return run_directory.find_checkpoint(text, run_dir, lambda *told: skipped.append(told))

    with pytest.raises(UsageError, match="has no whole checkpoint"):
        find("latest")
    complete(run_dir, 9, 10)
    assert find("latest") == run_dir.checkpoint(10)
    assert find(str(run_dir.checkpoint(9) / "actor") + "/") == run_dir.checkpoint(9)
    with pytest.raises(UsageError, match="global_step_11 is no whole checkpoint"):
        find("global_step_11")
    assert skipped == []


def test_a_broken_newest_checkpoint_is_skipped_and_named(make_plan):
    run_dir = run_directory.create(make_plan())
    complete(run_dir, 9, 10)
    corrupt(run_dir.checkpoint(10))
    run_dir.checkpoint(11).mkdir()
    skipped = []

    def find(text):
        return run_directory.find_checkpoint(text, run_dir, lambda *told: skipped.append(told))

    assert find("latest") == run_dir.checkpoint(9)
    assert [path for path, _ in skipped] == [run_dir.checkpoint(11), run_dir.checkpoint(10)]
    assert "meta.json is missing" in skipped[0][1]
    assert "another checksum" in skipped[1][1]
    with pytest.raises(UsageError, match="another checksum") as caught:
        find("global_step_10")
    assert caught.value.fix.endswith(": global_step_9")
    corrupt(run_dir.checkpoint(9))
    with pytest.raises(UsageError, match="has no whole checkpoint"):
        find("latest")
    assert skipped[-1][0] == run_dir.checkpoint(9)
