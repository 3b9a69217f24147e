import pytest

from joyrlinf_core import registry
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.keys import sections
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section


class Parent(Section):
    plain: int = 1
    """One
    sentence."""

    kept: int = 2
    """Parent's."""

    said_anew: int = 3
    """Parent's."""

    silent: int = 4


class Child(Parent):
    kept: int = 5
    said_anew: int = 6
    """Child's."""

    own: int = 7
    """First.

    Second."""


def test_help_texts():
    assert help_texts(Child) == {
        "plain": "One sentence.",
        "kept": "Parent's.",
        "said_anew": "Child's.",
        "silent": "",
        "own": "First.\n\nSecond.",
    }


@pytest.mark.parametrize("kind", ["envs", "policies"])
def test_every_key_of_every_registered_class_is_explained(kind):
    silent = {
        f"{cls.__name__}.{key}"
        for name in registry.names(kind)
        for cls in sections(registry.load(kind, name))
        for key, text in help_texts(cls).items()
        if not text
    }
    assert not silent


def test_every_key_of_the_sections_is_explained():
    silent = {
        f"{cls.__name__}.{key}"
        for cls in sections(Config)
        for key, text in help_texts(cls).items()
        if not text
    }
    assert not silent
