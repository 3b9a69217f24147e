from collections import Counter
from itertools import product

from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import RunPlan


def test_numbers_of_a_plan(make_config):
    plan = build_plan(
        make_config(
            {
                "cluster.component_placement": {"env,rollout,actor": "0-1"},
                "rollout.pipeline_stage_num": 5,
                "env.train.rollout_epoch": 2,
                "algorithm.update_epoch": 3,
                "runner.eval_at_end": True,
            }
        ),
        "train",
    )
    batch = plan.batch
    assert plan.placement.world_size == 2
    assert (batch.num_envs, batch.envs_per_rank, batch.envs_per_stage) == (80, 40, 8)
    assert (batch.num_groups, batch.group_size) == (10, 8)
    assert (batch.chunk_size, batch.chunk_steps, batch.rollout_epochs, batch.t_eff) == (
        10,
        8,
        2,
        16,
    )
    assert (batch.columns_per_actor, batch.samples_per_actor) == (40, 640)
    assert (batch.optimizer_steps_per_epoch, batch.optimizer_steps_per_update) == (10, 30)
    assert batch.action_dim == 4
    assert batch.eval_episodes == 80  # env.eval inherits rollout_epoch


def test_evaluation_is_planned_where_it_is_asked_for(make_config):
    config = make_config({"env.eval.num_episodes": 210})
    assert build_plan(config, "train").batch.eval_episodes == 0
    assert build_plan(config, "eval").batch.eval_episodes == 210
    on = make_config({"env.eval.num_episodes": 210, "runner.val_check_interval": 5})
    assert build_plan(on, "train").batch.eval_episodes == 210


def test_a_plan_survives_its_file(make_config):
    plan = build_plan(make_config(), "eval", {"policy": "p"})
    assert plan.args == {"policy": "p"}
    assert RunPlan.model_validate_json(plan.model_dump_json()) == plan


def test_rollout_ranks_hand_over_what_they_infer_for(make_config):
    """Whatever the rules accept: the shard map deals groups as the envs are dealt."""
    placements = [("0", "1-2", "0"), ("0-1", "2-6", "0"), ("0-4", "0-1", "2-3"), ("0", "0-3", "0")]
    accepted = 0
    for (env, rollout, actor), size in product(placements, (2, 4, 5, 8, 16, 20, 40, 80)):
        overrides = {
            "cluster.component_placement": {"env": env, "rollout": rollout, "actor": actor},
            "algorithm.group_size": size,
            "env.eval": None,
            "actor.micro_batch_size": 8,
            "actor.gradient_accumulation_steps": 1,
        }
        try:
            plan = build_plan(make_config(overrides), None)
        except ConfigError:
            continue
        accepted += 1
        sent = Counter()
        for shard in plan.shards:
            sent[shard.source] += shard.columns
        ranks = plan.placement.rollout_ranks
        assert sent == dict.fromkeys(ranks, 80 // len(ranks)), overrides
    assert accepted == 16
