"""Entry point of `joyrl`: turns errors into messages and exit codes.

Everything is imported inside the functions, so that Ctrl-C at any moment is one line and no
traceback.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes a while
if TYPE_CHECKING:
    from collections.abc import Callable

    from joyrlinf_core.errors import ExitCode, JoyrlError


def main() -> None:
    """Run the command line; the only place where an error becomes an exit code."""
    try:
        from joyrlinf_cli import output

        output.set_up()
        code = _code_of(_command)
        code = _code_of(output.flush) or code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130  # ExitCode.INTERRUPTED, whose import may be what was interrupted
    sys.exit(code)


def _command() -> None:
    from joyrlinf_cli import app

    app.run()


def _code_of(action: Callable[[], None]) -> int | str | None:
    """Do something; return its exit code, after a message if it failed."""
    from joyrlinf_core.errors import ExitCode, JoyrlError

    try:
        action()
    except SystemExit as end:
        return end.code
    except JoyrlError as error:
        return _report(error)
    except Exception:
        import traceback

        traceback.print_exc()
        print(
            "\njoyrl stopped on an unexpected error: this is a bug in joyrl. Please report it with "
            "the lines above.",
            file=sys.stderr,
        )
        return ExitCode.BUG
    return ExitCode.OK


def _report(error: JoyrlError) -> ExitCode:
    """Write an error to standard error and return its exit code."""
    from joyrlinf_core.errors import ConfigError

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
