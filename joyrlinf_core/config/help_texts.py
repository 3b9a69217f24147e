"""Help texts of config keys: the string under a field of a section class.

Read from the source when somebody asks, so that commands which need no help text do not pay.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from joyrlinf_core.config.schema.base import Section


@cache
def help_texts(cls: type[Section]) -> dict[str, str]:
    """Return the help text of every key of a section, paragraphs on one line each.

    A key that a subclass repeats without a text keeps the text of the base class.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Section):
            texts.update(_own_texts(base))
    return {name: texts.get(name, "") for name in cls.model_fields}


def _own_texts(cls: type[Section]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}  # made by code, as the classes of partial configs are
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in pairwise(body.body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = _unwrap(str(text.value.value))
    return found


def _unwrap(text: str) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
