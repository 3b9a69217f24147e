"""Jobs on two nodes, with launches that run in this process."""

import threading
from pathlib import Path

import pytest

from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher import jobs, run_directory
from joyrlinf_core.launcher.nodes.endings import Outcome
from joyrlinf_core.launcher.nodes.settings import NodeOptions
from tests.core.launcher.nodes.conftest import free_port
from tests.doubles.checkpoints import write_checkpoint


class Listener:
    on_record = on_notice = lambda self, _: None
    on_tick = close = lambda self: None


class FakeLaunches:
    """Stands for `supervise`; node 0 writes the policy, as rank 0 would."""

    def __init__(self):
        self.calls = []

    def __call__(self, plan, run_dir, listener, *, worker, team, owner):
        self.calls.append((plan.job, team.crew.node, owner, dict(plan.args), run_dir.root.name))
        if plan.job == "sft" and team.crew.node == 0:
            output = Path(plan.args["output"])
            output.mkdir()
            (output / "config.json").write_text("{}")
        return Outcome(0, "completed")

    def of(self, job):
        return sorted(call[1:] for call in self.calls if call[0] == job)


@pytest.fixture
def launches(monkeypatch, tmp_path):
    fake = FakeLaunches()
    monkeypatch.setattr(jobs, "supervise", fake)
    monkeypatch.setattr(jobs, "check_ready", lambda config: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake


@pytest.fixture
def config(make_plan, monkeypatch):
    keys = {
        "cluster": {"num_nodes": 2, "gpus_per_node": 1, "placement_basis": "per_node"},
        "sft": {"steps": 10},
    }
    plan = make_plan(nodes=2, config=keys)

    def build(config, job, args=None):
        return plan.model_copy(update={"job": job, "args": dict(args or {}), "config": config})

    monkeypatch.setattr(jobs, "build_plan", build)
    return plan.config


@pytest.fixture
def on_two_nodes():
    """Returns a function that calls a function with the `Jobs` of each of two nodes."""

    def run(call):
        port, said, results = free_port(), [[], []], [None, None]

        def launcher(node):
            options = NodeOptions(None, node, "127.0.0.1", port, 20.0)
            open_listener = lambda plan, run_dir, speaker: Listener()  # noqa: E731
            here = jobs.Jobs(open_listener, said[node].append, nodes=options)
            try:
                results[node] = call(here)
            except Exception as error:
                results[node] = error

        threads = [threading.Thread(target=launcher, args=(node,)) for node in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        return results, said

    return run


def test_the_policy_is_made_once_for_all_nodes(launches, config, on_two_nodes):
    results, said = on_two_nodes(lambda here: here.train(config))
    assert [result.outcome.exit_code for result in results] == [0, 0], results
    (node, owner, args, name), (other_node, other_owner, other_args, other_name) = launches.of(
        "sft"
    )
    assert (node, owner, other_node, other_owner) == (0, True, 1, False)
    assert (args, name) == (other_args, other_name)
    assert results[0].policy == results[1].policy
    assert (results[0].policy / "config.json").exists()
    assert (results[0].speaker, results[1].speaker[:8]) == ("", "node 0, ")
    assert len(launches.of("train")) == 2
    assert all("no policy for this config yet" in "".join(lines) for lines in said)
    on_two_nodes(lambda here: here.train(config))
    assert len(launches.of("sft")) == 2
    assert len(launches.of("train")) == 4


def test_a_run_goes_on_from_the_same_checkpoint_on_all_nodes(launches, config, on_two_nodes):
    run_dir = run_directory.create(jobs.build_plan(config, "train"))
    for step in (1, 2):
        write_checkpoint(run_dir.checkpoint(step))
    results, _ = on_two_nodes(lambda here: here.resume(config, run_dir, run_dir.checkpoint(2)))
    assert [result.outcome.exit_code for result in results] == [0, 0], results
    assert [call[1] for call in launches.of("train")] == [True, False]

    def mixed(here):
        return here.resume(config, run_dir, run_dir.checkpoint(1 + here._nodes.node_rank))

    for error in on_two_nodes(mixed)[0]:
        assert isinstance(error, UsageError)
        assert "checkpoint is global_step_1 (" in str(error)
        assert " and global_step_2 (" in str(error)


def test_a_config_for_several_nodes_says_how_to_start_it(launches, config):
    with pytest.raises(UsageError, match="nothing says which of them this one is") as error:
        jobs.Jobs(lambda *_: Listener(), print).train(config)
    assert "--node-rank K" in error.value.fix
    assert launches.calls == []
