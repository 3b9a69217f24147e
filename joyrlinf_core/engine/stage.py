"""`Stage`: the envs of one rank that simulate together while the policy infers for another stage.

Owns which slots play, what they last saw and which episode they are in; writes what they did into
the recorder. Slot, column, env id, t and row are as in `rollout.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from joyrlinf_core.engine import finite

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.config.schema import EnvConfig, EpisodeId
    from joyrlinf_core.engine.recorder import Recorder
    from joyrlinf_core.envs.base import ChunkStep, VecEnv


class Received(NamedTuple):
    """A chunk that was simulated.

    Attributes:
        slots: int64 [m], the slots that played.
        result: What they did; row i is about `slots[i]`.
    """

    slots: Tensor
    result: ChunkStep


class Stage:
    """Slots [0, n) of one vector env.

    `episode` and `task`, int64 [n], are those of each slot's latest episode, also once it is over.

    Args:
        env: The vector env; not owned.
        config: Its config.
        env_ids: int64 [n], of each slot; groups are consecutive.
        first_column: Column of slot 0; the others follow.
        group_size: G.
        seed: Seed of the run.
        final_frames: Whether the value of a truncated episode's last observation will be asked for.
    """

    def __init__(
        self,
        env: VecEnv,
        config: EnvConfig,
        *,
        env_ids: Tensor,
        first_column: int,
        group_size: int,
        seed: int,
        final_frames: bool,
    ) -> None:
        self.env = env
        self.config = config
        self.env_ids = env_ids
        self.columns = torch.arange(first_column, first_column + len(env_ids))
        self.groups = env_ids // group_size
        self._seed = seed
        self._final_frames = final_frames
        count = len(env_ids)
        self.episode = torch.full((count,), -1, dtype=torch.int64)
        self.task = torch.zeros(count, dtype=torch.int64)
        self.playing = torch.zeros(count, dtype=torch.bool)
        self._observation: Observation | None = None
        self._sent: Tensor | None = None

    def begin_epoch(self, episode: int) -> None:
        """Start episode number `episode` in every slot, unless simulation goes on (auto-reset)."""
        if self.config.auto_reset and self._observation is not None:
            return
        self.episode.fill_(episode)
        self.playing.fill_(True)
        self._observation = self._reset(torch.arange(len(self.env_ids)))

    def slots(self) -> Tensor:
        """Return the playing slots, int64 [m], ascending."""
        return self.playing.nonzero().squeeze(1)

    def observe(self, slots: Tensor) -> Observation:
        """Return the last observation of these slots."""
        assert self._observation is not None, "begin_epoch comes first"
        return self._observation.rows(slots)

    def send(self, slots: Tensor, actions: Tensor) -> None:
        """Start a chunk in these slots."""
        self._sent = slots
        self.env.send(slots, actions, final_frames=self._final_frames)

    def receive(self, t: int, recorder: Recorder) -> Received | None:
        """Wait for the chunk sent last, record it at chunk step t, and start next episodes.

        Returns:
            None when nothing was sent.
        """
        if self._sent is None:
            return None
        slots, self._sent = self._sent, None
        result = self.env.recv()
        finite.check_result(result, lambda row: self._place(int(slots[row])))
        dones = result.terminations | result.truncations
        recorder.write_result(t, self.columns[slots], result, dones)
        over = slots[dones.any(dim=1)]
        assert self._observation is not None, "begin_epoch comes first"
        self._observation.put(slots, result.observation)
        if self.config.auto_reset:
            self.episode[over] += 1
            if len(over):
                self._observation.put(over, self._reset(over))
        else:
            self.playing[over] = False
        return Received(slots, result)

    def drain(self) -> None:
        """Wait for a chunk that was sent and drop it."""
        if self._sent is not None:
            self._sent = None
            self.env.recv()

    def _reset(self, slots: Tensor) -> Observation:
        episodes = [self._episode_id(slot) for slot in slots.tolist()]
        self.task[slots] = torch.tensor([episode.task for episode in episodes])
        observation = self.env.reset(slots, episodes)
        finite.check("observation", observation.state, lambda row: self._place(int(slots[row])))
        return observation

    def _episode_id(self, slot: int) -> EpisodeId:
        return self.config.train_episode(
            self._seed, int(self.groups[slot]), int(self.episode[slot])
        )

    def _place(self, slot: int) -> str:
        return f"env {int(self.env_ids[slot])}, {self._episode_id(slot)}"
