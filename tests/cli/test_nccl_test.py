import json

import pytest


def test_two_ranks_print_one_json_document(joyrl):
    result = joyrl("nccl-test", "--nproc", 2, "--device", "cpu", "--sizes", "1K,64K", "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert (document["schema"], document["ok"], document["world_size"]) == (1, True, 2)
    assert document["failure"] is None
    (world,) = document["groups"]
    assert (world["group"]["name"], world["group"]["backend"]) == ("world", "gloo")
    assert [pair["ranks"] for pair in world["pairs"]] == [[0, 1]]
    for row in world["rows"]:
        factor = {"all_to_all": 0.5}.get(row["operation"], 1)
        assert row["algorithm_rate"] == pytest.approx(row["nbytes"] / row["seconds"])
        assert row["bus_rate"] == pytest.approx(row["algorithm_rate"] * factor)
    facts = document["facts"][0]
    assert facts["device"] == "CPU"
    assert facts["variables"]["GLOO_SOCKET_IFNAME"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sizes", "big"], "--sizes"),
        (["--nproc", "2", "quickstart"], "--nproc"),
        (["--set", "runner.seed=1"], "--set needs a config"),
        (["--nproc", "1"], "--nproc"),
        (["--timeout", "0"], "--timeout"),
    ],
)
def test_options_that_contradict_are_refused(joyrl, arguments, told):
    result = joyrl("nccl-test", *arguments)
    assert (result.code, result.out) == (2, "")
    assert told in result.err


def test_an_invalid_config_is_not_started(joyrl):
    result = joyrl("nccl-test", "quickstart", "--set", "algorithm.group_size=7", "--json")
    assert result.code == 3
    assert json.loads(result.out)["ok"] is False
