"""Base class of every config section."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

MAX_COUNT = 1_000_000_000
"""Largest count of anything: far beyond any run, and products of them stay quick to work with."""

MAX_CHUNK = 1_000
"""Most actions of one chunk; policies predict some tens of them."""


class Section(BaseModel):
    """A frozen config section.

    Unknown keys are errors; the string under a field is its help text (`config/help_texts.py`).
    """

    # Validators are built when they are first used, which saves those of sections inside sections.
    # `use_attribute_docstrings` would parse the source of every section at start-up.
    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, protected_namespaces=()
    )
