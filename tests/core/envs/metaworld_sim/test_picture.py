"""Pictures are upright, not mirrored, equal for equal states, and show what matters."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

pytest.importorskip("metaworld")

from joyrlinf_core.envs import opengl
from joyrlinf_core.envs.metaworld_sim.picture import Camera
from joyrlinf_core.envs.metaworld_sim.world import TaskWorld

pytestmark = pytest.mark.sim

CAMERAS = ("corner", "corner2", "corner3", "topview", "behindGripper")


class Scene:
    """push-v3 and a function that says where in the picture a marker appears."""

    def __init__(self, camera: str, *, light: bool = True, fovy: float | None = None) -> None:
        self.world = TaskWorld("push-v3", dense=False)
        self.world.start(3)
        self.world.refresh()
        self.camera = Camera(opengl.choose().library, 96, camera, fovy=fovy, light=light)
        self.view = self.camera.add(self.world.model, self.world.data)
        self.marker = self.world.model.site("goal").id
        self.world.model.site_size[self.marker] = 0.05
        self.world.model.site_rgba[self.marker] = (1, 0, 1, 1)

    def picture(self) -> np.ndarray:
        self.world.refresh()
        return self.camera.take(self.view, self.world.data)

    def pixel(self, position) -> np.ndarray:
        """Return the mean (row, column) of the marker at a position in metres."""
        self.world.model.site_pos[self.marker] = (0, 0, -50)
        without = self.picture().astype(int)
        self.world.model.site_pos[self.marker] = position
        changed = np.abs(self.picture().astype(int) - without).max(-1) > 20
        assert changed.any()
        return np.argwhere(changed).mean(0)

    def close(self) -> None:
        self.camera.close()
        self.world.close()


@pytest.mark.parametrize("camera", [c for c in CAMERAS if c != "topview"])
def test_higher_things_are_higher_in_the_picture(camera):
    scene = Scene(camera)
    low, high = scene.pixel((0, 0.7, 0.05)), scene.pixel((0, 0.7, 0.35))
    scene.close()
    assert high[0] < low[0] - 3


@pytest.mark.parametrize("camera", ["corner2", "corner3", "behindGripper"])
def test_the_picture_is_not_mirrored(camera):
    scene = Scene(camera)
    index = scene.world.model.camera(camera).id
    # Standing upright at the camera: right of the line of sight is forward x up.
    forward = -scene.world.data.cam_xmat[index].reshape(3, 3)[:, 2]
    right = np.cross(forward, (0, 0, 1))
    right /= np.linalg.norm(right)
    centre = np.array((0, 0.7, 0.1))
    left_pixel, right_pixel = scene.pixel(centre - 0.1 * right), scene.pixel(centre + 0.1 * right)
    scene.close()
    assert right_pixel[1] > left_pixel[1] + 3


def test_equal_states_give_equal_pictures():
    scene = Scene("corner2")
    first = scene.picture()
    scene.world.start(4)
    assert not np.array_equal(scene.picture(), first)
    scene.world.start(3)
    again = scene.picture()
    scene.close()
    assert first.shape == (96, 96, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(again, first)


def test_light_pictures_hide_the_arm_and_keep_the_fingers():
    light, full = Scene("corner2"), Scene("corner2", light=False)

    def moved(scene) -> int:
        before = scene.picture().astype(int)
        for _ in range(15):
            scene.world.step(np.array((0, 0, 1, -1), np.float32))
        return int((np.abs(scene.picture().astype(int) - before).max(-1) > 20).sum())

    few, many = moved(light), moved(full)
    light.close()
    full.close()
    assert 0 < few < many / 3


def test_light_changes_no_physics():
    drawn, undrawn = Scene("corner2"), TaskWorld("push-v3", dense=False)
    drawn.world.start(3)
    undrawn.start(3)
    for _ in range(20):
        action = np.array((0.3, 0.5, -1, 1), np.float32)
        drawn.world.step(action)
        undrawn.step(action)
    assert np.array_equal(drawn.world.data.qpos, undrawn.data.qpos)
    drawn.close()


def test_a_narrow_field_of_view_enlarges():
    wide, narrow = Scene("corner2"), Scene("corner2", fovy=30)
    spread = [
        np.abs(s.pixel((0.1, 0.7, 0.1)) - s.pixel((-0.1, 0.7, 0.1))).max() for s in (wide, narrow)
    ]
    wide.close()
    narrow.close()
    assert spread[1] > 1.7 * spread[0]


def test_one_context_serves_two_models():
    camera = Camera(opengl.choose().library, 64, "corner2", fovy=None, light=True)
    worlds = [TaskWorld(name, dense=False) for name in ("push-v3", "drawer-open-v3")]
    views = []
    for world in worlds:
        world.start(3)
        world.refresh()
        views.append(camera.add(world.model, world.data))
    pictures = [camera.take(v, w.data) for v, w in zip(views, worlds, strict=True)]
    again = [camera.take(v, w.data) for v, w in zip(views, worlds, strict=True)]
    assert not np.array_equal(pictures[0], pictures[1])
    assert all(np.array_equal(a, b) for a, b in zip(pictures, again, strict=True))
    camera.close()
    camera.close()


def test_shadows_and_multisampling_are_off():
    scene = Scene("corner2", light=False)
    flags = scene.view.scene.flags
    assert flags[mujoco.mjtRndFlag.mjRND_SHADOW] == 0
    assert flags[mujoco.mjtRndFlag.mjRND_REFLECTION] == 0
    assert scene.view.context.offSamples == 0
    scene.close()
