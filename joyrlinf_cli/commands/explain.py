"""`joyrl explain`: what a code of a finding means."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from joyrlinf_cli.options import JsonOption
from joyrlinf_core.errors import UsageError


def _complete_codes(incomplete: str) -> list[str]:
    from joyrlinf_core.plan.rules import pages

    return [code for code in pages.codes() if code.startswith(incomplete.upper())]


CodeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CODE",
        help="Code of a finding, for example JR103; without it, all codes are listed.",
        show_default=False,
        autocompletion=_complete_codes,
    ),
]


def explain(code: CodeArgument = None, as_json: JsonOption = False) -> None:
    """Say what a code such as JR103 means: what must hold, why, and an example."""
    from joyrlinf_core.plan.rules import pages

    wanted = pages.codes() if code is None else [code.strip().upper()]
    found = [page for name in wanted if (page := pages.page(name)) is not None]
    if not found:
        near = pages.nearest(wanted[0])
        fix = f"did you mean {' or '.join(near)}?" if near else "`joyrl explain` lists all codes"
        raise UsageError(f"no code '{code}'", fix=fix)
    if as_json:
        rows = [
            {"code": p.code, "title": p.title, "text": p.body, "reads": list(p.reads)}
            for p in found
        ]
        print(json.dumps({"schema": 1, "codes": rows}, indent=2))
    elif code is None:
        print("\n".join(f"{page.code}  {page.title}" for page in found))
    else:
        print(found[0].markdown.removeprefix("### "), end="")
