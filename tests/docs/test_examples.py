"""The plug-ins that docs/extending.md shows do what their contracts say."""

import numpy as np
import torch

from joyrlinf_core import registry
from joyrlinf_core.algorithms.base import AdvantageContext, LossInputs
from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.config.schema import AlgorithmConfig, EpisodeId
from joyrlinf_core.policies.base import FieldStats, NormStats

PACKAGE = "tests.docs.examples"


def point_env(**keys):
    config = registry.load("envs", f"{PACKAGE}.point_env:Config")
    return config(**({"type": "point", "total_num_envs": 4, "max_episode_steps": 12} | keys))


def gaussian_policy(env, **keys):
    config = registry.load("policies", f"{PACKAGE}.gaussian_policy:Config")
    nothing = FieldStats((), (), (), ())
    model = config(**({"model_type": "gaussian", "num_action_chunks": 3} | keys))
    return model, model.create(env, NormStats(nothing, nothing), seed=1)


def rollout(rewards):
    """One chunk of one action; four columns of one group."""
    t, b, c = 1, 4, 1
    ones = torch.ones(t, b, c, dtype=torch.bool)
    return RolloutBatch(
        inputs={},
        replay={},
        actions=torch.zeros(t, b, c, 1),
        rewards=torch.tensor(rewards).reshape(t, b, c),
        dones=ones,
        terminations=ones,
        prev_logprobs=torch.zeros(t, b, c, 1),
        played=ones[..., 0],
        episode=torch.zeros(t, b, dtype=torch.int64),
        group=torch.zeros(b, dtype=torch.int64),
        task=torch.zeros(t, b, dtype=torch.int64),
        success=ones[..., 0],
        versions=torch.zeros(t, b, dtype=torch.int64),
    )


def test_advantage_is_the_score_less_the_mean_of_the_others():
    compute = registry.load("advantages", f"{PACKAGE}:leave_one_out").compute
    result = compute(rollout([1.0, 0.0, 0.0, 0.5]), AdvantageContext(AlgorithmConfig(group_size=4)))
    expected = [1 - 0.5 / 3, -1.5 / 3, -1.5 / 3, 0.5 - 1 / 3]
    torch.testing.assert_close(result.advantages, torch.tensor([expected]))
    assert result.mask.all()


def test_loss_is_the_importance_weighted_policy_gradient():
    compute = registry.load("losses", f"{PACKAGE}:unclipped").compute
    logprobs = torch.tensor([0.5, -1.0]).reshape(2, 1, 1).requires_grad_()
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=torch.zeros(2),
        advantages=torch.tensor([2.0, -1.0]),
        mask=torch.tensor([True, True]),
        weights=torch.ones(2),
        normaliser=2.0,
    )
    output = compute(inputs, AlgorithmConfig())
    expected = -(2.0 * np.exp(0.5) - 1.0 * np.exp(-1.0)) / 2
    np.testing.assert_allclose(output.loss.item(), expected, rtol=1e-6)
    output.loss.backward()
    np.testing.assert_allclose(logprobs.grad.flatten(), [-np.exp(0.5), np.exp(-1) / 2], rtol=1e-6)


def test_equal_episodes_start_and_go_on_equally():
    simulator = point_env().build(3)
    first = simulator.reset([0, 2], [EpisodeId(0, 7), EpisodeId(0, 7)])
    np.testing.assert_array_equal(first.state[0], first.state[1])
    actions = np.random.default_rng(0).uniform(-1, 1, (1, 3, 2)).astype(np.float32)
    result = simulator.chunk_step([0, 2], np.repeat(actions, 2, axis=0), final_frames=False)
    np.testing.assert_array_equal(result.frame.images[0], result.frame.images[1])
    assert first.images.shape == (2, *point_env().image_shape)


def test_an_episode_ends_once_by_success_or_by_time():
    env = point_env(max_episode_steps=4, radius=0.05)
    simulator = env.build(2)
    simulator.reset([0, 1], [EpisodeId(0, 1), EpisodeId(0, 2)])
    simulator._goal[0] = simulator._point[0] + [0.2, 0.0]
    simulator._goal[1] = simulator._point[1] + [5.0, 0.0]
    right = np.tile(np.array([1.0, 0.0], np.float32), (2, 6, 1))
    result = simulator.chunk_step([0, 1], right, final_frames=True)
    np.testing.assert_array_equal(result.rewards[0], [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(result.terminations[0], [True] + [False] * 5)
    np.testing.assert_array_equal(result.truncations[1], [False] * 3 + [True] + [False] * 2)
    np.testing.assert_array_equal(result.steps, [1, 4])
    np.testing.assert_array_equal(result.success, [True, False])
    assert not result.frame.state[0].any()
    assert result.frame.state[1].any()


def test_the_expert_solves_it_and_is_recorded():
    demo = (
        point_env()
        .build(1)
        .demonstrate(
            EpisodeId(0, 3), noise=0.1, noise_seed=0, frame_stride=4, steps_after_success=2
        )
    )
    assert demo.success
    assert demo.state.dtype == demo.actions.dtype == demo.executed.dtype == np.float32
    assert len(demo.images) == len(demo.frame_steps) == -(-len(demo.state) // 4)
    assert not np.array_equal(demo.actions, demo.executed)


def test_recomputed_logprobs_equal_rollout_logprobs(tmp_path):
    model, policy = gaussian_policy(point_env())
    generator = torch.Generator().manual_seed(0)
    inputs = {"state": torch.randn(5, 4, generator=generator)}
    output = policy.predict(inputs, policy.draw(generator, 5), "train")
    again = policy.evaluate_actions(inputs, output.replay)
    torch.testing.assert_close(again.logprobs, output.logprobs)
    assert output.actions.shape == (5, 3, 2)

    policy.save(tmp_path / "policy")
    assert model.check_directory(tmp_path / "policy") == []
    loaded = model.load(tmp_path / "policy")
    torch.testing.assert_close(
        loaded.evaluate_actions(inputs, output.replay).logprobs, output.logprobs
    )
