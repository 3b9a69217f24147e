"""Lint, format, types and layer contracts, with the settings of pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

BIN = Path(sys.executable).parent


def run(*command, env=None):
    return subprocess.run(
        command,
        cwd=ROOT,
        env=env or os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )


def test_ruff_check():
    result = run(sys.executable, "-m", "ruff", "check", "--no-cache", ".")
    assert result.returncode == 0, result.stdout


def test_ruff_format():
    result = run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".")
    assert result.returncode == 0, result.stdout


def test_layer_contracts():
    result = run(BIN / "lint-imports", "--no-cache")
    assert result.returncode == 0, result.stdout
    assert " 0 broken" in result.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_types(original_environment):
    pyright = [sys.executable, "-m", "pyright"]
    version = run(*pyright, "--version", env=original_environment)
    if version.returncode != 0:
        pytest.skip(f"pyright needs Node.js, which can't be had here: {version.stdout[-300:]}")
    result = run(*pyright, "--pythonpath", sys.executable, env=original_environment)
    assert result.returncode == 0, result.stdout
