"""`Camera`: small off-screen pictures of MuJoCo scenes, upright, cheap.

One OpenGL context per process and size serves every task. Multisampling, shadows and reflections
are always off. `light` also hides the robot's arm (its meshes are most of the vertices; gripper
fingers stay), replaces textures by their mean colour, draws round shapes with few facets and leaves
the sky black: at 64 px that is 1 ms against 14.
"""
# mujoco ships no stubs for its C functions:
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

_FLAGS_OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
_FLAGS_OFF_LIGHT = (mujoco.mjtRndFlag.mjRND_SKYBOX,)
_ROBOT_ROOT = "base"
_MAX_GEOMS = 1000


@dataclass(frozen=True)
class View:
    """What one model needs on the OpenGL side."""

    model: Any
    scene: Any
    context: Any
    camera: Any
    upside_down: bool


class Camera:
    """Takes pictures of any number of models.

    Args:
        library: OpenGL library, as `opengl.choose` returns it.
        size: Height and width in pixels.
        name: Camera of the models.
        fovy: Vertical field of view in degrees; None keeps the model's own.
        light: Draw the reduced scene.
    """

    def __init__(
        self, library: str, size: int, name: str, *, fovy: float | None, light: bool
    ) -> None:
        self._size = size
        self._name = name
        self._fovy = fovy
        self._light = light
        self._gl: Any = importlib.import_module(f"mujoco.{library}").GLContext(size, size)
        self._rectangle = mujoco.MjrRect(0, 0, size, size)
        self._pixels = np.empty((size, size, 3), np.uint8)
        self._option = mujoco.MjvOption()
        self._views: list[View] = []
        self._current: View | None = None

    def add(self, model: mujoco.MjModel, data: mujoco.MjData) -> View:
        """Prepare a model for pictures; changes only how it looks.

        Args:
            model: The model.
            data: A state of it with positions computed; tells how the camera is turned.
        """
        quality = model.vis.quality
        quality.offsamples = 0
        quality.shadowsize = 0
        model.vis.global_.offwidth = model.vis.global_.offheight = self._size
        index = model.camera(self._name).id
        if self._fovy is not None:
            model.cam_fovy[index] = self._fovy
        if self._light:
            quality.numslices, quality.numstacks, quality.numquads = 12, 6, 1
            _hide_robot_arm(model)
            _flatten_textures(model)
        self._gl.make_current()
        scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        for flag in _FLAGS_OFF + (_FLAGS_OFF_LIGHT if self._light else ()):
            scene.flags[flag] = 0
        if self._light:
            scene.flags[mujoco.mjtRndFlag.mjRND_CULL_FACE] = 1
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = index
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        # The camera's own up axis is column 1 of its rotation; corner2 hangs upside down.
        upside_down = bool(data.cam_xmat[index].reshape(3, 3)[2, 1] < 0)
        view = View(model, scene, context, camera, upside_down)
        self._views.append(view)
        self._current = None
        return view

    def take(self, view: View, data: mujoco.MjData) -> np.ndarray:
        """Return a picture of the state whose positions `data` holds, uint8 [H, W, 3], upright."""
        if self._current is not view:
            self._gl.make_current()
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, view.context)
            self._current = view
        mujoco.mjv_updateScene(
            view.model,
            data,
            self._option,
            None,
            view.camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            view.scene,
        )
        mujoco.mjr_render(self._rectangle, view.scene, view.context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, view.context)
        # OpenGL's rows go from the bottom up.
        upright = self._pixels[:, ::-1] if view.upside_down else self._pixels[::-1]
        return upright.copy()

    def close(self) -> None:
        """Free the OpenGL side. Safe to call twice."""
        if self._gl is None:
            return
        self._gl.make_current()
        for view in self._views:
            view.context.free()
        self._views.clear()
        self._gl.free()
        self._gl = None


def _hide_robot_arm(model: mujoco.MjModel) -> None:
    root = model.body(_ROBOT_ROOT).id
    for geom in range(model.ngeom):
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        body = model.geom_bodyid[geom]
        while body not in (0, root):
            body = model.body_parentid[body]
        if body == root:
            model.geom_rgba[geom, 3] = 0
            model.geom_matid[geom] = -1


def _flatten_textures(model: mujoco.MjModel) -> None:
    """Give each textured material the mean colour of its texture instead."""
    rgb_role = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
    for material in range(model.nmat):
        texture = int(model.mat_texid[material, rgb_role])
        if texture < 0:
            continue
        channels = int(model.tex_nchannel[texture])
        start = int(model.tex_adr[texture])
        count = int(model.tex_height[texture]) * int(model.tex_width[texture]) * channels
        pixels = model.tex_data[start : start + count].reshape(-1, channels)
        mean = pixels.mean(axis=0)[:3] / 255.0
        model.mat_rgba[material, :3] *= mean
        model.mat_texid[material] = -1
