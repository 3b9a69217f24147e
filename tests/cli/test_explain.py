import json

import pytest

from joyrlinf_core.plan.rules import RULES
from joyrlinf_core.plan.rules.other_codes import OTHER_CODES


def test_a_code_is_explained(joyrl):
    result = joyrl("explain", "jr103")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("JR103: The samples of an actor make up whole optimizer batches\n")
    assert "960 % 128 = 64" in result.out
    assert "`actor.micro_batch_size`" in result.out


@pytest.mark.parametrize("code", ["JR012", "JR602"])
def test_codes_that_are_no_rules_have_pages_too(joyrl, code):
    assert joyrl("explain", code).out.startswith(f"{code}: ")


def test_without_a_code_all_are_listed(joyrl):
    lines = joyrl("explain").out.splitlines()
    assert [line.partition("  ")[0] for line in lines] == sorted([*RULES, *OTHER_CODES])


def test_json(joyrl):
    document = json.loads(joyrl("explain", "JR502", "--json").out)
    (row,) = document["codes"]
    assert (document["schema"], row["code"]) == (1, "JR502")
    assert row["reads"] == ["runner.save_interval", "runner.val_check_interval"]
    assert len(json.loads(joyrl("explain", "--json").out)["codes"]) == len(RULES) + len(OTHER_CODES)


@pytest.mark.parametrize(
    ("code", "told"), [("JR113", "did you mean JR1"), ("nonsense", "lists all codes")]
)
def test_an_unknown_code(joyrl, code, told):
    result = joyrl("explain", code)
    assert result.code == 2
    assert f"no code '{code}'" in result.err
    assert told in result.err
