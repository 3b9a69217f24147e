"""GR00T and OpenVLA-OFT: config, sizes and shapes of what can be planned but not run yet."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from joyrlinf_core import registry
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.schema import TensorSpec
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.policies.gr00t import Gr00tConfig
from joyrlinf_core.policies.gr00t import footprint as gr00t
from joyrlinf_core.policies.gr00t.architecture import Architecture as Gr00t
from joyrlinf_core.policies.openvla_oft import OpenVlaOftConfig
from joyrlinf_core.policies.openvla_oft import footprint as oft
from joyrlinf_core.policies.openvla_oft.architecture import Architecture as Oft

FAMILIES = {"gr00t": Gr00tConfig, "openvla_oft": OpenVlaOftConfig}


@pytest.fixture
def libero():
    return registry.load("envs", "libero")(type="libero", total_num_envs=8)


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_registered_documented_and_says_that_it_does_not_run(name, libero, stats):
    cls = FAMILIES[name]
    assert registry.load("policies", name) is cls
    assert all(help_texts(cls).values())
    config = cls()
    for call in (lambda: config.create(libero, stats, seed=0), lambda: config.load(libero)):
        with pytest.raises(EnvironmentNotReadyError, match=f"'{name}' can be planned"):
            call()


def test_levels_and_entropy():
    assert Gr00tConfig.expected_levels == ("chunk_level", "chunk_level")
    assert OpenVlaOftConfig.expected_levels == ("action_level", "token_level")
    assert OpenVlaOftConfig().has_entropy
    assert not Gr00tConfig().has_entropy
    assert Gr00tConfig(noise_method="flow_noise").has_entropy
    assert Gr00tConfig().planned_horizon == 16
    assert OpenVlaOftConfig().planned_horizon == 8


def test_gr00t_sizes_are_the_published_ones():
    weights = gr00t.count_weights(Gr00t())
    assert weights.vision / 1e6 == pytest.approx(412.4 + 2.4, abs=0.1)
    assert weights.embed / 1e6 == pytest.approx(310.6, abs=0.1)
    assert weights.language / 1e6 == pytest.approx(604.0, abs=0.1)
    assert weights.mixer / 1e6 == pytest.approx(201.4, abs=0.1)
    assert (weights.mixer + weights.head) / 1e6 == pytest.approx(1068.8, abs=0.1)
    assert weights.total / 1e6 == pytest.approx(2398, abs=1)


def test_oft_sizes_are_the_published_ones():
    plain, adapted = (oft.count_weights(Oft(), lora_rank=rank) for rank in (0, 32))
    assert plain.language / 1e6 == pytest.approx(6738.9, abs=0.1)
    assert plain.total / 1e9 == pytest.approx(7.53, abs=0.01)
    assert adapted.lora / 1e6 == pytest.approx(110.2, abs=0.05)
    assert adapted.total - plain.total == adapted.lora


@pytest.mark.parametrize(
    ("cameras", "tokens", "vision", "language", "mixer"),
    [(1, 296, 0.219, 0.366, 0.122), (2, 552, 0.438, 0.69, 0.23)],
)
def test_gr00t_work(cameras, tokens, vision, language, mixer):
    work = gr00t.count_work(Gr00t(), cameras=cameras, tokens=tokens)
    assert work.vision / 1e12 == pytest.approx(vision, rel=0.02)
    assert work.language / 1e12 == pytest.approx(language, rel=0.02)
    keys = 8 * 2 * tokens * 2 * 2048 * 1536
    assert (work.context - keys) / 1e12 == pytest.approx(mixer, rel=0.03)
    # 0.05 TFLOP a step with the projections of the context, which need to be made only once.
    assert (work.step + keys) / 1e9 == pytest.approx(75.6 if cameras == 1 else 100, rel=0.06)


def test_gr00t_rollout_and_update(libero):
    one = Gr00tConfig().footprint(libero, gradient_checkpointing=False)
    assert one.predict_flops / 1e12 == pytest.approx(1.63, rel=0.03)
    assert one.update_flops / 1e12 == pytest.approx(2.2, rel=0.03)
    assert one.trainable / 1e9 == pytest.approx(1.069, abs=0.001)
    everything = Gr00tConfig(tune_llm=True, tune_visual=True, add_value_head=True)
    all_of_it = everything.footprint(libero, gradient_checkpointing=False)
    assert all_of_it.trainable == all_of_it.parameters > one.parameters
    assert all_of_it.update_flops > 2 * one.update_flops
    assert all_of_it.activation_bytes > 3 * one.activation_bytes


@pytest.mark.parametrize(
    ("pictures", "vision", "language"), [(1, 0.383 + 0.037, 4.56), (2, 0.84, 8.0)]
)
def test_oft_work(pictures, vision, language):
    work = oft.count_work(Oft(), pictures=pictures, text=35, outputs=56, bins=256)
    # The last block of each tower is not needed.
    assert work.vision / 1e12 == pytest.approx(vision, rel=0.05)
    assert work.language / 1e12 == pytest.approx(language, rel=0.01)


def test_oft_update(libero):
    lora, full = (
        OpenVlaOftConfig(lora_rank=rank).footprint(libero, gradient_checkpointing=True)
        for rank in (32, 0)
    )
    assert lora.update_flops == 3 * lora.predict_flops
    assert full.update_flops == 4 * full.predict_flops
    assert (lora.trainable, full.trainable) == (110_221_056, full.parameters)


def test_rows(libero):
    flow = Gr00tConfig(num_action_chunks=5).footprint(libero, gradient_checkpointing=False)
    assert flow.inputs == {
        "images": TensorSpec((2, 256, 256, 3), "uint8"),
        "state": TensorSpec((8,), "float32"),
        "tokens": TensorSpec((570,), "int32"),
        "token_count": TensorSpec((), "int32"),
    }
    assert flow.replay == {
        "x": TensorSpec((1, 16, 32), "float32"),
        "x_next": TensorSpec((1, 5, 7), "float32"),
        "step": TensorSpec((), "int64"),
    }
    joint = Gr00tConfig(joint_logprob=True).footprint(libero, gradient_checkpointing=False)
    assert joint.replay["x"].shape == (4, 16, 32)
    assert "step" not in joint.replay
    tokens = OpenVlaOftConfig(max_prompt_length=40).footprint(libero, gradient_checkpointing=False)
    assert tokens.inputs["images"] == TensorSpec((1, 256, 256, 3), "uint8")
    assert tokens.inputs["tokens"] == TensorSpec((40,), "int32")
    assert tokens.replay == {"action_tokens": TensorSpec((8, 7), "int32")}


@pytest.mark.parametrize("suite", ["libero_spatial", "libero_10", "libero_90"])
def test_prompt_fits_the_usual_length(suite):
    env = registry.load("envs", "libero")(type="libero", suite=suite, total_num_envs=8)
    assert 20 < oft.prompt_tokens(env) < 60


def test_prompt_of_maniskill_fits_in_30():
    env = registry.load("envs", "maniskill")(type="maniskill", obj_set="all", total_num_envs=8)
    assert oft.prompt_tokens(env) <= 30


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"embodiment_tag": "my_robot"}, "embodiment_tag", "set `embodiment_id` as well"),
        ({"disable_dropout": False}, "disable_dropout", "must be true"),
        ({"denoising_steps": 1, "ignore_last": True}, "ignore_last", "denoising_steps 2 or more"),
        ({"denoising_steps": 1, "noise_method": "flow_cps"}, "ignore_last", "2 or more"),
        ({"noise_logvar_range": [0.2, 0.1]}, "noise_logvar_range", "smallest <= largest"),
    ],
)
def test_what_does_not_fit_is_said_at_its_key(keys, place, message):
    with pytest.raises(ValidationError, match=message) as caught:
        Gr00tConfig(**keys)
    assert [error["loc"] for error in caught.value.errors()] == [(place,)]


def test_a_tag_of_ones_own_has_a_number():
    assert Gr00tConfig(embodiment_tag="my_robot", embodiment_id=31).embodiment_id == 31


def test_directory_is_checked_without_torch(tmp_path):
    assert "is no directory" in Gr00tConfig().check_directory(tmp_path / "none")[0]
    assert len(Gr00tConfig().check_directory(tmp_path)) == 3
    assert len(OpenVlaOftConfig().check_directory(tmp_path)) == 2
    (tmp_path / "experiment_cfg").mkdir()
    for name in ("config.json", "experiment_cfg/metadata.json", "a.safetensors"):
        (tmp_path / name).write_text("{}")
    assert Gr00tConfig().check_directory(tmp_path) == []
    assert OpenVlaOftConfig().check_directory(tmp_path) == []
