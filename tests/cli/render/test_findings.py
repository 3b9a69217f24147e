import itertools
import re

import pytest

from joyrlinf_cli.render.findings import finding_lines
from joyrlinf_cli.render.plan import plan_lines
from joyrlinf_cli.render.text import wrapped
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan, check_loaded

TEXT = """\
extends: quickstart
algorithm: {filter_rewards: true, rewards_lower_bound: 1.5, rewards_upper_bound: 2}
env: {train: {image_size: huge}}
actor: {model: {action_dim: 7, noise_level: high}, micro_batch_size: 7, gradient_accumulation_steps: 9}
"""  # noqa: E501


def plain(lines):
    return ["".join(text for text, _ in line) for line in lines]


def words(lines):
    return re.sub(r"\s+", " ", " ".join(lines))


@pytest.fixture
def findings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(TEXT)
    loaded = load_config("my.yaml")
    found = check_loaded(loaded)
    assert len(found) >= 5
    return [(finding, loaded.source_map) for finding in found]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_findings_fit_a_terminal(findings, width):
    for finding, sources in findings:
        lines = plain(finding_lines(finding, sources, width))
        for line in lines:
            assert len(line) <= width or " " not in line.strip(), "one word that is longer"
        whole = plain(finding_lines(finding, sources))
        if not any("^" in line for line in whole):
            assert words(lines) == words(whole), "broken between words only"


@pytest.mark.parametrize("width", [30, 60, 100, None])
def test_the_caret_stays_under_its_word(findings, width):
    for finding, sources in findings:
        lines = plain(finding_lines(finding, sources, width))
        for above, line in itertools.pairwise(lines):
            if "^" in line:
                start, stop = line.index("^"), line.rindex("^") + 1
                under = above[start:stop]
                source = TEXT.splitlines()[finding.line - 1]
                assert source[finding.column - 1 :].startswith(under)
                assert under
                assert under == above[start:].split(",")[0].split(":")[0].rstrip("}")


def test_lines_are_broken_behind_their_first_word():
    line = [("error[JR103]", "red"), (": samples per actor do not divide", "bold")]
    assert wrapped(line, None, 4) == [line]
    assert wrapped(line, 25, 4) == [
        [("error[JR103]", "red"), (": samples per", "bold")],
        [("    ", ""), ("actor do not divide", "bold")],
    ]
    assert plain(wrapped([("  = a-word-of-thirty-letters-in-one x y", "")], 10, 4)) == [
        "  = a-word-of-thirty-letters-in-one",
        "    x y",
    ]
    assert wrapped([], 10, 4) == [[]]


def test_a_plan_keeps_its_column():
    lines = plain(plan_lines(build_plan(load_config("quickstart").config, None), 60))
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  ") for line in lines)
    assert lines[1].lstrip() == "inferred"
    assert lines[1].index("inferred") == lines[0].index("colocated")
