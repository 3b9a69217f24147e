import json

import pytest

from tests.doubles.toy import TOY_YAML


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TOY_YAML.replace("toy:ToyModel", "sized:SizedModel\n    row: 200000000")
    (tmp_path / "my.yaml").write_text(text)
    return "my.yaml"


def test_all_cards_side_by_side(joyrl, config):
    result = joyrl("estimate", config)
    assert (result.code, result.err) == (0, "")
    rows = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    # 32 rows of 4 GB, and 16 MB of training state.
    assert rows["h200"].startswith("  h200      140 GiB       126 GiB  119 GiB  yes ")
    assert rows["h100"].startswith("  h100     79.6 GiB      71.6 GiB  119 GiB  no ")
    assert "assumed: 40% of the peak" in result.out


def test_a_named_card_that_does_not_suffice(joyrl, config):
    result = joyrl("estimate", config, "--gpu", "h100")
    assert result.code == 3
    assert "error[JR901]: does not fit" in result.err
    assert "--> my.yaml:" in result.err
    assert "actor.micro_batch_size 16" in result.err


def test_following_the_fix_makes_it_fit(joyrl, config):
    result = joyrl(
        "estimate", config, "--gpu", "h100",
        "--set", "actor.micro_batch_size=8", "--set", "actor.gradient_accumulation_steps=8",
    )  # fmt: skip
    assert result.code == 0
    assert result.err == ""


def test_json_is_one_document(joyrl, config):
    result = joyrl("estimate", config, "--gpu", "h100", "--env-steps-per-second", "50", "--json")
    assert (result.code, result.err) == (3, "")
    document = json.loads(result.out)
    assert document["ok"] is False
    assert document["findings"][0]["code"] == "JR901"
    assert document["assumptions"] == {"mfu": 0.4, "env_steps_per_second": 50}
    (card,) = document["cards"]
    assert (card["name"], card["fits"]) == ("h100", False)
    assert card["needed"] > card["usable"]
    assert card["throughput"]["simulation_seconds"] == 80 * 80 / 50
    assert document["memory"]["ranks"][0]["peak"] == card["needed"]


def test_a_card_of_ones_own(joyrl, config):
    own = ["--memory-gb", "300", "--tflops", "100"]
    assert joyrl("estimate", config, *own).code == 0
    assert joyrl("estimate", config, "--gpu", "h100", "--memory-gb", "300").code == 0
    half = joyrl("estimate", config, "--memory-gb", "300")
    assert half.code == 2
    assert "--tflops" in half.err


def test_unknown_card(joyrl, config):
    result = joyrl("estimate", config, "--gpu", "h20")
    assert result.code == 2
    assert "did you mean h200?" in result.err


def test_a_config_for_the_cpu_is_held_against_this_machine(joyrl):
    result = joyrl("estimate", "--preset", "quickstart")
    assert result.code == 0
    assert "  cpu " in result.out
    assert "h100" not in result.out


def test_unknown_sizes_warn(joyrl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(TOY_YAML)
    result = joyrl("estimate", "toy.yaml")
    assert result.code == 0
    assert "warning[JR902]" in result.err


def test_an_invalid_config_is_no_estimate(joyrl, config):
    assert joyrl("estimate", config, "--set", "algorithm.group_size=7").code == 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--mfu", "0"),
        ("--mfu", "-0.5"),
        ("--mfu", "1e-320"),
        ("--mfu", "nan"),
        ("--tflops", "0"),
        ("--memory-gb", "inf"),
        ("--memory-gb", "1e308"),
        ("--host-memory-gb", "inf"),
        ("--host-memory-gb", "0"),
        ("--env-steps-per-second", "inf"),
        ("--env-steps-per-second", "1e-320"),
    ],
)
def test_a_number_that_no_machine_has_is_refused(joyrl, config, option, value):
    result = joyrl("estimate", config, "--gpu", "h100", option, value, "--json")
    assert (result.code, result.out) == (2, "")
    assert f"{option} {float(value):g} is out of range" in result.err
    assert " to " in result.err


@pytest.mark.parametrize("edge", [0, 1])
def test_the_ends_of_the_ranges_are_estimated(joyrl, config, edge):
    from joyrlinf_cli.commands.estimate import _RANGES

    ends = [word for name, ends in _RANGES.items() for word in (name, str(ends[edge]))]
    result = joyrl("estimate", config, "--json", *ends)
    assert result.code in (0, 3)
    json.loads(result.out, parse_constant=pytest.fail)


def test_a_slow_rate_is_no_zero(joyrl, config):
    result = joyrl("estimate", config, "--gpu", "h200", "--env-steps-per-second", "0.04")
    row = next(line for line in result.out.splitlines() if line.startswith("  h200"))
    assert row.split()[-1] == "0.04"


def test_json_tells_what_reading_found_and_says_it_once(joyrl, config):
    sets = ["--set", "env.train.max_steps_per_rollout_epoch=160"]
    text = joyrl("estimate", config, "--gpu", "h200", *sets)
    told = joyrl("estimate", config, "--gpu", "h200", *sets, "--json")
    codes = [one["code"] for one in json.loads(told.out)["findings"]]
    assert told.err == ""
    assert codes
    assert all(f"[{code}]" in text.err for code in codes)
