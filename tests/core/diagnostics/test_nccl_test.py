"""Real runs on Gloo; the parts are tested in `links/`."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.diagnostics import nccl_test as module
from joyrlinf_core.diagnostics.links.request import Request
from joyrlinf_core.diagnostics.nccl_test import config_plan, default_ranks, nccl_test, world_plan
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.plan.run_plan import RunPlan

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FAULTY = [str(HERE / "links" / "faulty_worker.py")]

ASYNC = """
extends: maniskill-pi05-async
cluster:
  device: cpu
  component_placement:
    env,rollout: 0-1
    actor: 2-3
"""


def ignore(_text):
    """Stands for a display."""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Where tests leave logs, instead of the system's temporary directory."""
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def faulty(monkeypatch, directory):
    """Returns a function that runs three ranks, one of them with a fault."""
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))

    def run(fault, timeout=60.0):
        monkeypatch.setenv("FAULT", fault)
        request = Request(sizes=(1024, 65536), timeout=timeout)
        plan = world_plan(3, request, "cpu")
        return nccl_test(plan, request, on_step=ignore, say=ignore, worker=FAULTY)

    return run


def test_groups_of_an_async_config_are_tested(tmp_path, directory):
    config = tmp_path / "async.yaml"
    config.write_text(ASYNC)
    request = Request(sizes=(1024,), plan_groups=True)
    seen = []
    plan = config_plan(load_config(config).config, request)
    report = nccl_test(plan, request, on_step=seen.append, say=ignore)
    assert (report.exit_code, report.failure, report.steps_left) == (0, None, 0)
    groups = {result.group.name: result.group for result in report.groups}
    assert groups["world"].ranks == (0, 1, 2, 3)
    assert groups["rollout"].ranks == (0, 1)
    assert groups["actor"].ranks == (2, 3)
    assert groups["weights"].ranks == (0, 1, 2)
    assert groups["weights"].root == 2
    assert groups["trajectories"].same_as == "world"
    assert {group.backend for group in groups.values()} == {"gloo"}
    for result in report.groups:
        assert {row.operation for row in result.rows} == {
            "p2p", "all_to_all", "broadcast", "all_reduce",
        }  # fmt: skip
        assert all(row.seconds > 0 and not row.errors for row in result.rows)
        assert result.connect_seconds > 0
    assert [fact.rank for fact in report.facts] == [0, 1, 2, 3]
    assert any(text.startswith("broadcast 1 KiB of weights") for text in seen)
    assert not list(directory.glob("nccl-test-*"))


def test_a_rank_that_sleeps_is_named(faulty):
    started = time.monotonic()
    report = faulty("sleep:2:broadcast", timeout=3.0)
    assert report.exit_code == 5
    assert report.failure.ranks == (2,)
    assert report.failure.message.startswith(
        "rank 2 did not reach broadcast 1 KiB of world (gloo); the others wait since 3 s"
    )
    assert Path(report.failure.log).name == "node0_rank2.log"
    assert Path(report.failure.log).is_file()
    assert {row.operation for row in report.groups[0].rows} == {"p2p", "all_to_all"}
    assert report.steps_left == 4
    assert time.monotonic() - started < 120


@pytest.mark.slow
def test_a_pair_that_hangs_in_an_operation_is_named(faulty):
    report = faulty("inside:1:p2p 1-2 64 KiB", timeout=3.0)
    assert report.exit_code == 5
    assert report.failure.message.startswith("ranks 1-2 are in p2p 1-2 64 KiB of world (gloo)")


@pytest.mark.slow
def test_a_rank_that_dies_is_named_with_the_place_where_it_was(faulty):
    report = faulty("kill:1:broadcast")
    assert report.exit_code == 5
    assert report.failure.ranks == (1,)
    assert "SIGKILL" in report.failure.message
    assert "last seen after all_to_all 64 KiB of world (gloo)" in report.failure.message


@pytest.mark.slow
def test_wrong_numbers_fail_the_test_at_its_end(faulty, directory):
    report = faulty("corrupt:0:all_reduce")
    assert (report.exit_code, report.steps_left) == (5, 0)
    assert report.failure.ranks == (0,)
    assert "number 5 is 19 instead of 18" in report.failure.message
    assert not list(directory.glob("nccl-test-*"))


@pytest.mark.slow
def test_a_rank_of_another_node_is_named_on_both(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FAULT", "sleep:1:all_reduce")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "links" / "node.py")]
    nodes = [
        subprocess.Popen([*command, str(node), str(port), "5"], stdout=subprocess.PIPE, text=True)
        for node in range(2)
    ]
    for node in nodes:
        out, _ = node.communicate(timeout=200)
        message, _ = json.loads(out)
        assert node.returncode == 5
        assert "rank 1 did not reach all_reduce 1 KiB of world (gloo)" in message


def test_one_rank_has_nothing_to_test():
    request = Request(plan_groups=True)
    config = load_config("quickstart", ["cluster.component_placement={'env,rollout,actor': 0}"])
    plan = config_plan(config.config, request)
    assert plan.placement.world_size == 1
    report = nccl_test(plan, request, on_step=ignore, say=ignore)
    assert (report.exit_code, report.groups) == (0, ())


def test_a_plain_world_is_a_plan_that_workers_can_read():
    request = Request(sizes=(8,), per_pair=True, timeout=7.0)
    plan = world_plan(4, request, "cpu", nodes=2)
    again = RunPlan.model_validate_json(plan.model_dump_json())
    assert (again.placement.world_size, again.placement.num_nodes) == (8, 2)
    assert [rank.local_rank for rank in again.ranks] == [0, 1, 2, 3] * 2
    assert Request.from_args(again.args) == request
    assert again.config.runner.logger.logger_backends == ()


def test_a_config_is_tested_without_its_trackers():
    config = load_config("quickstart", ["runner.logger.logger_backends=[wandb]"]).config
    plan = config_plan(config, Request(plan_groups=True), "cuda")
    assert plan.config.cluster.device == "cuda"
    assert plan.config.runner.logger.logger_backends == ()


def test_default_is_a_rank_per_visible_gpu(monkeypatch):
    monkeypatch.setattr(module, "read_gpus", lambda: (object(),) * 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert default_ranks(None) == 4
    assert default_ranks("cpu") == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    assert default_ranks("cuda") == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert default_ranks(None) == 2


def test_an_interface_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "bogus0")
    request = Request()
    with pytest.raises(EnvironmentNotReadyError, match="GLOO_SOCKET_IFNAME is 'bogus0'"):
        nccl_test(world_plan(2, request, "cpu"), request, on_step=ignore, say=ignore)
