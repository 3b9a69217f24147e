import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode
from joyrlinf_core.launcher import requirements


def test_missing_packages_are_named_with_the_command(make_plan, monkeypatch):
    found = requirements.find_spec
    monkeypatch.setattr(
        requirements, "find_spec", lambda name: None if name == "sentencepiece" else found(name)
    )
    with pytest.raises(EnvironmentNotReadyError, match="can't import sentencepiece") as caught:
        requirements.check_ready(make_plan().config)
    assert caught.value.fix == "pip install sentencepiece"
    assert caught.value.exit_code == ExitCode.ENVIRONMENT_NOT_READY
