"""The commands of `joyrl`: finds the one that was asked for; a new one is a row of `COMMANDS`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from joyrlinf_cli import output
from joyrlinf_cli.help_page import simplify
from joyrlinf_core.errors import ExitCode

# Importing makes many objects and no garbage: looking for some, then and again at the end of the
# process, would take a fifth of the time of a short command.
gc.set_threshold(50_000)
atexit.register(gc.freeze)

# Pydantic would look through the metadata of every installed package for plug-ins at start-up.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

COMMANDS = {
    "train": ("Run", "train:train"),
    "resume": ("Run", "resume:resume"),
    "eval": ("Run", "eval:evaluate"),
    "sft": ("Run", "sft:sft"),
    "runs": ("Run", "runs:app"),
    "validate": ("Check", "validate:validate"),
    "shape-check": ("Check", "shape_check:shape_check"),
    "estimate": ("Check", "estimate:estimate"),
    "nccl-test": ("Check", "nccl_test:nccl_test"),
    "explain": ("Check", "explain:explain"),
    "presets": ("Config", "presets:app"),
    "config": ("Config", "config:app"),
}
"""Name of a command -> panel of `joyrl --help`, and `module:function` below `commands/`; a module
with several commands has an app of its own."""

_EXIT_CODES = """Exit codes: 0 done; 1 a bug in joyrl; 2 wrong command line; 3 invalid config;
4 something is missing on this machine; 5 the run failed; 75 stopped after saving, `joyrl resume`
goes on; 130 interrupted; 141 the reader of a pipe has gone."""


class _Commands(TyperGroup):
    """Ends a command as joyrl does where Typer's own ways say nothing."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments."""
        with _spoken_ends():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _spoken_ends():
            return super().invoke(ctx)


@contextlib.contextmanager
def _spoken_ends() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except OSError as error:
        output.explain(error)
        if not isinstance(error, BrokenPipeError):
            raise
        # Typer would take it for that of the output, and be silent.
        raise RuntimeError(f"joyrl's own pipe: {error}") from error


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"joyrl {version('joyrlinf')}")
        raise typer.Exit


def root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Reinforcement learning for vision-language-action policies in simulation."""


def build(first: str = "") -> typer.Typer:
    """Return the command line.

    Args:
        first: First word of the arguments. Where it is a command, no other is loaded.
    """
    app = typer.Typer(
        name="joyrl",
        cls=_Commands,
        epilog=_EXIT_CODES,
        help=root.__doc__,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in [first] if first in COMMANDS else COMMANDS:
        panel, place = COMMANDS[name]
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(f"joyrlinf_cli.commands.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
    return app


def run() -> None:
    """Run the command line; ends in `SystemExit` or an error."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    simplify(typer.main.get_command(build(first)))()
