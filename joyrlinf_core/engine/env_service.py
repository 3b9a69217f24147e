"""`EnvService`: simulates on an env rank what stages of other ranks ask for.

One thread a part, which builds its vector env, waits for requests and answers them. So no client
waits for another one's simulators, whatever these do, and each simulator sees a single thread.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from joyrlinf_core.comm.messages import Header, Line, PeerLostError, pack, unpack
from joyrlinf_core.engine import env_messages as wire
from joyrlinf_core.engine.env_messages import Kind, Layouts, Trouble
from joyrlinf_core.engine.env_parts import evaluation_parts, part_configs, training_parts
from joyrlinf_core.engine.threads import ServiceThread
from joyrlinf_core.observability.activity import block, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.env_parts import Part, PartConfig
    from joyrlinf_core.envs.base import VecEnv


class EnvService:
    """Serves the parts of one env rank that other ranks infer for, until all clients have closed.

    A context manager: simulators start when it is entered, and without an error it is left once
    all clients have closed. Where this rank is a client of others, enter it before their vector
    envs are opened: these must be closed first, as the others wait in the same way.

    Args:
        context: This worker. An error that ends the service goes to `context.fail`, after the
            client that waits has been told.
        group: Gloo group of env and rollout ranks.
        evaluation: Also keep envs for evaluations alone; see `vec_envs.can_share`.
    """

    def __init__(self, context: JobContext, group: ProcessGroup, *, evaluation: bool) -> None:
        plan = context.plan
        self._context = context
        self._group = group
        self._error: Exception | None = None
        self._threads: list[ServiceThread] = []
        self._add(training_parts(plan), plan.config.env.train)
        if evaluation:
            self._add(evaluation_parts(plan), plan.config.eval_env)

    def __enter__(self) -> EnvService:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # With an error the process ends; clients need not close, and Gloo can't wake its waiters.
        if kind is None:
            with waiting("the end of the rollout"):
                for thread in self._threads:
                    thread.join()

    def _add(self, parts: Sequence[Part], config: EnvConfig) -> None:
        """Make a thread for each part that others infer for."""
        rank = self._context.rank
        for part, how in part_configs(self._context.plan, config, parts, rank).items():
            if part.client != rank:
                line = Line(self._group, part.client, part.line, role="rollout")
                self._threads.append(
                    ServiceThread(
                        f"envs-{len(self._threads)}",
                        partial(self._serve, how, line),
                        self._context,
                    )
                )

    def _serve(self, how: PartConfig, line: Line) -> None:
        """Body of a thread."""
        try:
            self._converse(how, line)
        except Exception as error:
            self._error = self._error or error
            raise

    def _converse(self, how: PartConfig, line: Line) -> None:
        """Answer requests until the client closes, or one can't be answered."""
        layouts = Layouts.of(how.config)
        with block("the start of simulators"):
            env = how.build()
        try:
            while True:
                header, payload = line.receive()
                if header.kind == Kind.CLOSE:
                    return
                try:
                    if self._error is not None:
                        raise self._error
                    with block(f"simulators for rank {line.peer}"):
                        answer = _answer(env, layouts, header, payload)
                except Exception as error:
                    # A client that is gone need not know.
                    with suppress(PeerLostError):
                        line.refuse(header.sequence, Trouble.of(error).text())
                    raise
                line.send(*answer)
                line.flush()
        finally:
            env.close()


def _answer(
    env: VecEnv, layouts: Layouts, header: Header, payload: Tensor
) -> tuple[Header, Tensor]:
    """Do what a request asks for."""
    rows, chunk = header.rows, header.chunk
    if header.kind == Kind.RESET:
        numbers, slots = unpack(payload, layouts.reset(rows))
        observation = env.reset(slots, wire.as_episodes(numbers))
        tensors, layout = wire.from_observation(observation), layouts.observation(rows)
        return Header(Kind.OBSERVATION, header.sequence, rows), pack(tensors, layout)
    slots, actions = unpack(payload, layouts.chunk(rows, chunk))
    step = env.chunk_step(slots, actions, final_frames=header.flag)
    tensors, layout = wire.from_step(step), layouts.step(rows, chunk)
    return Header(Kind.STEP, header.sequence, rows, chunk), pack(tensors, layout)
