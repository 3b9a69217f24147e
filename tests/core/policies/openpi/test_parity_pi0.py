"""Pi0 against `PI0ForConditionalGeneration` of transformers on shared random weights."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.policies.openpi import checkpoint

ROOT = "paligemma_with_expert."
RENAMED = (
    (f"{ROOT}paligemma.model.vision_tower.vision_model.", "model.vlm.vision_tower."),
    (f"{ROOT}paligemma.model.", "model.vlm."),
    (f"{ROOT}gemma_expert.model.", "model.dit."),
    ("action_out_proj.", "action_out_proj."),
)


def build_native(policy):
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "PI0ForConditionalGeneration"):
        pytest.skip("this transformers has no Pi0")
    a = policy.settings.architecture
    shared = {
        "num_hidden_layers": a.depth,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "vocab_size": a.vocab_size,
    }
    image_token = a.vocab_size
    config = transformers.PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": {
                "model_type": "gemma",
                "hidden_size": a.width,
                "intermediate_size": a.mlp,
                **shared,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": a.vision_width,
                "intermediate_size": a.vision_mlp,
                "num_hidden_layers": a.vision_depth,
                "num_attention_heads": a.vision_heads,
                "image_size": a.image_size,
                "patch_size": a.patch_size,
                "hidden_act": "gelu_pytorch_tanh",
                "vision_use_head": False,
            },
            "projection_dim": a.width,
            "image_token_id": image_token,
        },
        dit_config={
            "model_type": "gemma",
            "hidden_size": a.expert_width,
            "intermediate_size": a.expert_mlp,
            **shared,
        },
        chunk_size=a.horizon,
        max_state_dim=a.state_dim,
        max_action_dim=a.action_dim,
        loss_reduction="none",
    )
    native = transformers.PI0ForConditionalGeneration(config).eval()
    state = {}
    for name, tensor in checkpoint.to_upstream(policy.model).items():
        for theirs, its in RENAMED:
            if name.startswith(theirs):
                state[its + name.removeprefix(theirs)] = tensor
                break
        else:
            state[f"embed_action_time.{name}"] = tensor
    known = set(native.state_dict())
    if not any(".vision_tower.embeddings." in name for name in known):
        tower = "model.vlm.vision_tower."
        state = {name.replace(tower, f"{tower}vision_model."): t for name, t in state.items()}
    left = native.load_state_dict(state, strict=False)
    assert not left.unexpected_keys
    assert left.missing_keys == ["model.dit.embed_tokens.weight"]
    return native


def use_double_times(native, policy):
    """transformers computes the time angle (up to 1571) in float32, upstream OpenPI in float64."""
    width = policy.settings.architecture.expert_width
    share = torch.linspace(0, 1, width // 2, dtype=torch.float64)
    frequency = 2 * torch.pi / (0.004 * 1000.0**share)
    embedding = native.embed_action_time.sinusoid_embeds
    torch.testing.assert_close(embedding.sinusoid_freq.double(), frequency, atol=0, rtol=1e-5)
    embedding.sinusoid_freq = frequency


def native_inputs(policy, inputs):
    """Image tokens first, then the prompt, padded on the right; a third camera is absent."""
    a = policy.settings.architecture
    images, tokens, counts = inputs["images"], inputs["tokens"].long(), inputs["token_count"]
    rows, cameras = images.shape[:2]
    seen = cameras * a.tokens_per_image
    longest = int(counts.max())
    front = torch.full((rows, seen), a.vocab_size)
    mask = torch.arange(seen + longest)[None] < (counts[:, None] + seen)
    pixels = images.permute(0, 1, 4, 2, 3).float() / 255 * 2 - 1
    absent = torch.full_like(pixels[:, :1], 0.7)
    present = torch.ones((rows, cameras), dtype=torch.bool)
    return {
        "input_ids": torch.cat((front, tokens[:, :longest]), dim=1),
        "attention_mask": mask.long(),
        "pixel_values": torch.cat((pixels, absent), dim=1),
        "pixel_attention_mask": torch.cat((present, ~present[:, :1]), dim=1),
        "state": policy._normalizer.state(inputs["state"]),
    }


@pytest.fixture
def pair(build, observe, rng):
    def make(tasks=2, *, double_times=True, **keys):
        policy = build("tiny-pi0", **keys)
        inputs = policy.prepare(observe(4, tasks=tasks))
        native = build_native(policy)
        if double_times:
            use_double_times(native, policy)
        return policy, native, inputs

    return make


def losses(policy, native, inputs, rng):
    a = policy.settings.architecture
    actions = torch.randn((4, a.horizon, policy.settings.action_dim), generator=rng(1))
    noise = torch.randn((4, a.horizon, a.action_dim), generator=rng(2))
    times = torch.tensor([0.01, 0.4, 0.77, 0.999])
    valid = torch.ones((4, a.horizon), dtype=torch.bool)
    with torch.no_grad():
        ours = policy.flow_loss(inputs, actions, valid, noise, times)
        theirs = native(
            **native_inputs(policy, inputs),
            noise=noise,
            timestep=times,
            actions=policy._normalizer.actions(actions),
        ).loss
    return ours, theirs[..., : policy.settings.action_dim]


@pytest.mark.parametrize("tasks", [1, 2], ids=["unpadded", "padded"])
def test_loss_equals_transformers(pair, rng, tasks):
    ours, theirs = losses(*pair(tasks=tasks), rng)
    assert ours.std() > 0.1
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_mean_loss_equals_transformers_as_it_is(pair, rng):
    ours, theirs = losses(*pair(double_times=False), rng)
    torch.testing.assert_close(ours.mean(), theirs.mean(), atol=1e-5, rtol=1e-5)


def test_loss_equals_transformers_with_two_key_heads(pair, rng):
    ours, theirs = losses(*pair(sizes={"kv_heads": 2}), rng)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tasks", [1, 2], ids=["unpadded", "padded"])
def test_sample_equals_transformers(pair, rng, tasks):
    policy, native, inputs = pair(tasks, double_times=False, num_steps=4, normalize_actions=False)
    draws = policy.draw(rng(3), 4)
    ours = policy.predict(inputs, draws, "eval").actions
    theirs = native.sample_actions(**native_inputs(policy, inputs), noise=draws["x0"], num_steps=4)
    chunk, d = policy.config.num_action_chunks, policy.settings.action_dim
    torch.testing.assert_close(ours, theirs[:, :chunk, :d], atol=1e-5, rtol=1e-5)


def _swap_time(model, monkeypatch):
    from joyrlinf_core.policies.openpi import model as module

    real = module.embed_time
    monkeypatch.setattr(module, "embed_time", lambda t, w: real(t, w).roll(w // 2, dims=-1))


def _theta(model, monkeypatch):
    from joyrlinf_core.policies.openpi import gemma

    monkeypatch.setattr(gemma, "ROPE_THETA", 1000.0)


def _no_embedding_scale(model, monkeypatch):
    with torch.no_grad():
        model.embed.weight /= model.embed.weight.shape[1] ** 0.5


def _no_post_norm(model, monkeypatch):
    monkeypatch.setattr(model.vision.post_layernorm, "forward", lambda x: x)


def _state_sees_nothing_but_itself(model, monkeypatch):
    real = model.with_state

    def blind(cache, state):
        return real(cache, torch.zeros_like(state))

    monkeypatch.setattr(model, "with_state", blind)


def _exact_gelu(model, monkeypatch):
    from torch.nn import functional

    from joyrlinf_core.policies.openpi import gemma

    def exact(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.gelu(gate) * up

    monkeypatch.setattr(gemma, "gated_gelu", exact)


@pytest.mark.parametrize(
    "break_it",
    [
        _swap_time,
        _theta,
        _no_embedding_scale,
        _no_post_norm,
        _state_sees_nothing_but_itself,
        _exact_gelu,
    ],
)
def test_parity_notices_a_wrong_model(pair, rng, monkeypatch, break_it):
    policy, native, inputs = pair()
    break_it(policy.model, monkeypatch)
    ours, theirs = losses(policy, native, inputs, rng)
    assert (ours - theirs).abs().max() > 2e-5
