"""What every test gets: one torch thread, a cache of its own session, honest skips."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from functools import cache

import pytest

_ENVIRONMENT = dict(os.environ)

# Before anything imports torch or numpy: thread pools read these once. Children inherit them.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point the user cache at a directory of this session: no test reads or writes yours."""
    previous = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if previous is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = previous


@pytest.fixture(scope="session")
def original_environment() -> dict[str, str]:
    """Environment variables as they were when pytest started, for tools outside joyrl."""
    return dict(_ENVIRONMENT)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--exhaustive`."""
    parser.addoption("--exhaustive", action="store_true", help="also run the exhaustive tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine can't run, or was not asked for, and say why."""
    checks = {"sim": _no_simulator, "gpu": _no_gpu, "multigpu": _no_second_gpu}
    exhaustive = config.getoption("--exhaustive")
    for item in items:
        if item.get_closest_marker("exhaustive") and not exhaustive:
            item.add_marker(pytest.mark.skip(reason="minutes each: `make test-all` runs it"))
        for marker, check in checks.items():
            if item.get_closest_marker(marker) and (reason := check()):
                item.add_marker(pytest.mark.skip(reason=reason))


@cache
def _no_simulator() -> str:
    """Return why no simulator can run here; empty if one can."""
    if importlib.util.find_spec("metaworld") is None:
        return "metaworld is not installed: pip install -e '.[metaworld]'"
    from joyrlinf_core.envs import opengl
    from joyrlinf_core.errors import EnvironmentNotReadyError

    try:
        opengl.choose()
    except EnvironmentNotReadyError as error:
        return str(error)
    return ""


@cache
def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _no_gpu() -> str:
    return "" if _gpus() else "no CUDA device"


def _no_second_gpu() -> str:
    return "" if _gpus() > 1 else "fewer than two CUDA devices"
