"""Error hierarchy and findings.

A `Finding` describes one problem of a config or of this machine; a `JoyrlError` ends a command.
Both carry the reason and a fix, because a message that only names the symptom costs the reader a
search. Imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "info"]


class ExitCode(IntEnum):
    """Exit codes of every `joyrl` command."""

    OK = 0
    BUG = 1
    USAGE = 2
    CONFIG_INVALID = 3
    ENVIRONMENT_NOT_READY = 4
    RUN_FAILED = 5
    STOPPED_WITH_CHECKPOINT = 75
    INTERRUPTED = 130


@dataclass(frozen=True)
class Finding:
    """One problem, said once.

    Attributes:
        code: Stable identifier, for example `JR103`.
        severity: `error` stops the command; `warning` and `info` do not.
        paths: Dotted config keys that the finding is about, the first one is where the caret goes.
        message: What is wrong, with the offending values and the arithmetic.
        fix: What to type instead; empty where nothing can be suggested.
        file: File that holds the first path's value; None if it came from `--set` or a default.
        line: 1-based line in `file`.
        column: 1-based column in `file`.
    """

    code: str
    severity: Severity
    paths: tuple[str, ...]
    message: str
    fix: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that `joyrl validate --json` prints for this finding."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.paths[0] if self.paths else "",
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "fix": self.fix,
        }


class JoyrlError(Exception):
    """Base of every error that joyrl raises for a user.

    Args:
        message: What is wrong, naming key and value where there is one.
        fix: What to do about it.
    """

    exit_code: ExitCode = ExitCode.RUN_FAILED

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class UsageError(JoyrlError, ValueError):
    """The command line itself is wrong."""

    exit_code = ExitCode.USAGE


class ConfigError(JoyrlError, ValueError):
    """A config is invalid; carries every finding, not only the first.

    Args:
        findings: All findings, warnings included.
        message: Summary; made from the findings when absent.
    """

    exit_code = ExitCode.CONFIG_INVALID

    def __init__(
        self, findings: Iterable[Finding] = (), message: str = "", *, fix: str = ""
    ) -> None:
        self.findings: Sequence[Finding] = tuple(findings)
        if not message:
            errors = [f for f in self.findings if f.severity == "error"]
            message = "; ".join(f"[{f.code}] {', '.join(f.paths)}: {f.message}" for f in errors)
        super().__init__(message or "invalid config", fix=fix)


class EnvironmentNotReadyError(JoyrlError, RuntimeError):
    """This machine lacks something that the run needs (a library, a device, a permission)."""

    exit_code = ExitCode.ENVIRONMENT_NOT_READY


class MissingExtraError(EnvironmentNotReadyError, ImportError):
    """An optional dependency group is not installed.

    Args:
        extra: Name of the extra.
        needed_by: What asked for it.
    """

    def __init__(self, extra: str, needed_by: str) -> None:
        super().__init__(
            f"{needed_by} needs the extra '{extra}', which is not installed",
            fix=_install_command(extra),
        )
        self.extra = extra


def _install_command(extra: str) -> str:
    """Return the command that adds an extra: to the checkout that runs, else to the package."""
    checkout = Path(__file__).parents[1]
    if not (checkout / "pyproject.toml").is_file():
        return f"pip install 'joyrlinf[{extra}]'"
    place = "." if checkout == Path.cwd() else str(checkout)
    return f"pip install -e '{place}[{extra}]'"


class RunFailedError(JoyrlError, RuntimeError):
    """A started run ended with an error."""


class NonFiniteError(RunFailedError):
    """A loss, gradient norm, log-prob, reward or observation became NaN or infinite."""


class SimulatorCrashError(RunFailedError):
    """A simulator process raised or died; the message holds its traceback."""


class CheckpointError(RunFailedError):
    """A checkpoint or policy directory can't be read, or does not fit."""


class DemonstrationError(RunFailedError):
    """Demonstrations on disk can't be read or written, or do not fit."""
