from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from joyrlinf_core.errors import CheckpointError, ConfigError
from joyrlinf_core.policies import norm_stats
from joyrlinf_core.policies.openpi import OpenPiConfig, checkpoint

VARIANTS = ("tiny-pi0", "tiny-pi05")
ROOT = "paligemma_with_expert."


@pytest.fixture
def saved(build, tmp_path):
    """Return a function that saves a policy and gives (policy, directory, tensors)."""

    def make(variant="tiny-pi0", **keys):
        policy = build(variant, **keys)
        directory = tmp_path / variant
        policy.save(directory)
        return policy, directory, load_file(directory / "model.safetensors")

    return make


def rewrite(directory, tensors):
    save_file({name: t.clone() for name, t in tensors.items()}, directory / "model.safetensors")


def same(first, second):
    theirs = second.module.state_dict()
    return all(torch.equal(t, theirs[name]) for name, t in first.module.state_dict().items())


@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip_is_bit_equal(saved, variant):
    policy, directory, _ = saved(variant, add_value_head=True)
    loaded = policy.config.load(directory)
    assert same(policy, loaded)
    assert loaded.settings == policy.settings
    assert loaded.stats == policy.stats
    loaded.save(directory.with_name("again"))
    for name in ("model.safetensors", "config.json", "tokenizer.model", "joyrl/norm_stats.json"):
        first, second = directory / name, directory.with_name("again") / name
        assert first.read_bytes() == second.read_bytes(), name


def test_upstream_names_and_shapes(saved):
    _, _, tensors = saved("tiny-pi0")
    layer = f"{ROOT}paligemma.model.language_model.layers.1."
    expected = {
        f"{layer}self_attn.q_proj.weight": (64, 64),
        f"{layer}self_attn.k_proj.weight": (16, 64),
        f"{layer}self_attn.v_proj.weight": (16, 64),
        f"{layer}mlp.up_proj.weight": (128, 64),
        f"{layer}input_layernorm.weight": (64,),
        f"{ROOT}paligemma.model.language_model.norm.weight": (64,),
        f"{ROOT}paligemma.model.multi_modal_projector.linear.bias": (64,),
        f"{ROOT}gemma_expert.model.layers.0.self_attn.v_proj.weight": (16, 64),
        f"{ROOT}gemma_expert.model.norm.weight": (64,),
        "state_proj.weight": (64, 7),
        "action_time_mlp_in.weight": (64, 128),
        "action_out_proj.bias": (6,),
    }
    for name, shape in expected.items():
        assert tuple(tensors[name].shape) == shape, name
    tower = f"{ROOT}paligemma.model.vision_tower.vision_model.encoder.layers.0."
    assert f"{tower}self_attn.q_proj.bias" in tensors


def test_upstream_names_of_pi05(saved):
    _, _, tensors = saved("tiny-pi05")
    expert = f"{ROOT}gemma_expert.model."
    assert tuple(tensors[f"{expert}layers.0.input_layernorm.dense.weight"].shape) == (192, 64)
    assert tuple(tensors[f"{expert}norm.dense.bias"].shape) == (192,)
    assert "time_mlp_in.weight" in tensors
    assert "state_proj.weight" not in tensors


def lerobot(name):
    return f"model.{name}"


def older(name):
    name = name.replace("paligemma.model.vision_tower.", "paligemma.vision_tower.")
    name = name.replace("paligemma.model.multi_modal", "paligemma.multi_modal")
    return name.replace("paligemma.model.language_model.", "paligemma.language_model.model.")


def wrapped(name):
    return f"module._orig_mod.{name}"


@pytest.mark.parametrize("spelling", [lerobot, older, wrapped])
def test_other_spellings_load(saved, spelling):
    policy, directory, tensors = saved()
    renamed = {spelling(name): tensor for name, tensor in tensors.items()}
    renamed[spelling(f"{ROOT}gemma_expert.lm_head.weight")] = torch.zeros(3, 3)
    assert renamed.keys() != tensors.keys()
    rewrite(directory, renamed)
    assert same(policy, policy.config.load(directory))


def test_tied_embedding_loads(saved):
    policy, directory, tensors = saved()
    embedding = tensors.pop(f"{ROOT}paligemma.model.language_model.embed_tokens.weight")
    rewrite(directory, tensors | {f"{ROOT}paligemma.lm_head.weight": embedding})
    assert same(policy, policy.config.load(directory))


def test_shards_and_torch_files_load(saved):
    policy, directory, tensors = saved()
    names = sorted(tensors)
    (directory / "model.safetensors").unlink()
    for index, part in enumerate((names[:20], names[20:])):
        save_file(
            {name: tensors[name] for name in part},
            directory / f"model-0000{index + 1}-of-00002.safetensors",
        )
    assert same(policy, policy.config.load(directory))
    for path in directory.glob("*.safetensors"):
        path.unlink()
    target = directory / "actor" / "model_state_dict" / "full_weights.pt"
    target.parent.mkdir(parents=True)
    torch.save(tensors, target)
    assert same(policy, policy.config.load(directory))


def test_misfits_are_all_listed(saved):
    policy, directory, tensors = saved()
    tensors.pop("action_in_proj.bias")
    tensors.pop(f"{ROOT}gemma_expert.model.layers.0.self_attn.k_proj.weight")
    tensors["stranger"] = torch.zeros(1)
    tensors["state_proj.weight"] = torch.zeros(64, 9)
    rewrite(directory, tensors)
    with pytest.raises(CheckpointError) as caught:
        policy.config.load(directory)
    text = str(caught.value)
    assert "4 tensors do not fit" in text
    for part in (
        "missing action_in_proj.bias",
        "missing paligemma_with_expert.gemma_expert.model.layers.0.self_attn.k_proj.weight",
        "unexpected stranger",
        "state_proj.weight: shape (64, 9), the config's is (64, 7)",
    ):
        assert part in text


def test_absent_head_is_new_and_the_same_each_time(saved):
    policy, directory, _ = saved()
    config = policy.config.model_copy(update={"add_value_head": True})
    first, second = config.load(directory), config.load(directory)
    assert same(first, second)
    assert first.model.value_head.mlp[-1].weight.abs().max() > 0


def test_half_a_head_is_an_error(saved):
    policy, directory, tensors = saved(add_value_head=True)
    tensors.pop("value_head.mlp.0.bias")
    rewrite(directory, tensors)
    with pytest.raises(CheckpointError, match=r"missing value_head\.mlp\.0\.bias"):
        policy.config.load(directory)


def test_head_that_is_not_asked_for_is_left_out(saved):
    policy, directory, _ = saved(add_value_head=True)
    loaded = policy.config.model_copy(update={"add_value_head": False}).load(directory)
    assert loaded.model.value_head is None


def test_damaged_file_is_named(saved):
    policy, directory, _ = saved()
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"model\.safetensors can't be read"):
        policy.config.load(directory)


def test_existing_directory_is_left_alone(saved):
    policy, directory, _ = saved()
    with pytest.raises(CheckpointError, match="exists already"):
        policy.save(directory)


def test_failed_write_leaves_nothing_behind(build, tmp_path, monkeypatch):
    policy = build()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(norm_stats, "write_norm_stats", full)
    with pytest.raises(CheckpointError, match="No space left"):
        policy.save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_directory_from_elsewhere_is_held_against_the_config(saved):
    """Without joyrl's section the config's sizes count; here its vocabulary is another one."""
    _, directory, _ = saved()
    document = {"action_dim": 6, "action_horizon": 4, "precision": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(document))
    sizes = {"image_size": 32, "patch_size": 8, "state_dim": 7}
    config = OpenPiConfig(variant="tiny-pi0", num_action_chunks=2, architecture=sizes)
    with pytest.raises(CheckpointError, match="1 tensors do not fit") as caught:
        config.load(directory)
    assert "embed_tokens.weight: shape" in str(caught.value)


def test_lora_is_refused(saved):
    policy, directory, _ = saved()
    with pytest.raises(ConfigError, match="lora_path"):
        policy.config.model_copy(update={"lora_path": "x"}).load(directory)


@pytest.mark.parametrize("name", ["vlm.layers.0.qkv_proj.weight", "expert.norm.weight"])
def test_names_are_canonical(name):
    for upstream in checkpoint.upstream_names(name):
        assert checkpoint.canonical(upstream) == upstream
