"""The command that a missing extra names must work where joyrl runs from."""

from pathlib import Path

from joyrlinf_core import errors
from joyrlinf_core.errors import MissingExtraError

CHECKOUT = Path(__file__).parents[2]


def test_in_a_checkout_it_installs_the_checkout(monkeypatch, tmp_path):
    monkeypatch.chdir(CHECKOUT)
    assert MissingExtraError("wandb", "x").fix == "pip install -e '.[wandb]'"
    monkeypatch.chdir(tmp_path)
    assert MissingExtraError("wandb", "x").fix == f"pip install -e '{CHECKOUT}[wandb]'"


def test_an_installed_package_is_asked_for_by_name(monkeypatch, tmp_path):
    installed = tmp_path / "site-packages" / "joyrlinf_core" / "errors.py"
    monkeypatch.setattr(errors, "__file__", str(installed))
    assert MissingExtraError("wandb", "x").fix == "pip install 'joyrlinf[wandb]'"
