"""Which OpenGL library is taken, and what is said when none works."""

from __future__ import annotations

import os
import subprocess

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
    for name in (opengl.HANDED_DOWN, "MUJOCO_GL", "LP_NUM_THREADS", "PYOPENGL_PLATFORM"):
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


@pytest.mark.parametrize("value", ["vulkan", "disabled", "glfw"])
def test_a_variable_that_names_no_headless_library_is_to_be_unset(tries, monkeypatch, value):
    monkeypatch.setenv("MUJOCO_GL", value)
    with pytest.raises(EnvironmentNotReadyError, match=f"MUJOCO_GL={value} can't render") as caught:
        opengl.choose()
    assert caught.value.fix == "unset MUJOCO_GL, or set it to egl or osmesa"


def test_a_platform_that_pyopengl_was_told_wrongly_is_replaced(tries, monkeypatch):
    tries[0]["osmesa"] = "llvmpipe"
    monkeypatch.setenv("PYOPENGL_PLATFORM", "glx")
    opengl.choose()
    assert os.environ["PYOPENGL_PLATFORM"] == "osmesa"


@pytest.fixture
def ended(monkeypatch):
    """Return a function that makes every try end with a code and a last line."""
    for name in (opengl.HANDED_DOWN, "MUJOCO_GL"):
        monkeypatch.setenv(name, "")

    def set_end(code, line=""):
        done = subprocess.CompletedProcess([], code, "", f"Traceback:\n{line}\n" if line else "")
        monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: done)

    return set_end


@pytest.mark.parametrize(
    ("code", "line", "message", "fix"),
    [
        (-7, "", "shader cache at /c/mesa_shader_cache", "MESA_SHADER_CACHE_DISABLE=true"),
        (-11, "", "killed by SIGSEGV", "apt-get"),
        (1, "JOYRL-MISSING numpy", "module 'numpy'", "-m pip install --force-reinstall numpy"),
        (1, "JOYRL-MISSING OpenGL", "module 'OpenGL'", "pip install --force-reinstall PyOpenGL"),
        (1, "JOYRL-MISSING mujoco", "extra 'metaworld'", "pip install"),
        (
            1,
            "AttributeError: 'NoneType' object has no attribute 'x'",
            "libOSMesa is not",
            "apt-get",
        ),
        (1, "ImportError: Cannot initialize a EGL device display.", "finds no device", "apt-get"),
        (1, "rendered a black picture", "egl: rendered a black picture", "apt-get"),
    ],
)
def test_what_went_wrong_is_said_with_what_helps(ended, monkeypatch, code, line, message, fix):
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", "/c")
    ended(code, line)
    with pytest.raises(EnvironmentNotReadyError) as caught:
        opengl.choose()
    assert message in caught.value.message
    assert fix in caught.value.fix


def test_a_module_that_is_blocked_is_named_by_the_real_try(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['OpenGL'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="module 'OpenGL'"):
        opengl._try("osmesa")


@pytest.mark.sim
def test_the_real_try_renders_or_says_why():
    library = opengl.choose().library
    device, failure = opengl._try(library)
    assert device
    assert not failure
