import json

import pytest

from joyrlinf_cli.render.links import report_json, report_lines
from joyrlinf_core.diagnostics.links.facts import LOOPBACK, RankFacts
from joyrlinf_core.diagnostics.links.hardware import UNKNOWN, Link
from joyrlinf_core.diagnostics.links.journal import Journal, Measurements, Row, read_journal
from joyrlinf_core.diagnostics.links.report import (
    LinkReport,
    group_results,
    slowest,
    wrong_numbers,
)
from joyrlinf_core.diagnostics.links.steps import LinkGroup, make_steps
from joyrlinf_core.observability.run_dir import RunDir

NVLINK = Link("NVLink x18", 450e9)
SIZES = (1024, 64 * 2**20)
GROUP = LinkGroup("world", "nccl", True, (0, 1, 2), 0)
FACTS = tuple(
    RankFacts(rank, 0, "host", "NVIDIA H200", f"u{rank}", "2.13", "2.27.5", {"NCCL_DEBUG": "WARN"})
    for rank in range(3)
)


def measured(rates, link=NVLINK, errors=None):
    """Every step takes bytes / 100e9 s, those of a pair as `rates` says; 10 us at least."""
    steps = make_steps([GROUP], SIZES, per_pair=False)
    rows = []
    for step in steps:
        rate = rates.get(step.ranks, 100e9) if step.operation == "p2p" else 100e9
        seconds = max(step.nbytes / rate, 1e-5)
        wrong = (errors or {}).get(step.text, {})
        rows.append(Row(step.index, step.nbytes, seconds, 3, wrong))
    links = {(a, b, "nccl"): link for a, b in ((0, 1), (1, 2), (0, 2))}
    return Measurements(FACTS, (GROUP,), steps, links, tuple(rows))


def test_rates_are_bytes_by_time_and_what_the_link_carried():
    (result,) = group_results(measured({}))
    rows = {(row.operation, row.nbytes): row for row in result.rows if row.operation != "p2p"}
    assert rows["all_reduce", SIZES[1]].algorithm_rate == pytest.approx(100e9)
    assert rows["all_reduce", SIZES[1]].bus_rate == pytest.approx(4 / 3 * 100e9)
    assert rows["all_to_all", SIZES[1]].bus_rate == pytest.approx(2 / 3 * 100e9)
    assert result.connect_seconds == pytest.approx(1e-5)
    assert result.link == NVLINK


def test_a_pair_far_below_the_best_one_is_marked():
    (result,) = group_results(measured({(0, 1): 380e9, (1, 2): 350e9, (0, 2): 120e9}))
    pairs = {pair.ranks: pair for pair in result.pairs}
    assert [pair.ranks for pair in result.pairs if pair.slow] == [(0, 2)]
    assert pairs[0, 2].share == pytest.approx(120 / 380)
    assert pairs[0, 1].latency == pytest.approx(1e-5)
    text = "\n".join("".join(part for part, _ in line) for line in report_lines(report(result)))
    assert "NVLink x18, 450 GB/s" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith("SLOW")] == ["0-2"]
    assert "1 slow pair" in text


def test_processes_of_one_machine_are_not_compared_by_gloo():
    (result,) = group_results(measured({(0, 2): 1e9}, link=LOOPBACK))
    assert not any(pair.slow for pair in result.pairs)


def test_other_kinds_of_link_are_not_compared():
    found = measured({(0, 2): 10e9})
    found.links[0, 2, "nccl"] = Link("eth0", 12e9)
    (result,) = group_results(found)
    assert not any(pair.slow for pair in result.pairs)
    assert result.link == Link("eth0", 12e9)


def test_the_slowest_link_is_unknown_if_one_is():
    assert slowest([NVLINK, Link("eth0", 1e9)]) == Link("eth0", 1e9)
    assert slowest([NVLINK, LOOPBACK]) == LOOPBACK
    assert slowest([]) == UNKNOWN


def report(*results, failure=None):
    return LinkReport(3, 1, FACTS, results, 0, failure, 5 if failure else 0)


def test_wrong_numbers_are_told():
    text = "all_reduce 64 MiB of world (nccl)"
    (result,) = group_results(measured({}, errors={text: {"2": "1 of 9 numbers are wrong"}}))
    failure = wrong_numbers([result])
    assert failure.ranks == (2,)
    assert "all_reduce" in failure.message
    shown = report(result, failure=failure)
    text = "\n".join("".join(part for part, _ in line) for line in report_lines(shown))
    assert "WRONG on rank 2" in text
    assert "numbers wrong in 1 of 12 measurements" in text
    assert wrong_numbers(group_results(measured({}))) is None


def test_table_names_what_was_used():
    lines = report_lines(report(*group_results(measured({}))))
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    assert text.splitlines()[0] == "3 ranks on 1 node, torch 2.13, NCCL 2.27.5"
    assert "ranks 0-2: NVIDIA H200, node 0 (host)" in text
    assert "GLOO_SOCKET_IFNAME not set, NCCL_SOCKET_IFNAME not set, NCCL_DEBUG WARN" in text
    row = next(line for line in text.splitlines() if "all_reduce" in line and "64 MiB" in line)
    assert row.split()[3:] == ["671", "us", "100", "133", "30%", "right"]


def test_json_is_one_document():
    document = json.loads(report_json(report(*group_results(measured({})))))
    assert (document["schema"], document["ok"]) == (1, True)
    assert document["groups"][0]["link"] == {"name": "NVLink x18", "bytes_per_second": 450e9}
    assert {row["operation"] for row in document["groups"][0]["rows"]} == {
        "p2p", "all_to_all", "broadcast", "all_reduce",
    }  # fmt: skip


def test_a_journal_is_read_up_to_its_last_whole_line(tmp_path):
    run_dir = RunDir(tmp_path)
    assert read_journal(run_dir) == Measurements()
    whole = measured({}, errors={"connect of world (nccl)": {"1": "wrong"}})
    journal = Journal(run_dir)
    journal.begin(whole.facts, whole.groups, whole.steps, whole.links)
    for row in whole.rows:
        journal.add(row)
    assert read_journal(run_dir) == whole
    file = tmp_path / "links.jsonl"
    file.write_text(file.read_text()[:-5])
    assert read_journal(run_dir).rows == whole.rows[:-1]
