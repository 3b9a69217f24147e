"""`joyrl shape-check`: run the batch code of a config on synthetic rollouts."""

from __future__ import annotations

import typer

from joyrlinf_cli.options import ConfigArguments, ConfigOption, JsonOption, PresetOption, SetOption


def shape_check(
    configs: ConfigArguments = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every tensor from rollout to loss, and check shapes and values.

    Runs the batch code of a training run on the CPU with made-up rollouts; needs no weights and no
    simulator. Exit code 0 if all checks hold, 2 if a config does not exist, 3 if one has an
    error, 5 if a check failed.
    """
    from joyrlinf_cli.configs import load_all
    from joyrlinf_cli.render.shapes import ShapeResult, write_json, write_text
    from joyrlinf_core.errors import ExitCode

    results: list[ShapeResult] = []
    for loaded in load_all(configs, preset, config, sets):
        results.append(ShapeResult.of(loaded))
        if not as_json:
            write_text(results[-1])
    if as_json:
        write_json(results)
    if any(result.loaded.is_absent for result in results):
        raise typer.Exit(ExitCode.USAGE)
    if any(result.report is None for result in results):
        raise typer.Exit(ExitCode.CONFIG_INVALID)
    ok = all(result.ok for result in results)
    raise typer.Exit(ExitCode.OK if ok else ExitCode.RUN_FAILED)
