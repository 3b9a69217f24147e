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
