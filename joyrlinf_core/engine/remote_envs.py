"""`RemoteVecEnv`: the vector env of a stage whose slots live on other ranks, or partly.

Every part of the stage is a peer with a line of its own, or a vector env of this rank. All parts
are asked before any answer is waited for, so they simulate at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import torch

from joyrlinf_core.comm.messages import (
    Header,
    Line,
    PeerLostError,
    RefusedError,
    pack,
    payload_bytes,
    unpack,
)
from joyrlinf_core.engine import env_messages as wire
from joyrlinf_core.engine.env_messages import Kind, Layouts
from joyrlinf_core.engine.env_parts import (
    Part,
    evaluation_parts,
    part_configs,
    training_parts,
)
from joyrlinf_core.envs.base import ChunkStep, VecEnv
from joyrlinf_core.errors import SimulatorCrashError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.comm.messages import Field
    from joyrlinf_core.config.schema import EnvConfig, EpisodeId
    from joyrlinf_core.engine.context import JobContext

CLOSE_TIMEOUT_S = 10.0
"""How long `close` waits for a chunk that nobody wants any more, so that it can say goodbye."""


def build_remote_vec_envs(
    context: JobContext,
    group: ProcessGroup | None,
    opened: ExitStack,
    *,
    evaluation: bool = False,
) -> list[VecEnv]:
    """Build the vector envs of this rollout rank, one per stage; returns at once.

    The first reset waits for the simulators. An `EnvService` must run on each other env rank.

    Args:
        context: This worker.
        group: Gloo group of env and rollout ranks; None where all parts are this rank's own.
        opened: Closes every env that was built.
        evaluation: For evaluations with envs of their own; see `vec_envs.can_share`.
    """
    plan = context.plan
    config = plan.config.eval_env if evaluation else plan.config.env.train
    parts = evaluation_parts(plan) if evaluation else training_parts(plan)
    stages = plan.config.rollout.pipeline_stage_num
    own = part_configs(plan, config, parts, context.rank)
    envs: list[VecEnv] = []
    for stage in range(stages):
        mine = [part for part in parts if (part.client, part.stage) == (context.rank, stage)]
        peers: list[_Peer] = []
        env = RemoteVecEnv(config, sum(part.num_slots for part in mine), peers)
        opened.callback(env.close)
        for part in mine:
            if part in own:
                peers.append(_OwnPart(part, own[part].build()))
            else:
                assert group is not None, "parts of other ranks need a group"
                line = Line(group, part.server, part.line, role="env")
                peers.append(_RemotePart(part, line, config))
        envs.append(env)
    return envs


class _Peer(Protocol):
    """Whoever simulates one part. Tensors are those of the answers in `env_messages`."""

    part: Part
    is_remote: bool

    def ask_reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> None: ...

    def ask_chunk(self, slots: Tensor, actions: Tensor, *, final_frames: bool) -> None: ...

    def answer(self) -> list[Tensor]: ...

    def close(self) -> None: ...


class RemoteVecEnv(VecEnv):
    """Looks like a local vector env of one stage.

    Args:
        config: Env section.
        num_envs: Slots.
        peers: Who simulates them, in the order of the slots; may still grow before the first
            reset. Closed with it.
    """

    def __init__(self, config: EnvConfig, num_envs: int, peers: list[_Peer]) -> None:
        self.num_envs = num_envs
        self._prompts = config.task_prompts
        self._peers = peers
        self._asked: list[tuple[_Peer, Tensor]] | None = None
        self._closed = False

    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        """See `VecEnv.reset`. The first call also waits for the start of all simulators.

        Raises:
            SimulatorCrashError: A simulator raised or died; names the env rank.
            PeerLostError: An env rank is gone.
        """
        if self._asked is not None:
            raise RuntimeError("reset() before recv() of the chunk sent last")
        asked = self._split(slots)
        for peer, rows in asked:
            peer.ask_reset(slots[rows], [episodes[row] for row in rows.tolist()])
        return wire.to_observation(_answers(asked), self._prompts)

    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        """See `VecEnv.send`."""
        if self._asked is not None:
            raise RuntimeError("send() before recv() of the chunk sent last")
        self._asked = self._split(slots)
        for peer, rows in self._asked:
            peer.ask_chunk(slots[rows], actions[rows], final_frames=final_frames)

    def recv(self) -> ChunkStep:
        """See `VecEnv.recv`.

        Raises:
            SimulatorCrashError: A simulator raised or died; names the env rank.
            PeerLostError: An env rank is gone.
        """
        if self._asked is None:
            raise RuntimeError("recv() without send()")
        asked, self._asked = self._asked, None
        return wire.to_step(_answers(asked), self._prompts)

    def close(self) -> None:
        """See `VecEnv.close`. Waits a moment for answers that are still due."""
        if self._closed:
            return
        self._closed = True
        # In threads that can be left alone: a wait that Gloo times out would break other lines.
        goodbyes = [
            Thread(target=peer.close, name="envs-close", daemon=True)
            for peer in self._peers
            if peer.is_remote
        ]
        for goodbye in goodbyes:
            goodbye.start()
        for peer in self._peers:
            if not peer.is_remote:
                peer.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for goodbye in goodbyes:
            goodbye.join(max(0.0, deadline - time.monotonic()))

    def _split(self, slots: Tensor) -> list[tuple[_Peer, Tensor]]:
        """Return who has to do with these slots and the rows int64 [n] of each; remote ones first.

        A simulator of this process may keep this rank busy, while others need only be asked.
        """
        asked = []
        for peer in sorted(self._peers, key=lambda peer: not peer.is_remote):
            here = (slots >= peer.part.slots.start) & (slots < peer.part.slots.stop)
            rows = here.nonzero().squeeze(1)
            if len(rows):
                asked.append((peer, rows))
        return asked


def _answers(asked: list[tuple[_Peer, Tensor]]) -> list[Tensor]:
    """Wait for all answers; return their rows in the order of the request."""
    # Remote ones were asked first. What is own comes first now: it may simulate only here.
    answers = [(rows, peer.answer()) for peer, rows in reversed(asked)]
    if len(answers) == 1:
        return answers[0][1]
    answers.sort(key=lambda answer: int(answer[0][0]))
    tensors = [torch.cat(parts) for parts in zip(*(told for _, told in answers), strict=True)]
    place = torch.cat([rows for rows, _ in answers])
    if bool((place[1:] > place[:-1]).all()):
        return tensors  # the slots were in order, as nearly always
    order = torch.argsort(place)
    return [tensor[order] for tensor in tensors]


class _OwnPart:
    """Slots that this rank simulates itself."""

    is_remote = False

    def __init__(self, part: Part, env: VecEnv) -> None:
        self.part = part
        self._env = env
        self._reset: tuple[Tensor, Sequence[EpisodeId]] | None = None

    def ask_reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> None:
        self._reset = slots - self.part.first_slot, episodes

    def ask_chunk(self, slots: Tensor, actions: Tensor, *, final_frames: bool) -> None:
        self._env.send(slots - self.part.first_slot, actions, final_frames=final_frames)

    def answer(self) -> list[Tensor]:
        if self._reset is None:
            return wire.from_step(self._env.recv())
        asked, self._reset = self._reset, None
        return wire.from_observation(self._env.reset(*asked))

    def close(self) -> None:
        self._env.close()


class _RemotePart:
    """Slots that another rank simulates; numbers of slots on the line are those of the part."""

    is_remote = True

    def __init__(self, part: Part, line: Line, config: EnvConfig) -> None:
        self.part = part
        self._line = line
        self._layouts = Layouts.of(config)
        self._sequence = 0
        self._due: list[Field] | None = None
        self._broken = False

    def ask_reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> None:
        rows = len(slots)
        tensors = [wire.as_numbers(episodes), slots - self.part.first_slot]
        payload = pack(tensors, self._layouts.reset(rows))
        self._ask(payload, self._layouts.observation(rows), kind=Kind.RESET, rows=rows)

    def ask_chunk(self, slots: Tensor, actions: Tensor, *, final_frames: bool) -> None:
        rows, chunk = actions.shape[:2]
        payload = pack(
            [slots - self.part.first_slot, actions.detach()], self._layouts.chunk(rows, chunk)
        )
        answer = self._layouts.step(rows, chunk)
        self._ask(payload, answer, kind=Kind.CHUNK, rows=rows, chunk=chunk, flag=final_frames)

    def _ask(self, payload: Tensor, answer: list[Field], **about: Any) -> None:
        self._sequence += 1
        self._due = answer
        self._line.expect(payload_bytes(answer))
        self._line.send(Header(sequence=self._sequence, **about), payload)

    def answer(self) -> list[Tensor]:
        assert self._due is not None, "an answer follows a request"
        layout, self._due = self._due, None
        try:
            header, payload = self._line.answer()
            self._line.flush()
        except RefusedError as error:
            self._broken = True
            raise _raised_there(self._line, error) from error
        except PeerLostError:
            self._broken = True
            raise
        assert header.sequence == self._sequence, "a line carries one request at a time"
        return unpack(payload, layout)

    def close(self) -> None:
        if self._broken:
            return
        # A peer that fails or is gone by now tells so itself; nobody wants its answer any more.
        with suppress(PeerLostError, SimulatorCrashError):
            if self._due is not None:
                self.answer()
            self._line.send(Header(Kind.CLOSE, self._sequence + 1))
            self._line.flush()


def _raised_there(line: Line, error: RefusedError) -> SimulatorCrashError:
    told = wire.Trouble.read(str(error))
    raised = SimulatorCrashError(f"{line}: {told.message}", fix=told.fix)
    raised.exit_code = told.exit_code
    return raised
