"""The `joyrl` command: registers every command and turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from typing import Annotated

import typer

from joyrlinf_cli.commands import (
    config,
    estimate,
    explain,
    presets,
    resume,
    runs,
    sft,
    train,
    validate,
)
from joyrlinf_cli.commands import eval as eval_command
from joyrlinf_core.errors import ConfigError, ExitCode, JoyrlError

# Importing makes many objects and no garbage: looking for some, then and again at the end of the
# process, would take a fifth of the time of a short command.
gc.set_threshold(50_000)
atexit.register(gc.freeze)

# Pydantic would look through the metadata of every installed package for plug-ins at start-up.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="joyrl",
    help="Reinforcement learning for vision-language-action policies in simulation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"joyrl {version('joyrlinf')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Reinforcement learning for vision-language-action policies in simulation."""


app.command("train", rich_help_panel="Run")(train.train)
app.command("resume", rich_help_panel="Run")(resume.resume)
app.command("eval", rich_help_panel="Run")(eval_command.evaluate)
app.command("sft", rich_help_panel="Run")(sft.sft)
app.add_typer(runs.app, name="runs", rich_help_panel="Run")
app.command("validate", rich_help_panel="Check")(validate.validate)
app.command("estimate", rich_help_panel="Check")(estimate.estimate)
app.command("explain", rich_help_panel="Check")(explain.explain)
app.add_typer(presets.app, name="presets", rich_help_panel="Config")
app.add_typer(config.app, name="config", rich_help_panel="Config")


def main() -> None:
    """Run the command line; the only place where an error becomes an exit code."""
    try:
        app()
    except JoyrlError as error:
        sys.exit(_report(error))
    except Exception:
        traceback.print_exc()
        print(
            "\njoyrl stopped on an unexpected error: this is a bug in joyrl. Please report it with "
            "the lines above.",
            file=sys.stderr,
        )
        sys.exit(ExitCode.BUG)


def _report(error: JoyrlError) -> ExitCode:
    """Write an error to standard error and return its exit code."""
    if isinstance(error, ConfigError) and error.findings:
        from joyrlinf_cli.render.findings import write_findings
        from joyrlinf_core.config.source_map import SourceMap

        write_findings(error.findings, SourceMap(), sys.stderr)
        return error.exit_code
    print(f"error: {error.message}", file=sys.stderr)
    if error.fix:
        print(f"  fix: {error.fix}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    main()
