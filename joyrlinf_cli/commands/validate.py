"""`joyrl validate`: check configs offline, all problems at once."""

from __future__ import annotations

from typing import Annotated

import typer

from joyrlinf_cli.options import ConfigArguments, ConfigOption, JsonOption, PresetOption, SetOption

CheckPathsOption = Annotated[
    bool,
    typer.Option(
        "--check-paths",
        help="Files and directories that a config names must be on this machine.",
    ),
]


def validate(
    configs: ConfigArguments = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    check_paths: CheckPathsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check configs without running them: every problem at once, with file and line.

    Exit code 0 if no config has an error, 2 if one does not exist, else 3.
    """
    from joyrlinf_cli.configs import load_all
    from joyrlinf_cli.render.validation import Report, write_json, write_text
    from joyrlinf_core.errors import ExitCode

    reports = [
        Report.of(one, check_paths=check_paths) for one in load_all(configs, preset, config, sets)
    ]
    if as_json:
        write_json(reports)
    else:
        write_text(reports)
    if any(report.loaded.is_absent for report in reports):
        raise typer.Exit(ExitCode.USAGE)
    ok = all(report.ok for report in reports)
    raise typer.Exit(ExitCode.OK if ok else ExitCode.CONFIG_INVALID)
