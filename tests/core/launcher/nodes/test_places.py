import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.launcher.nodes import places
from joyrlinf_core.launcher.nodes.crew import NodeError
from joyrlinf_core.launcher.nodes.places import check_policy_place, new_run, old_run


@pytest.fixture
def plans(make_plan, tmp_path, monkeypatch):
    """Returns a function that gives each of two nodes a plan, on one disk or on two."""
    monkeypatch.setattr(places, "SEE_SECONDS", 0.3)

    def make(*disks):
        logger = {"logger_backends": [], "experiment_name": "e"}
        return [
            make_plan(nodes=2, config={"runner": {"logger": logger | {"log_path": str(disk)}}})
            for disk in disks
        ]

    return make


def open_run(plans):
    def action(team):
        with new_run(plans[team.crew.node], team) as place:
            return place

    return action


def files(path):
    return sorted(one.name for one in path.rglob("*"))


@pytest.mark.parametrize("disks", [("d", "d"), ("d", "e")])
def test_one_name_on_all_nodes_on_a_shared_disk_or_on_several(run_nodes, plans, tmp_path, disks):
    nodes = run_nodes(open_run(plans(*(tmp_path / disk for disk in disks))))
    first, second = (node.result for node in nodes)
    shared = disks[0] == disks[1]
    assert first.run_dir.root.name == second.run_dir.root.name
    assert (first.run_dir == second.run_dir) == shared
    assert (first.owner, second.owner) == (True, not shared)
    for place in (first, second):
        assert files(place.run_dir.root) == ["config.yaml", "logs", "plan.json"]


def test_a_node_that_cannot_make_it_leaves_nothing_anywhere(run_nodes, plans, tmp_path):
    (tmp_path / "file").write_text("no directory")
    nodes = run_nodes(open_run(plans(tmp_path / "d", tmp_path / "file")))
    assert isinstance(nodes[1].error, EnvironmentNotReadyError)
    assert isinstance(nodes[0].error, NodeError)
    assert nodes[0].error.exit_code == 4
    assert files(tmp_path / "d") == ["e", "runs"]


def test_one_node_makes_its_directory_as_ever(plans, tmp_path):
    with places.new_run(plans(tmp_path)[0], places.Team()) as place:
        assert place.owner
        assert files(place.run_dir.root) == ["config.yaml", "logs", "plan.json"]


@pytest.mark.parametrize(
    ("names", "owners"), [(("d", "d"), [True, False]), (("d", "e"), [True] * 2)]
)
def test_the_directory_of_an_old_run(run_nodes, plans, tmp_path, names, owners):
    made = {name: run_directory.create(plans(tmp_path / name)[0]) for name in set(names)}

    def action(team):
        with old_run(made[names[team.crew.node]], team) as place:
            return place.owner

    assert [node.result for node in run_nodes(action)] == owners
    assert all(files(one.logs) == [] for one in made.values())


@pytest.mark.parametrize(
    ("there", "shared", "result"),
    [((True, True), False, True), ((False, False), True, False), ((False, True), True, False)],
)
def test_a_policy_is_there_or_can_be_made_for_all(run_nodes, tmp_path, there, shared, result):
    targets = [tmp_path / ("d" if shared else f"d{node}") / "policy" for node in range(2)]

    def action(team):
        node = team.crew.node
        return check_policy_place(team, targets[node], there=there[node])

    assert [node.result for node in run_nodes(action)] == [result] * 2


@pytest.mark.parametrize(
    ("there", "message"),
    [((True, False), "lacks the policy"), ((False, False), "would lack the policy that is made")],
)
def test_a_policy_that_does_not_reach_all_nodes_is_refused(
    run_nodes, tmp_path, monkeypatch, there, message
):
    monkeypatch.setattr(places, "SEE_SECONDS", 0.3)

    def action(team):
        node = team.crew.node
        check_policy_place(team, tmp_path / f"d{node}" / "policy", there=there[node])

    for node in run_nodes(action):
        assert message in str(node.error)
        assert "node 1, " in str(node.error)
        assert "XDG_CACHE_HOME" in str(node.error)
