import pytest

from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher.nodes.settings import NodeOptions, NodeSettings, node_settings

BY_HAND = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "3000"}
SLURM = {
    "SLURM_NNODES": "4", "SLURM_STEP_NUM_NODES": "4", "SLURM_NODEID": "3", "SLURM_JOB_ID": "71042",
    "SLURM_JOB_NODELIST": "gpu[003-005,9]", "SLURM_STEP_NODELIST": "gpu[003-005,9]",
    "SLURM_STEP_NUM_TASKS": "4",
}  # fmt: skip


def settings(environ, num_nodes=2, ranks=8, **options):
    return node_settings(NodeOptions(**options), num_nodes, ranks, environ)


def test_options_go_before_variables_before_slurm():
    assert settings(BY_HAND) == NodeSettings(2, 1, "10.0.0.1", 3000, 300.0)
    options = {"node_rank": 0, "master_addr": "head", "master_port": 4000, "timeout": 5.0}
    assert settings(BY_HAND, **options) == NodeSettings(2, 0, "head", 4000, 5.0)
    both = {**SLURM, "NNODES": "2", "NODE_RANK": "0"}
    assert settings(both | {"SLURM_STEP_NUM_TASKS": "2"}).nnodes == 2
    assert settings(SLURM, num_nodes=4) == NodeSettings(4, 3, "gpu003", 29500 + 42, 300.0)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node7", "node7"),
        ("node7,node9", "node7"),
        ("node[7,9]", "node7"),
        ("node[007-012,20],login", "node007"),
        ("r[1-2]n[03-04]x,other", "r1n03x"),
        ("a-b[5]", "a-b5"),
    ],
)
def test_first_host_of_a_slurm_list(hosts, first):
    found = settings({"SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": hosts})
    assert found.master_addr == first


def test_one_node_needs_nothing_and_fits_any_allocation():
    assert settings({}, num_nodes=1) is None
    assert settings({"SLURM_NNODES": "4", "SLURM_NODEID": "0"}, num_nodes=1) is None
    with pytest.raises(UsageError, match=r"SLURM_STEP_NUM_NODES is 4, but cluster.num_nodes is 1"):
        settings(SLURM, num_nodes=1)


@pytest.mark.parametrize(
    ("environ", "options", "message"),
    [
        ({}, {"nnodes": 3}, "--nnodes is 3, but cluster.num_nodes is 2"),
        (BY_HAND | {"NNODES": "4"}, {}, "NNODES is 4, but cluster.num_nodes is 2"),
        (BY_HAND | {"NPROC_PER_NODE": "4"}, {}, "NPROC_PER_NODE is 4, but the plan has 8 ranks"),
        (BY_HAND | {"NODE_RANK": "2"}, {}, "NODE_RANK is 2, but 2 nodes are numbered 0-1"),
        (BY_HAND | {"NNODES": "1:2"}, {}, "NNODES is '1:2', no number"),
        (BY_HAND | {"MASTER_PORT": "70000"}, {}, "MASTER_PORT is 70000, no port"),
        ({}, {}, "nothing says which of them this one is"),
        ({}, {"node_rank": 0}, "nothing says where node 0 is"),
        (BY_HAND | {"SLURM_STEP_NUM_TASKS": "16"}, {}, "starts this command 16 times on 2 nodes"),
    ],
)
def test_what_contradicts_the_config_is_named(environ, options, message):
    with pytest.raises(UsageError, match=message) as error:
        settings(environ, **options)
    assert error.value.fix
    assert error.value.exit_code == 2


def test_a_node_rank_without_nodes_is_an_error():
    with pytest.raises(UsageError, match=r"--node-rank is 1, but cluster.num_nodes is 1"):
        settings({}, num_nodes=1, node_rank=1)
