from __future__ import annotations

import numpy as np
import pytest
import torch

from joyrlinf_core.policies.openpi.gemma import Gemma, KeyValues, Modulation, attend, rotation
from joyrlinf_core.policies.openpi.model import embed_time

WIDTH, DEPTH, MLP, HEADS, HEAD_DIM = 24, 3, 40, 4, 8


def build_gemma(*, adaptive, kv_heads=1, seed=0):
    torch.manual_seed(seed)
    stack = Gemma(
        width=WIDTH,
        depth=DEPTH,
        mlp=MLP,
        heads=HEADS,
        kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        adaptive=adaptive,
    )
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape))
    return stack.eval()


def empty(stack, rows):
    nothing = torch.zeros((rows, stack.layers[0].kv_heads, 0, HEAD_DIM))
    return [KeyValues(nothing, nothing)] * DEPTH


def modulations(stack, condition, rows):
    parts = stack.conditions(condition).unbind(1)
    return [Modulation(*part[:rows, None].chunk(3, dim=-1)) for part in parts]


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_adaptive_stack_equals_transformers_gemma(kv_heads):
    """With a condition that gives scale w, shift 0 and gate 1, adaptive norms are plain ones."""
    transformers = pytest.importorskip("transformers")
    ours = build_gemma(adaptive=True, kv_heads=kv_heads)
    config = transformers.GemmaConfig(
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        intermediate_size=MLP,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        vocab_size=8,
        hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh",
    )
    theirs = transformers.GemmaModel(config).eval()
    state = {"embed_tokens.weight": torch.zeros(8, WIDTH)}
    keys = kv_heads * HEAD_DIM
    norms = [("norm", ours.norm)]
    for index, layer in enumerate(ours.layers):
        at = f"layers.{index}."
        parts = layer.qkv_proj.weight.split([HEADS * HEAD_DIM, keys, keys])
        for name, part in zip("qkv", parts, strict=True):
            state[f"{at}self_attn.{name}_proj.weight"] = part
        gate, up = layer.gate_up_proj.weight.chunk(2)
        state |= {
            f"{at}self_attn.o_proj.weight": layer.o_proj.weight,
            f"{at}mlp.gate_proj.weight": gate,
            f"{at}mlp.up_proj.weight": up,
            f"{at}mlp.down_proj.weight": layer.down_proj.weight,
        }
        norms += [
            (f"{at}{name}", getattr(layer, name))
            for name in ("input_layernorm", "post_attention_layernorm")
        ]
    for name, norm in norms:
        weight = 0.3 * torch.randn(WIDTH)
        state[f"{name}.weight"] = weight
        with torch.no_grad():
            norm.dense.weight.zero_()
            norm.dense.bias.copy_(torch.cat((weight, torch.zeros(WIDTH), torch.ones(WIDTH))))
    theirs.load_state_dict(state)
    x = torch.randn(2, 6, WIDTH)
    valid = torch.arange(6) < torch.tensor([[6], [4]])
    mask = valid[:, None, None, :]
    with torch.no_grad():
        expected = theirs(
            inputs_embeds=x,
            attention_mask=mask.expand(-1, -1, 6, -1),
            position_ids=torch.arange(6)[None],
            use_cache=False,
        ).last_hidden_state
        mods = modulations(ours, torch.randn(2, WIDTH), 2)
        out = ours(x, rotation(torch.arange(6), HEAD_DIM), empty(ours, 2), mask, mods)
    assert expected.std() > 0.1
    torch.testing.assert_close(out[valid], expected[valid], atol=1e-5, rtol=1e-5)


def loop_layer(layer, x, condition, positions):
    """One adaptive layer in float64, written from the definition with plain loops."""
    weight = {name: p.detach().double().numpy() for name, p in layer.named_parameters()}
    x, condition = x.double().numpy(), condition.double().numpy()
    tokens = x.shape[0]

    def modulated(rows, name):
        dense = weight[f"{name}.dense.weight"] @ condition + weight[f"{name}.dense.bias"]
        scale, shift, gate = np.split(dense, 3)
        normed = np.stack([row / np.sqrt((row**2).mean() + 1e-6) for row in rows])
        return normed * (1 + scale) + shift, gate

    def turned(vector, position):
        out, half = np.empty_like(vector), HEAD_DIM // 2
        for i in range(half):
            angle = position * 10000.0 ** (-2 * i / HEAD_DIM)
            a, b = vector[i], vector[i + half]
            out[i] = a * np.cos(angle) - b * np.sin(angle)
            out[i + half] = b * np.cos(angle) + a * np.sin(angle)
        return out

    h, gate = modulated(x, "input_layernorm")
    projected = h @ weight["qkv_proj.weight"].T
    split = projected.reshape(tokens, HEADS + 2, HEAD_DIM)
    keys = [turned(split[t, HEADS], positions[t]) for t in range(tokens)]
    values = split[:, HEADS + 1]
    mixed = np.zeros((tokens, HEADS, HEAD_DIM))
    for t in range(tokens):
        for head in range(HEADS):
            query = turned(split[t, head], positions[t])
            score = np.array([query @ key for key in keys]) / np.sqrt(HEAD_DIM)
            share = np.exp(score - score.max())
            mixed[t, head] = (share / share.sum()) @ values
    x = x + gate * (mixed.reshape(tokens, -1) @ weight["o_proj.weight"].T)
    h, gate = modulated(x, "post_attention_layernorm")
    first, second = np.split(h @ weight["gate_up_proj.weight"].T, 2, axis=1)
    gelu = 0.5 * first * (1 + np.tanh(np.sqrt(2 / np.pi) * (first + 0.044715 * first**3)))
    return x + gate * ((gelu * second) @ weight["down_proj.weight"].T)


def adaptive_layer(stack, x, condition, positions):
    layer = stack.layers[0]
    pair = tuple(
        Modulation(*norm.condition(condition[None])[:, None].chunk(3, dim=-1))
        for norm in (layer.input_layernorm, layer.post_attention_layernorm)
    )
    with torch.no_grad():
        return layer(x[None], rotation(positions, HEAD_DIM), None, None, pair)[0][0]


def test_adaptive_layer_equals_plain_loops():
    stack = build_gemma(adaptive=True)
    x, condition = torch.randn(5, WIDTH), 0.2 * torch.randn(WIDTH)
    positions = torch.arange(3, 8)
    expected = loop_layer(stack.layers[0], x, condition, positions.tolist())
    out = adaptive_layer(stack, x, condition, positions)
    np.testing.assert_allclose(out.numpy(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["scale", "shift", "gate"])
def test_plain_loops_notice_an_ignored_part_of_the_condition(part):
    stack = build_gemma(adaptive=True)
    x, condition, positions = torch.randn(5, WIDTH), torch.randn(WIDTH), torch.arange(5)
    expected = loop_layer(stack.layers[0], x, condition, positions.tolist())
    rows = slice(part * WIDTH, (part + 1) * WIDTH)
    with torch.no_grad():
        for norm in (stack.layers[0].input_layernorm, stack.layers[0].post_attention_layernorm):
            norm.dense.weight[rows] = 0
    out = adaptive_layer(stack, x, condition, positions)
    assert np.abs(out.numpy() - expected).max() > 1e-2


def test_grouped_attention_equals_repeated_keys():
    query = torch.randn(2, 5, 6, 8)
    past = KeyValues(torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8))
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    out = attend(query, past, mask).view(2, 5, 6, 8)
    for head in range(6):
        keys, values = past.keys[:, head // 2], past.values[:, head // 2]
        score = query[:, :, head] @ keys.transpose(1, 2) / 8**0.5
        share = score.masked_fill(~mask[:, 0], -torch.inf).softmax(-1)
        torch.testing.assert_close(out[:, :, head], share @ values, atol=1e-5, rtol=1e-5)


def test_keys_only_layers_return_what_full_layers_would():
    stack = build_gemma(adaptive=False)
    x, factors = torch.randn(2, 5, WIDTH), rotation(torch.arange(5), HEAD_DIM)
    with torch.no_grad():
        collected = stack.keys_values(x, factors)
        for layer, mine in zip(stack.layers, collected, strict=True):
            x, own = layer(x, factors)
            torch.testing.assert_close(own.keys, mine.keys, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(own.values, mine.values, atol=1e-6, rtol=1e-6)


def test_time_embedding():
    embedding = embed_time(torch.tensor([0.0, 0.25]), 8)
    assert embedding[0].tolist() == [0.0] * 4 + [1.0] * 4
    periods = [0.004 * 1000 ** (i / 3) for i in range(4)]
    expected = [np.sin(2 * np.pi * 0.25 / period) for period in periods]
    np.testing.assert_allclose(embedding[1, :4], expected, atol=1e-6)
