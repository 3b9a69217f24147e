"""Which OpenGL library renders off screen here: EGL (GPU or Mesa software) or OSMesa (software).

Both exist in versions that import but can't render, so each is tried for real in a child process,
once; the answer is handed down to child processes in an environment variable. At 64 px both Mesa
paths take the same time per frame (the vertices cost, not the library); EGL goes first because it
also reaches a GPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from joyrlinf_core.errors import EnvironmentNotReadyError, MissingExtraError

Renderer = Literal["auto", "egl", "osmesa"]

HANDED_DOWN = "JOYRL_OPENGL"
"""Environment variable `<library>|<device>` that a parent process leaves after its own try."""

_PACKAGES = {"egl": "libegl1 libgl1-mesa-dri", "osmesa": "libosmesa6"}
_MODULES = {"OpenGL": "PyOpenGL"}
"""Python modules whose package has another name."""

_MISSING = "JOYRL-MISSING "
_TIMEOUT_S = 120

_PROBE = """
import sys, importlib
try:
    import numpy as np
    import OpenGL
    importlib.import_module("mujoco." + sys.argv[1])
except ModuleNotFoundError as error:
    sys.exit("JOYRL-MISSING " + (error.name or str(error)).partition(".")[0])
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(16, 16)
context.make_current()
import mujoco
from OpenGL import GL
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><camera name='c' pos='0 0 2'/>"
    "<geom type='sphere' size='1' rgba='1 1 1 1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
scene = mujoco.MjvScene(model, maxgeom=10)
render = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, render)
camera = mujoco.MjvCamera()
camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera,
                       mujoco.mjtCatBit.mjCAT_ALL.value, scene)
picture = np.zeros((16, 16, 3), np.uint8)
mujoco.mjr_render(mujoco.MjrRect(0, 0, 16, 16), scene, render)
mujoco.mjr_readPixels(picture, None, mujoco.MjrRect(0, 0, 16, 16), render)
if picture[8, 8].max() == 0:
    sys.exit("rendered a black picture")
print("JOYRL", GL.glGetString(GL.GL_RENDERER).decode(), flush=True)
render.free()
context.free()
"""


@dataclass(frozen=True)
class OpenGL:
    """A library that renders here.

    Attributes:
        library: `egl` or `osmesa`; `glfw` only when `MUJOCO_GL` asks for it.
        device: What the driver calls itself.
    """

    library: str
    device: str

    def __str__(self) -> str:
        software = any(name in self.device.lower() for name in ("llvmpipe", "softpipe", "swrast"))
        return f"{self.library} ({'software' if software else self.device})"


def choose(renderer: Renderer = "auto") -> OpenGL:
    """Return the library to render with, tried in a child process unless a parent has.

    Also sets what MuJoCo and Mesa read from the environment, for this process and its children.

    Args:
        renderer: `auto` takes `MUJOCO_GL` where the user has set it, else what works.

    Raises:
        EnvironmentNotReadyError: None works; names the Debian package.
        MissingExtraError: mujoco itself is not installed.
    """
    library, _, device = os.environ.get(HANDED_DOWN, "").partition("|")
    if library and renderer in ("auto", library):
        return OpenGL(library, device)
    asked = os.environ.get("MUJOCO_GL", "").lower() if not library else ""
    if renderer != "auto":
        candidates, source = (renderer,), f"env renderer: {renderer}"
    elif asked:
        candidates, source = (asked,), f"MUJOCO_GL={asked}"
    else:
        candidates, source = ("egl", "osmesa"), ""
    failures: dict[str, str] = {}
    for candidate in candidates:
        device, failure = _try(candidate)
        if not failure:
            return _settle(OpenGL(candidate, device))
        failures[candidate] = failure
    tried = "; ".join(f"{name}: {failure}" for name, failure in failures.items())
    unable = f"{source} can't render" if source else "no OpenGL library renders"
    raise EnvironmentNotReadyError(
        f"{unable} off screen on this machine ({tried})",
        fix=_fix(candidates[-1], tried, from_variable=bool(asked and source.startswith("MUJOCO"))),
    )


def _fix(library: str, tried: str, *, from_variable: bool) -> str:
    """Return what to do about libraries that were tried and can't render."""
    if library not in _PACKAGES:
        return "unset MUJOCO_GL, or set it to egl or osmesa"
    if _CACHE_PROBLEM in tried:
        return (
            f"free space at {_shader_cache()}, set MESA_SHADER_CACHE_DIR to another disk, or set "
            "MESA_SHADER_CACHE_DISABLE=true"
        )
    fix = f"apt-get install -y {_PACKAGES[library]}   (Debian and Ubuntu, as root)"
    return f"unset MUJOCO_GL to try the others, or {fix}" if from_variable else fix


def _settle(chosen: OpenGL) -> OpenGL:
    """Write the choice into the environment, which child processes inherit."""
    os.environ[HANDED_DOWN] = f"{chosen.library}|{chosen.device}"
    os.environ["MUJOCO_GL"] = chosen.library
    # MuJoCo refuses to load a library when this names another one.
    if chosen.library in _PACKAGES:
        os.environ["PYOPENGL_PLATFORM"] = chosen.library
    else:
        os.environ.pop("PYOPENGL_PLATFORM", None)
    # Simulators already fill the cores; Mesa's own threads cost a third more CPU per small frame.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    return chosen


def _try(library: str) -> tuple[str, str]:
    """Render a picture in a child process; returns (device, failure), one of them empty."""
    if library not in ("egl", "osmesa", "glfw"):
        return "", "no such library"
    environment = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"}
    environment["MUJOCO_GL"] = library
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, library],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer in {_TIMEOUT_S} s"
    for line in done.stdout.splitlines():
        if line.startswith("JOYRL "):
            return line.removeprefix("JOYRL "), ""
    message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if message.startswith(_MISSING):
        raise _missing_module(message.removeprefix(_MISSING))
    return "", _explained(library, message, done.returncode)


def _missing_module(module: str) -> EnvironmentNotReadyError:
    if module == "mujoco":
        return MissingExtraError("metaworld", "rendering with MuJoCo")
    package = _MODULES.get(module, module)
    return EnvironmentNotReadyError(
        f"rendering needs the Python module '{module}', which can't be imported",
        fix=f"{sys.executable} -m pip install --force-reinstall {package}",
    )


_CACHE_PROBLEM = "Mesa can't write its shader cache"


def _explained(library: str, message: str, exit_code: int) -> str:
    """Return why a library can't render, in words where the last line of the try has none."""
    if exit_code == -signal.SIGBUS:
        # The cache is a mapped file; a full disk shows when a page of it is touched.
        return f"{_CACHE_PROBLEM} at {_shader_cache()}, its disk is full (killed by SIGBUS)"
    if exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    if "'NoneType' object has no attribute" in message or "Unable to load" in message:
        file = {"egl": "libEGL", "osmesa": "libOSMesa"}.get(library, library)
        return f"{file} is not installed ({message})"
    if library == "egl" and "EGL device display" in message:
        return "libEGL finds no device that it can draw with: no GPU driver and no Mesa driver"
    return message


def _shader_cache() -> Path:
    """Return where Mesa keeps compiled shaders."""
    chosen = os.environ.get("MESA_SHADER_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen or home) / "mesa_shader_cache"
