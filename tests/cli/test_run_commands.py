import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from joyrlinf_cli.commands import eval as eval_command
from joyrlinf_cli.commands import resume, runs, sft, train
from joyrlinf_core.config.dump import to_yaml
from joyrlinf_core.errors import (
    EnvironmentNotReadyError,
    ExitCode,
    MissingExtraError,
    UsageError,
)
from joyrlinf_core.launcher import jobs
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.supervisor import Outcome
from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import (
    CheckpointSaved,
    EvalResult,
    Finished,
    RunStarted,
    Step,
)
from joyrlinf_core.observability.rank_status import RankStatus
from joyrlinf_core.observability.reader import EventTail
from tests.doubles.checkpoints import corrupt, write_checkpoint

FAKE_PARTS = Path(__file__).parents[1] / "core" / "launcher"


@pytest.fixture
def app():
    app = typer.Typer()
    app.command("train")(train.train)
    app.command("sft")(sft.sft)
    app.command("resume")(resume.resume)
    app.command("eval")(eval_command.evaluate)
    app.add_typer(runs.app, name="runs")
    return app


@pytest.fixture
def invoke(app, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE_PARTS))
    path = tmp_path / "my.yaml"
    path.write_text(
        to_yaml(
            {
                "env": {"train": {"type": "fake_parts:FakeEnv"}},
                "actor": {"micro_batch_size": 4, "model": {"model_type": "fake_parts:FakeModel"}},
                "algorithm": {"group_size": 4},
                "runner": {"max_steps": 6, "seed": 1},
                "sft": {"steps": 10},
            }
        )
    )
    yield path
    sys.modules.pop("fake_parts", None)


class FakeLaunches:
    """Stands for `supervise`: writes the events that workers would, in this process."""

    def __init__(self):
        self.plans = []
        self.outcome = Outcome(0, "completed")

    def __call__(self, plan, run_dir, listener, *, worker, team, owner):
        self.plans.append(plan)
        tail = EventTail(run_dir.events, from_end=True)
        emitter = Emitter(run_dir, 0)
        getattr(self, plan.job)(plan, run_dir, emitter)
        emitter.emit(Finished("completed", 3, 1.0))
        emitter.close()
        RankStatus(0, "1:1", "completed", 0.0, 0).write(run_dir.rank_status(0))
        for record in tail.poll():
            listener.on_record(record)
        listener.on_tick()
        return self.outcome

    def sft(self, plan, run_dir, emitter):
        output = Path(plan.args["output"])
        if self.outcome.exit_code == 0:
            output.mkdir()
            (output / "config.json").write_text("{}")
        emitter.emit(Step(10, {"sft/loss": 0.1}, {}, 1.0))

    def train(self, plan, run_dir, emitter):
        emitter.emit(RunStarted("train", str(run_dir.root), 1, 0, 6))
        emitter.emit(EvalResult(0, "start", 200, 0.6, 0.53, 0.67, {}, 9.0, 1.0))
        emitter.emit(Step(3, {"rollout/success_once": 0.7}, {"rollout": 1.0}, 2.0))
        for step in (2, 3):
            write_checkpoint(run_dir.checkpoint(step))
        emitter.emit(CheckpointSaved(3, str(run_dir.checkpoint(3)), 0.1))
        emitter.emit(EvalResult(3, "end", 200, 0.9, 0.85, 0.93, {}, 9.0, 1.0))

    def eval(self, plan, run_dir, emitter):
        emitter.emit(EvalResult(3, "eval", plan.batch.eval_episodes, 0.9, 0.8, 1, {}, 9.0, 1.0))


@pytest.fixture
def launches(monkeypatch):
    fake = FakeLaunches()
    monkeypatch.setattr(jobs, "supervise", fake)
    return fake


def test_train_makes_the_policy_once_and_prints_before_and_after(invoke, config, launches):
    result = invoke("train", config)
    assert result.exit_code == 0, result.output
    assert [plan.job for plan in launches.plans] == ["sft", "train"]
    policy = Path(launches.plans[1].config.actor.model.model_path)
    assert (policy / "config.json").exists()
    assert "no policy for this config yet" in result.stderr
    assert "train 3/6  success 0.700" in result.stderr
    assert "success 0.600 (0.530-0.670) -> 0.900 (0.850-0.930) on 200" in result.stdout
    assert "global_step_3" in result.stdout
    again = invoke("train", config)
    assert [plan.job for plan in launches.plans[2:]] == ["train"]
    assert "using the policy that was made earlier" in again.stderr
    assert not [path for path in policy.parent.iterdir() if "partial" in path.name]


def test_failed_sft_leaves_nothing_half_made_and_no_training_starts(invoke, config, launches):
    digest = Digest("rank 0: no EGL", "line", "install it", Path("x.log"), ("rank 1: y",), 4)
    launches.outcome = Outcome(4, "failed", digest)
    result = invoke("train", config, "--json")
    assert result.exit_code == 4
    assert [plan.job for plan in launches.plans] == ["sft"]
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert document["error"]["headline"] == "rank 0: no EGL"
    for expected in ("error: rank 0: no EGL", "fix: install it", "log: x.log", "afterwards"):
        assert expected in result.stderr


@pytest.mark.parametrize("console", ["plain", "json", "off"])
def test_json_result_is_exactly_one_document(invoke, config, launches, console):
    result = invoke("train", config, "--json", "--console", console)
    document = json.loads(result.stdout)
    assert document["ok"] is True
    assert document["before"]["success_rate"] == 0.6
    assert document["after"]["episodes"] == 200
    assert Path(document["run_dir"]).is_dir()
    if console == "json":
        events = [json.loads(line) for line in result.stderr.splitlines() if line[0] == "{"]
        assert "step" in {event["kind"] for event in events}


def test_dry_run_prints_the_command_and_starts_nothing(invoke, config, launches, tmp_path):
    result = invoke("train", config, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "torch.distributed.run" in result.stdout
    assert "behaviour cloning" in result.stdout
    document = json.loads(invoke("train", config, "--dry-run", "--json").stdout)
    assert document["plan"]["batch"]["num_envs"] == 8
    assert document["torchrun"][0][-1] == "RUN_DIR"
    assert launches.plans == []
    assert not (tmp_path / "results").exists()


def test_missing_simulator_is_found_before_anything_starts(invoke, config, launches, monkeypatch):
    import fake_parts

    def missing(_self):
        raise MissingExtraError("metaworld", "env.train.type: metaworld")

    monkeypatch.setattr(fake_parts.FakeEnv, "check_ready", missing)
    result = invoke("train", config)
    assert isinstance(result.exception, EnvironmentNotReadyError)
    assert "pip install" in result.exception.fix
    assert launches.plans == []


def test_invalid_config_exits_3(invoke, config, launches):
    result = invoke("train", config, "--set", "runner.max_stepz=3")
    assert result.exit_code == 3
    assert launches.plans == []


def test_resume_goes_on_in_the_same_directory_and_names_what_differs(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    result = invoke("resume", "latest", "--set", "runner.max_steps=9", "--json")
    assert result.exit_code == 0, result.output
    plan = launches.plans[-1]
    assert plan.config.runner.resume_dir == str(run_dir / "checkpoints" / "global_step_3")
    assert json.loads(result.stdout)["run_dir"] == str(run_dir)
    assert "differs from the saved config: runner.max_steps: 6 -> 9" in result.stderr
    assert "max_steps: 9" in (run_dir / "config.yaml").read_text()
    again = invoke("resume", run_dir)
    assert "same config as before" in again.stderr


def test_resume_of_a_finished_or_foreign_run_is_refused(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    result = invoke("resume", run_dir, "--set", "runner.max_steps=3")
    assert isinstance(result.exception, UsageError)
    assert "nothing is left to do" in str(result.exception)
    sft_run = next(path for path in run_dir.parent.iterdir() if path != run_dir)
    assert "only training can go on" in str(invoke("resume", sft_run).exception)


def test_resume_skips_a_broken_checkpoint_and_says_why(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    corrupt(run_dir / "checkpoints" / "global_step_3")
    result = invoke("resume", run_dir)
    assert result.exit_code == 0, result.output
    checkpoint = run_dir / "checkpoints" / "global_step_2"
    assert launches.plans[-1].config.runner.resume_dir == str(checkpoint)
    assert "skipped global_step_3: " in result.stderr
    assert "another checksum" in result.stderr
    assert f"going on from {checkpoint}" in result.stderr


def test_eval_of_an_evaluation_repeats_it(invoke, config, launches):
    invoke("train", config)
    run_dir = Path(json.loads(invoke("eval", "latest", "--json").stdout)["run_dir"])
    first = launches.plans[-1].args
    assert invoke("eval", run_dir).exit_code == 0
    assert launches.plans[-1].args == first
    assert first["checkpoint"].endswith("global_step_3")


def test_eval_and_sft_ask_for_their_own_files_only(invoke, config, launches, tmp_path):
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "config.json").write_text("{}")
    written = config.read_text()
    config.write_text(written.replace("sft:\n  steps: 10\n", ""))
    assert "sft" not in config.read_text()
    result = invoke("eval", policy, "--config", config)
    assert result.exit_code == 0, result.output
    assert "JR401" not in result.stderr
    assert "JR401" in invoke("train", config).stderr
    without_section = invoke("sft", config)
    assert without_section.exit_code == 3
    assert "needs an `sft` section" in without_section.stderr
    config.write_text(written)
    missing = ("--set", f"actor.model.model_path={tmp_path / 'absent'}")
    assert "JR402" not in invoke("sft", config, *missing).stderr


def test_eval_of_a_run_and_of_a_policy_directory(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    result = invoke("eval", run_dir, "--episodes", "50", "--json")
    assert result.exit_code == 0, result.output
    plan = launches.plans[-1]
    assert plan.args["checkpoint"] == str(run_dir / "checkpoints" / "global_step_3")
    assert plan.batch.eval_episodes == 50
    assert json.loads(result.stdout)["after"]["episodes"] == 50
    policy = plan.args["policy"]
    alone = invoke("eval", policy, "--config", config)
    assert alone.exit_code == 0, alone.output
    assert launches.plans[-1].args == {"policy": policy}
    assert "success 0.900" in alone.stdout
    wrong = invoke("eval", run_dir.parent, "--config", config)
    assert "no complete policy directory" in str(wrong.exception)


def test_more_held_out_episodes_than_there_are_is_refused(invoke, config, launches, monkeypatch):
    import fake_parts

    monkeypatch.setattr(fake_parts.FakeEnv, "num_eval_episodes_available", 40)
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    assert invoke("eval", run_dir, "--episodes", "40").exit_code == 0
    result = invoke("eval", run_dir, "--episodes", "41")
    assert result.exit_code == ExitCode.CONFIG_INVALID
    assert "asks for 41 episodes, but `type: fake_parts:FakeEnv` has 40" in result.output


def test_sft_writes_where_it_is_told_and_never_over_it(invoke, config, launches, tmp_path):
    result = invoke("sft", config, "--output", tmp_path / "made")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "made" / "config.json").exists()
    assert f"policy  {tmp_path / 'made'}" in result.stdout
    assert "exists" in str(invoke("sft", config, "--output", tmp_path / "made").exception)


def test_runs_list_shows_every_run(invoke, config, launches):
    invoke("train", config)
    result = invoke("runs", "list", "--json")
    rows = json.loads(result.stdout)["runs"]
    assert [(row["job"], row["state"]) for row in rows] == [
        ("sft", "completed"), ("train", "completed"),
    ]  # fmt: skip
    assert rows[1]["success"] == 0.9
    assert "success 0.900" in invoke("runs", "list").stdout


def blot_plan(text):
    return lambda run_dir: (run_dir / "plan.json").write_text(text)


def replace_by_directory(name):
    def spoil(run_dir):
        (run_dir / name).unlink()
        (run_dir / name).mkdir()

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (blot_plan("[]"), "plan.json is damaged: no JSON object"),
        (blot_plan("{"), "plan.json is damaged: no JSON"),
        (blot_plan('{"job": 3}'), "plan.json is damaged: no job and no config and no args in it"),
        (blot_plan("[" * 100_000), "plan.json is damaged"),
        (replace_by_directory("plan.json"), "can't read"),
        (replace_by_directory("events.jsonl"), "Is a directory"),
    ],
)
def test_runs_list_marks_a_run_that_it_cannot_read(invoke, config, launches, spoil, reason):
    good = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    bad = next(path for path in good.parent.iterdir() if path != good)
    spoil(bad)
    result = invoke("runs", "list", "--json")
    assert result.exit_code == 0, result.output
    rows = {row["path"]: row for row in json.loads(result.stdout)["runs"]}
    assert rows[str(good)]["state"] == "completed"
    assert rows[str(bad)]["state"] == "unreadable"
    assert reason in rows[str(bad)]["reason"]
    assert reason in invoke("runs", "list").stdout


def test_runs_list_skips_lines_and_statuses_of_other_shapes(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    with (run_dir / "events.jsonl").open("a") as events:
        events.write('{"kind": ["x"]}\n')
        odd = {"kind": "eval", "time": 1, "rank": 0, "success_rate": "high"}
        events.write(json.dumps(odd) + "\n")
    for rank, text in enumerate(["[]", "{}", '{"rank": 2, "process": "x", "state": "failed"}'], 1):
        (run_dir / "logs" / f"status_rank{rank}.json").write_text(text)
    rows = json.loads(invoke("runs", "list", "--json").stdout)["runs"]
    assert [(row["state"], row["success"]) for row in rows][-1] == ("completed", 0.9)


def test_runs_list_says_why_it_is_empty(invoke, tmp_path):
    result = invoke("runs", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no runs below {tmp_path / 'results'}, which does not exist" in result.stderr
    (tmp_path / "results").mkdir()
    assert result.stderr.replace(", which does not exist", "") == invoke("runs", "list").stderr
    (tmp_path / "file").write_text("")
    wrong = invoke("runs", "list", "--log-path", "file")
    assert "file is no directory" in str(wrong.exception)


@pytest.mark.parametrize("text", ["{", "[]", '{"job": "train"}', '{"job":"train","args":[]}'])
def test_resume_of_a_run_with_a_damaged_plan_names_file_and_reason(invoke, config, launches, text):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    (run_dir / "plan.json").write_text(text)
    result = invoke("resume", run_dir)
    assert isinstance(result.exception, UsageError)
    assert f"{run_dir}/plan.json is damaged: no " in result.exception.message


def test_an_empty_name_is_said_to_be_empty(invoke):
    assert "the name of the config is empty" in str(invoke("train", "").exception)


def test_a_cached_policy_that_is_incomplete_or_cut_short_is_made_anew(invoke, config, launches):
    invoke("train", config)
    policy = Path(launches.plans[1].config.actor.model.model_path)
    (policy / "config.json").rename(policy / "other.json")
    again = invoke("train", config)
    assert again.exit_code == 0, again.output
    assert f"the policy {policy} is made anew: config.json" in again.stderr
    (policy / "model.safetensors").write_bytes(b"\1\2\3")
    assert "model.safetensors is damaged" in invoke("train", config).stderr
    assert [plan.job for plan in launches.plans[2:]] == ["sft", "train"] * 2
    assert sorted(path.name for path in policy.iterdir()) == ["config.json"]


def test_a_damaged_policy_that_the_user_names_is_named(invoke, config, launches, tmp_path):
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "config.json").write_text("{}")
    (policy / "model.safetensors").write_bytes(b"\1\2\3")
    result = invoke("train", config, "--set", f"actor.model.model_path={policy}")
    assert f"{policy / 'model.safetensors'} is damaged" in str(result.exception)
    assert launches.plans == []


def test_a_stop_that_came_too_late_for_cloning_starts_no_training(invoke, config, launches):
    launches.outcome = Outcome(0, "completed", stop_asked=True)
    result = invoke("train", config)
    assert result.exit_code == 130
    assert [plan.job for plan in launches.plans] == ["sft"]


def test_resume_refuses_what_does_not_fit_and_changes_nothing(invoke, config, launches):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    before = (run_dir / "config.yaml").read_text()
    result = invoke("resume", run_dir, "--set", "actor.model.add_value_head=true")
    assert "actor.model.add_value_head: False -> True" in str(result.exception)
    assert (run_dir / "config.yaml").read_text() == before
    assert len(launches.plans) == 2


def test_resume_makes_up_for_the_last_evaluation(invoke, config, launches):
    sets = ("runner.max_steps=3", "runner.eval_at_end=true", "env.eval.num_episodes=10")
    at_end = [part for one in sets for part in ("--set", one)]
    run_dir = Path(json.loads(invoke("train", config, *at_end, "--json").stdout)["run_dir"])
    events = run_dir / "events.jsonl"
    events.write_text(events.read_text().replace('"label": "end"', '"label": "interval"'))
    result = invoke("resume", run_dir)
    assert result.exit_code == 0, result.output
    assert "the evaluation at the end is left" in result.stderr
    assert "nothing is left to do" in str(invoke("resume", run_dir).exception)


def test_eval_takes_a_checkpoint_under_another_config(invoke, config, launches, tmp_path):
    run_dir = Path(json.loads(invoke("train", config, "--json").stdout)["run_dir"])
    checkpoint = run_dir / "checkpoints" / "global_step_3"
    result = invoke("eval", checkpoint, "--config", config)
    assert result.exit_code == 0, result.output
    policy = launches.plans[1].config.actor.model.model_path
    assert launches.plans[-1].args == {"policy": policy, "checkpoint": str(checkpoint)}
    assert f"measuring {checkpoint}" in result.stderr
    assert f"of      {checkpoint}" in result.stdout
    assert "eval: success" in result.stderr
    alone = tmp_path / "copied" / "global_step_3"
    write_checkpoint(alone)
    assert "lies in no run" in str(invoke("eval", alone, "--config", config).exception)
