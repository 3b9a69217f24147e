"""`MetaWorldSimulator`: n slots in one process; a slot plays any task of the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.envs.base import ChunkResult, Frame
from joyrlinf_core.envs.metaworld_sim.picture import Camera, View
from joyrlinf_core.envs.metaworld_sim.world import STATE_DIM, Snapshot, TaskWorld

if TYPE_CHECKING:
    from joyrlinf_core.envs.metaworld import MetaWorldConfig


@dataclass
class _Slot:
    """One running episode."""

    task: int
    snapshot: Snapshot
    steps: int = 0
    success: bool = False
    over: bool = False


class MetaWorldSimulator:
    """Implements `Simulator` for Meta-World.

    Worlds of few tasks are built at once, while the parent does other things; those of many tasks
    at first use, since a process may never play most of them.

    Args:
        config: The env section.
        num_slots: Number of slots.
        library: OpenGL library that works here.
    """

    def __init__(self, config: MetaWorldConfig, num_slots: int, library: str) -> None:
        self._config = config
        self._slots: list[_Slot | None] = [None] * num_slots
        self._worlds: dict[int, tuple[TaskWorld, View]] = {}
        self._camera = Camera(
            library,
            config.image_size,
            config.camera,
            fovy=config.camera_fovy,
            light=config.render_quality == "light",
        )
        if len(config.task_names) <= num_slots:
            for task in range(len(config.task_names)):
                self._world(task)

    def reset(self, slots: Sequence[int], episodes: Sequence[EpisodeId]) -> Frame:
        """See `Simulator.reset`. Equal ids are reset and drawn once, then copied."""
        frame = self._empty_frame(len(slots))
        first: dict[EpisodeId, int] = {}
        for row, (slot, episode) in enumerate(zip(slots, episodes, strict=True)):
            frame.task[row] = episode.task
            if episode in first:
                twin_row = first[episode]
                twin = self._slot(slots[twin_row])
                self._slots[slot] = _Slot(episode.task, twin.snapshot.twin())
                frame.images[row] = frame.images[twin_row]
                frame.state[row] = frame.state[twin_row]
                continue
            first[episode] = row
            world, view = self._world(episode.task)
            self._slots[slot] = _Slot(episode.task, world.start(episode.variation))
            world.refresh()
            frame.images[row, 0] = self._camera.take(view, world.data)
            frame.state[row] = world.state()
        return frame

    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        """See `Simulator.chunk_step`."""
        rows, chunk = actions.shape[:2]
        result = ChunkResult(
            rewards=np.zeros((rows, chunk), np.float32),
            terminations=np.zeros((rows, chunk), bool),
            truncations=np.zeros((rows, chunk), bool),
            success=np.zeros(rows, bool),
            steps=np.zeros(rows, np.int64),
            frame=self._empty_frame(rows),
        )
        for row, index in enumerate(slots):
            slot = self._slot(index)
            world, view = self._world(slot.task)
            world.load(slot.snapshot)
            self._play(slot, world, actions[row], result, row)
            slot.snapshot = world.save()
            result.success[row] = slot.success
            result.frame.task[row] = slot.task
            if not slot.over or (final_frames and result.truncations[row].any()):
                result.frame.images[row, 0] = self._camera.take(view, world.data)
                result.frame.state[row] = world.state()
        return result

    def demonstrate(
        self,
        episode: EpisodeId,
        *,
        noise: float,
        noise_seed: int,
        frame_stride: int,
        steps_after_success: int,
    ) -> Demonstration:
        """See `Simulator.demonstrate`. Labels are the expert's clean actions."""
        world, view = self._world(episode.task)
        world.start(episode.variation)
        world.refresh()
        expert = world.expert()
        rng = np.random.default_rng(noise_seed)
        states, actions, executed, frame_steps, images = [], [], [], [], []
        end = self._config.max_episode_steps
        success = False
        step = 0
        while step < end:
            states.append(world.state())
            if step % frame_stride == 0:
                frame_steps.append(step)
                images.append(self._camera.take(view, world.data))
            action = world.act(expert)
            disturbed = np.clip(action + noise * rng.standard_normal(action.shape), -1.0, 1.0)
            actions.append(action)
            executed.append(disturbed.astype(np.float32))
            _, solved = world.step(executed[-1])
            step += 1
            if solved and not success:
                success = True
                end = min(end, step + steps_after_success)
        return Demonstration(
            episode=episode,
            prompt=self._config.task_prompts[episode.task],
            state=np.stack(states),
            actions=np.stack(actions),
            executed=np.stack(executed),
            frame_steps=np.asarray(frame_steps, np.int64),
            images=np.stack(images)[:, None],
            success=success,
        )

    def close(self) -> None:
        """Free the renderer and the physics. Safe to call twice."""
        self._camera.close()
        for world, _ in self._worlds.values():
            world.close()
        self._worlds.clear()

    def _play(
        self, slot: _Slot, world: TaskWorld, actions: np.ndarray, result: ChunkResult, row: int
    ) -> None:
        """Execute one slot's chunk, up to the end of its episode."""
        config = self._config
        dense = config.reward_mode == "dense"
        for column, action in enumerate(actions):
            if slot.over:
                return
            reward, solved = world.step(action)
            slot.steps += 1
            result.steps[row] += 1
            first_success = solved and not slot.success
            slot.success |= solved
            result.rewards[row, column] = config.reward_coef * (reward if dense else first_success)
            if first_success and not config.ignore_terminations:
                result.terminations[row, column] = slot.over = True
            elif slot.steps >= config.max_episode_steps:
                result.truncations[row, column] = slot.over = True

    def _slot(self, index: int) -> _Slot:
        slot = self._slots[index]
        if slot is None:
            raise IndexError(f"slot {index} has no episode; reset it first")
        return slot

    def _world(self, task: int) -> tuple[TaskWorld, View]:
        if task not in self._worlds:
            name = self._config.task_names[task]
            world = TaskWorld(name, dense=self._config.reward_mode == "dense")
            self._worlds[task] = (world, self._camera.add(world.model, world.data))
        return self._worlds[task]

    def _empty_frame(self, rows: int) -> Frame:
        return Frame(
            images=np.zeros((rows, *self._config.image_shape), np.uint8),
            state=np.zeros((rows, STATE_DIM), np.float32),
            task=np.zeros(rows, np.int64),
        )
