"""Which OpenGL library is taken, and what is said when none works."""

from __future__ import annotations

import os

import pytest

from joyrlinf_core.envs import opengl
from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode


@pytest.fixture
def tries(monkeypatch):
    """Replace the real try; returns (libraries that work, libraries that were tried)."""
    works, tried = {}, []

    def fake(library):
        tried.append(library)
        return (works[library], "") if library in works else ("", "lib not found")

    monkeypatch.setattr(opengl, "_try", fake)
    for name in (opengl.HANDED_DOWN, "MUJOCO_GL", "LP_NUM_THREADS"):
        # Set first, so that what `choose` writes is undone after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return works, tried


def test_egl_goes_first_and_osmesa_stands_in(tries):
    works, tried = tries
    works["osmesa"] = "llvmpipe (LLVM 15.0.6, 256 bits)"
    assert str(opengl.choose()) == "osmesa (software)"
    assert tried == ["egl", "osmesa"]


def test_one_try_serves_this_process_and_its_children(tries):
    works, tried = tries
    works["egl"] = "NVIDIA H200/PCIe/SSE2"
    first = opengl.choose()
    assert opengl.choose() == opengl.choose("egl") == first
    assert tried == ["egl"]
    assert os.environ[opengl.HANDED_DOWN] == "egl|NVIDIA H200/PCIe/SSE2"
    assert os.environ["MUJOCO_GL"] == "egl"
    assert str(first) == "egl (NVIDIA H200/PCIe/SSE2)"


def test_the_users_own_choice_is_kept(tries, monkeypatch):
    works, tried = tries
    works.update(egl="llvmpipe", osmesa="llvmpipe")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert opengl.choose().library == "osmesa"
    assert opengl.choose("egl").library == "egl"
    assert tried == ["osmesa", "egl"]


def test_the_users_own_choice_that_fails_is_not_replaced(tries, monkeypatch):
    works, tried = tries
    works["egl"] = "llvmpipe"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(EnvironmentNotReadyError, match="MUJOCO_GL=osmesa"):
        opengl.choose()
    assert tried == ["osmesa"]


@pytest.mark.parametrize(
    ("renderer", "package"), [("auto", "libosmesa6"), ("osmesa", "libosmesa6"), ("egl", "libegl1")]
)
def test_nothing_that_works_names_the_debian_package(tries, renderer, package):
    with pytest.raises(EnvironmentNotReadyError) as caught:
        opengl.choose(renderer)
    assert f"apt-get install -y {package}" in caught.value.fix
    assert "lib not found" in caught.value.message
    assert caught.value.exit_code == ExitCode.ENVIRONMENT_NOT_READY


def test_a_library_that_is_no_library_is_refused_without_a_try(monkeypatch):
    for name in (opengl.HANDED_DOWN, "MUJOCO_GL"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    with pytest.raises(EnvironmentNotReadyError, match=r"vulkan.*egl or osmesa"):
        opengl.choose()


@pytest.mark.sim
def test_the_real_try_renders_or_says_why():
    library = opengl.choose().library
    device, failure = opengl._try(library)
    assert device
    assert not failure
