"""Random changes of every preset: findings or a plan, quickly, and no plan that can't run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joyrlinf_cli.commands.config import _with_origin
from joyrlinf_cli.render.validation import Report, write_json, write_text
from joyrlinf_core.config import loader, presets
from joyrlinf_core.config.dump import dump_config
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.overrides import parse_overrides
from joyrlinf_core.config.source_map import plain
from joyrlinf_core.config.yaml_tree import read_tree
from joyrlinf_core.errors import ConfigError, UsageError
from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.placement import resolve_placement
from tests.core.fuzz.mutations import mutated
from tests.core.fuzz.worker_batches import build_worker_batches

EXAMPLES = int(os.environ.get("JOYRL_FUZZ_EXAMPLES", "1000"))
SECONDS = 5.0
"""Processor time that no config may take; most take a hundredth of it."""

SOURCES = {
    name: (
        plain(read_tree(presets.find(name).read_bytes(), name, [])),
        load_config(name).config.model_dump(mode="json"),
    )
    for name in presets.names()
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working directory of all examples; bases are read once, as reading takes most time."""

    @cache
    def base(raw, file):
        return read_tree(raw, file, [])

    def read(raw, file, findings):
        if file == "my.yaml":
            return read_tree(raw, file, findings)
        tree = base(raw, file)
        return replace(tree, value=dict(tree.value))  # the loader takes `extends` out of it

    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(tmp_path_factory.mktemp("fuzz")):
        patch.setattr(loader, "read_tree", read)
        yield


def check(text, built):
    """Do with a config what `joyrl validate` and `joyrl config show` do, and what workers do."""
    Path("my.yaml").write_text(text, encoding="utf-8")
    started = time.process_time()
    loaded = load_config("my.yaml")
    report = Report.of(loaded)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        write_text([report])
    with contextlib.redirect_stdout(io.StringIO()) as document:
        write_json([report])
    took = time.process_time() - started
    assert took < SECONDS, f"took {took:.1f} s"
    assert json.loads(document.getvalue())["ok"] == report.ok
    assert shown.getvalue().isascii() or "\x1b" not in shown.getvalue()
    assert "\x1b" not in shown.getvalue(), "text of a file must not steer the terminal"
    assert (report.plan is not None) == report.ok
    for finding in report.findings:
        assert finding.message
        assert finding.line is None or finding.file is not None
    if report.plan is None:
        return
    batch, algorithm = report.plan.batch, report.plan.config.algorithm
    key = (batch, report.plan.shards, algorithm.model_dump_json(), report.plan.placement)
    if key not in built:
        build_worker_batches(report.plan)
        built.add(key)
    _with_origin(dump_config(loaded.config), loaded.source_map)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mutated_configs(folder):
    built = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(mutated(SOURCES))
    def run(text):
        check(text, built)

    run()
    assert len(built) > EXAMPLES / 50, "most changes were refused: the fuzz has lost its aim"


@pytest.mark.parametrize("name", presets.names())
def test_presets_themselves_are_buildable(folder, name):
    built = set()
    check(f"extends: {name}\n", built)
    assert built


@pytest.mark.parametrize(
    "sets",
    [
        ["actor.micro_batch_size=25"],
        ["algorithm.group_size=7"],
        ["rollout.pipeline_stage_num=5"],
        ["actor.model.num_action_chunks=7"],
        ["env.train.max_steps_per_rollout_epoch=40"],
        ["env.eval.total_num_envs=3"],
        ["env.eval.num_episodes=100000000"],
        ["algorithm.reward_type=action_level"],
        ["cluster.component_placement={'env,rollout': 0, actor: 0-6}"],
    ],
)
def test_the_double_of_a_run_sees_what_rules_refuse(sets):
    """Without rules, the workers' code is what stumbles."""
    config = load_config("quickstart", sets).config
    assert not Report.of(load_config("quickstart", sets)).ok
    placement = resolve_placement(config.cluster)
    plan = assemble("train", {}, config, placement, build_batch(config, placement, "train"))
    with pytest.raises((AssertionError, ConfigError, IndexError)):
        build_worker_batches(plan)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(max_codepoint=0x2100) | st.sampled_from("{}[]:,-&*!|>'\"#%@ \n\t\0")))
def test_any_text_is_a_tree_or_a_finding(text):
    encoded = [text.encode(name, "surrogatepass") for name in ("utf-8", "utf-16", "utf-32-be")]
    for raw in (text, *encoded):
        findings = []
        tree = read_tree(raw, "f.yaml", findings)
        assert all(finding.severity == "error" and finding.line for finding in findings)
        assert tree is None or plain(tree) is not Ellipsis


@settings(max_examples=300, deadline=None)
@given(st.text(), st.text())
def test_any_override_is_a_finding_or_a_usage_error(key, value):
    for argument in (f"{key}={value}", f"runner.{key}={value}", f"runner.seed={value}", key):
        try:
            layer = parse_overrides([argument])
        except UsageError:
            continue
        assert layer is not None
        assert isinstance(layer.value, dict)
