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

from joyrlinf_cli.commands.config import _with_origin
from joyrlinf_cli.render.validation import Report, write_json, write_text
from joyrlinf_core.config import loader, presets
from joyrlinf_core.config.dump import dump_config
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.source_map import plain
from joyrlinf_core.config.yaml_tree import read_tree
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
