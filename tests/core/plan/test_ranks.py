from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.ranks import build_ranks


def test_table_of_two_nodes(make_config):
    config = make_config(
        {
            "cluster.num_nodes": 2,
            "cluster.gpus_per_node": 3,
            "cluster.placement_basis": "per_node",
            "cluster.component_placement": {"env,rollout": "0-1", "actor": "1-2"},
            "env.train.total_num_envs": 64,
        }
    )
    placement = resolve_placement(config.cluster)
    ranks = build_ranks(config, placement, build_batch(config, placement, "train"))
    told = [
        (r.rank, r.node, r.local_rank, "+".join(r.roles), r.first_env, r.envs, r.groups)
        for r in ranks
    ]
    assert told == [
        (0, 0, 0, "env+rollout", 0, 16, 2),
        (1, 0, 1, "env+rollout+actor", 16, 16, 2),
        (2, 0, 2, "actor", 0, 0, 0),
        (3, 1, 0, "env+rollout", 32, 16, 2),
        (4, 1, 1, "env+rollout+actor", 48, 16, 2),
        (5, 1, 2, "actor", 0, 0, 0),
    ]


def test_two_processes_share_a_gpu(make_config):
    config = make_config(
        {
            "launcher.mps": True,
            "cluster.num_nodes": 2,
            "cluster.gpus_per_node": 4,
            "cluster.component_placement": {"env,rollout,actor": "0-7"},
        }
    )
    placement = resolve_placement(config.cluster)
    ranks = build_ranks(config, placement, build_batch(config, placement, "train"))
    assert [rank.device for rank in ranks] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [rank.local_rank for rank in ranks] == [0, 1, 2, 3, 0, 1, 2, 3]
