import io

import pytest

from joyrlinf_cli.console.choose import open_console
from joyrlinf_cli.console.follow import FollowConsole
from joyrlinf_cli.console.summary import failure_lines
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.observability.events import Phase, Record, RunStarted, Step, Warned
from joyrlinf_core.observability.run_dir import RunDir


class Plan:
    job = "train"


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path)


def test_a_node_without_metrics_says_where_they_are(run_dir):
    stream = io.StringIO()
    console = FollowConsole(Plan(), run_dir, "node 0, a", stream)
    for rank, event in (
        (8, Phase("start", 0)),
        (0, RunStarted("train", "x", 16, 0, 9)),
        (8, Step(1, {}, {}, 1.0)),
        (9, Warned("slow-disk", "it is slow", "use another")),
    ):
        console.on_record(Record(1.0, rank, event))
    console.on_tick()
    console.on_notice("stop asked for on node 0, a")
    console.close()
    assert stream.getvalue() == (
        f"train: run directory {run_dir.root}; its console is on node 0, a\n"
        "train: the 16 workers of all nodes are up\n"
        "train: rank 9: warning[slow-disk]: it is slow\n  fix: use another\n"
        "train: stop asked for on node 0, a\n"
    )


def test_every_kind_of_console_for_people_is_short_there(run_dir, capsys):
    open_console("plain", Plan(), run_dir, "node 0, a").close()
    assert "its console is on node 0, a" in capsys.readouterr().err
    open_console("off", Plan(), run_dir, "node 0, a").close()
    assert capsys.readouterr().err == ""


def test_a_log_of_another_machine_has_its_host(run_dir):
    digest = Digest("node 1, b: rank 9: x", "", "", run_dir.rank_log(1, 9), (), 5, host="b")
    assert failure_lines(digest)[-1] == f"  log: b:{run_dir.rank_log(1, 9)}"
