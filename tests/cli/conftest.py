import sys
from typing import NamedTuple

import pytest

from joyrlinf_cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def joyrl(monkeypatch, capsys):
    """Returns a function that runs a command line in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["joyrl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run
