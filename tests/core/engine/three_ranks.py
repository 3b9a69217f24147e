"""What three Gloo ranks see of remote vector envs, started once for all tests of the file.

Every rank of a case serves and acts as its roles say. A rank that acts also plays with local vector
envs and tells where the two differ.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from joyrlinf_core.comm.messages import PeerLostError
from joyrlinf_core.config.schema import Config
from joyrlinf_core.engine.env_service import EnvService
from joyrlinf_core.engine.remote_envs import build_remote_vec_envs
from joyrlinf_core.engine.rollout import Rollout
from joyrlinf_core.envs.base import ChunkResult, VecEnv
from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.errors import SimulatorCrashError
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import RunPlan
from joyrlinf_core.policies.base import PolicyOutput
from tests.core.engine.harness import make_config
from tests.doubles.reach import ReachEnv, ReachSimulator

WORLD = 3
ENVS = 12
SLEEP_S = 0.5

TWO_SIMULATE = {"env": "0-1", "rollout,actor": "2"}
TWO_ACT = {"env": "0", "rollout,actor": "1-2"}
UNEVEN = {"env": "0-2", "rollout,actor": "2"}
"""The stages of rank 2 are 4 + 2 envs of ranks 0 and 1, and 2 of rank 1 + 4 of its own."""

ROLLOUTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "two simulate": (TWO_SIMULATE, {"rollout__pipeline_stage_num": 3}),
    "two simulate, auto reset": (
        TWO_SIMULATE,
        {"rollout__pipeline_stage_num": 2, "env__train__auto_reset": True},
    ),
    "two act": (TWO_ACT, {"rollout__pipeline_stage_num": 2}),
    "two act, auto reset": (TWO_ACT, {"env__train__auto_reset": True}),
    "uneven": (UNEVEN, {"rollout__pipeline_stage_num": 2, "env__train__num_workers": 1}),
    "uneven, auto reset": (
        UNEVEN,
        {"rollout__pipeline_stage_num": 2, "env__train__auto_reset": True},
    ),
}


class SlowReach(ReachEnv):
    """A simulator that takes its time."""

    type: Literal["tests.core.engine.three_ranks:SlowReach"] = (
        "tests.core.engine.three_ranks:SlowReach"
    )

    def build(self, num_slots: int) -> ReachSimulator:
        return SlowSimulator(self, num_slots)


class SlowSimulator(ReachSimulator):
    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        time.sleep(SLEEP_S)
        return super().chunk_step(slots, actions, final_frames=final_frames)


class NoisyPolicy:
    """Acts by what it sees and by its own random numbers."""

    def prepare(self, observation: Any) -> dict[str, Tensor]:
        images = observation.images.flatten(1).float().sum(1, keepdim=True)
        return {"state": observation.state.clone(), "sum": images, "task": observation.task.clone()}

    def draw(self, generator: torch.Generator, n: int) -> dict[str, Tensor]:
        return {"noise": torch.randn(n, 4, 2, generator=generator)}

    def predict(
        self, inputs: Mapping[str, Tensor], draws: Mapping[str, Tensor], mode: str
    ) -> PolicyOutput:
        point, target = inputs["state"].split(2, dim=1)
        actions = torch.tanh(4 * (target - point)[:, None] + draws["noise"])
        values = inputs["sum"][:, 0] + inputs["state"][:, 0]
        return PolicyOutput(actions, logprobs=actions, values=values, replay=dict(draws))


def make_plan(placement: dict[str, str], **changes: Any) -> RunPlan:
    """Return the plan of twelve envs, without groups and with values."""
    settings: dict[str, Any] = {
        "cluster__component_placement": placement,
        "env__train__total_num_envs": ENVS,
        "env__train__distance": 1.0,
        "env__train__close": 0.1,
        "actor__micro_batch_size": 8,
        "actor__model__model_path": "policy",
        "actor__model__add_value_head": True,
        "algorithm__adv_type": "gae",
        "algorithm__loss_type": "actor_critic",
        "algorithm__group_size": 1,
    }
    config: Config = make_config(**(settings | changes))
    return build_plan(config, None)


class Rank:
    """One rank in one case."""

    def __init__(self, rank: int, plan: RunPlan) -> None:
        self.plan = plan
        self.failures: list[BaseException] = []
        self.group: Any = dist.new_group(list(range(WORLD)), timeout=timedelta(seconds=60))
        self.acts = rank in plan.placement.rollout_ranks
        self.context: Any = SimpleNamespace(
            plan=plan,
            rank=rank,
            device=torch.device("cpu"),
            emitter=SimpleNamespace(phase=lambda *_, **__: None),
            fail=self.failures.append,
        )

    def open(self, opened: ExitStack, *, evaluation: bool = False) -> list[VecEnv]:
        """Serve and return the envs to act in; none on a rank that does not."""
        if self.context.rank in self.plan.placement.env_ranks:
            service = EnvService(self.context, self.group, evaluation=evaluation)
            opened.enter_context(service)
        return build_remote_vec_envs(self.context, self.group, opened) if self.acts else []

    def open_local(self, opened: ExitStack) -> list[VecEnv]:
        """Return envs of this process alone that are to be the same."""
        stages = self.plan.config.rollout.pipeline_stage_num
        size = ENVS // len(self.plan.placement.rollout_ranks) // stages
        config = self.plan.config.env.train.model_copy(update={"num_workers": 0})
        envs = [build_vec_env(config, size) for _ in range(stages)]
        for env in envs:
            opened.callback(env.close)
        return envs

    def rollouts(self, envs: list[VecEnv]) -> dict[str, Tensor]:
        """Play two rollouts; return everything in their batches."""
        double: Any = NoisyPolicy()
        rollout = Rollout(self.context, double, envs, PhaseTimer())
        first_episode, tensors = 0, {}
        for step in range(2):
            batch, _ = rollout.collect(step, version=lambda: 5, first_episode=first_episode)
            first_episode = rollout.next_episode
            for name, value in vars(batch).items():
                parts = value if isinstance(value, dict) else {"": value}
                tensors |= {f"{step} {name} {key}": part for key, part in parts.items()}
        return tensors


def rollout_case(rank: int, name: str) -> dict[str, Any]:
    """Play with remote and with local envs; return where they differ, and what is left behind."""
    placement, changes = ROLLOUTS[name]
    here = Rank(rank, make_plan(placement, **changes))
    seen: dict[str, Any] = {}
    with ExitStack() as opened:
        envs = here.open(opened)
        if here.acts:
            seen["sizes"] = [env.num_envs for env in envs]
            found = here.rollouts(envs)
            with ExitStack() as locally:
                expected = here.rollouts(here.open_local(locally))
            assert found.keys() == expected.keys()
            seen["different"] = [
                key
                for key, tensor in found.items()
                if tensor.dtype != expected[key].dtype or not torch.equal(tensor, expected[key])
            ]
            seen["played"] = int(found["0 played "].sum())
            seen["over"] = int(found["0 dones "].sum())
            seen["fields"] = len(found)
    return seen | left_behind() | {"failures": len(here.failures)}


def left_behind() -> dict[str, Any]:
    """Return the threads and child processes that are still there."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("envs")]
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process of others that has just ended
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children += [status.parent.name] * (parent == os.getpid())
    return {"threads": threads, "children": children}


def evaluation_case(rank: int) -> dict[str, Any]:
    """Evaluate in envs of their own, while a chunk of training is under way."""
    plan = make_plan(TWO_SIMULATE, env__eval__total_num_envs=4)
    here = Rank(rank, plan)
    seen: dict[str, Any] = {}
    with ExitStack() as opened:
        training = here.open(opened, evaluation=True)
        if here.acts:
            (own,) = build_remote_vec_envs(here.context, here.group, opened, evaluation=True)
            local = build_vec_env(plan.config.eval_env, 4)
            all_slots, actions = torch.arange(ENVS), torch.full((ENVS, 4, 2), 0.5)
            episodes = [plan.config.env.train.train_episode(1, env, 0) for env in range(ENVS)]
            (local_training,) = here.open_local(opened)
            local_training.reset(all_slots, episodes)
            training[0].reset(all_slots, episodes)
            training[0].send(all_slots, actions)
            expected = local_training.chunk_step(all_slots, actions)
            seen["size"] = own.num_envs
            slots = torch.tensor([3, 0, 2])  # no ascending ones are promised
            held_out = [plan.config.eval_env.eval_episode(index) for index in range(3)]
            seen["state"] = torch.equal(
                own.reset(slots, held_out).state, local.reset(slots, held_out).state
            )
            slots = torch.tensor([0, 2, 3])
            actions = torch.linspace(-1, 1, 24).reshape(3, 4, 2)
            theirs, ours = (env.chunk_step(slots, actions) for env in (own, local))
            seen["step"] = [
                torch.equal(getattr(theirs.observation, name), getattr(ours.observation, name))
                for name in ("images", "state", "task")
            ] + [torch.equal(theirs.steps, ours.steps)]
            found = training[0].recv()
            seen["training"] = torch.equal(found.observation.state, expected.observation.state)
            try:
                training[0].recv()
            except RuntimeError as error:
                seen["twice"] = str(error)
    return seen | left_behind()


def overlap_case(rank: int, placement: dict[str, str]) -> dict[str, Any]:
    """Time chunks that take long, of two parts or of two clients."""
    kind = "tests.core.engine.three_ranks:SlowReach"
    plan = make_plan(placement, env__train__type=kind, env__train__num_workers=1)
    here = Rank(rank, plan)
    seconds = 0.0
    with ExitStack() as opened:
        envs = here.open(opened)
        if here.acts:
            (env,) = envs
            slots = torch.arange(env.num_envs)
            env.reset(slots, [plan.config.env.train.eval_episode(0)] * env.num_envs)
        dist.barrier()
        if here.acts:
            started = time.perf_counter()
            env.chunk_step(slots, torch.zeros(env.num_envs, 4, 2))
            seconds = time.perf_counter() - started
            # Nobody waits for this one but `close`.
            env.send(slots, torch.zeros(env.num_envs, 4, 2))
    return {"seconds": seconds} | left_behind()


def crash_case(rank: int) -> dict[str, Any]:
    """A simulator of rank 1's crashes, so rank 2 is refused, too."""
    plan = make_plan(TWO_ACT, env__train__crash_at_reset=1)
    here = Rank(rank, plan)
    seen: dict[str, Any] = {}
    with ExitStack() as opened:
        envs = here.open(opened)
        slots = torch.arange(1)
        episodes = [plan.config.env.train.eval_episode(0)]
        for acting in (1, 2):
            if rank == acting:
                try:
                    for _ in range(2):
                        envs[0].reset(slots, episodes)
                except SimulatorCrashError as error:
                    seen["error"] = str(error)
            dist.barrier()
    return seen | left_behind() | {"failures": [type(error).__name__ for error in here.failures]}


def death_case(rank: int) -> dict[str, Any]:
    """Rank 0 dies under two clients."""
    here = Rank(rank, make_plan(TWO_ACT))
    opened = ExitStack()
    envs = here.open(opened)
    dist.barrier()
    if rank == 0:
        os._exit(0)
    started = time.perf_counter()
    seen: dict[str, Any] = {}
    try:
        while True:
            envs[0].reset(torch.arange(1), [here.plan.config.env.train.eval_episode(0)])
    except PeerLostError as error:
        seen["error"] = str(error)
    opened.close()
    return seen | {"seconds": time.perf_counter() - started} | left_behind()


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=60)
    )
    seen: dict[str, Any] = {name: rollout_case(rank, name) for name in ROLLOUTS}
    seen["evaluation"] = evaluation_case(rank)
    seen["two simulate slowly"] = overlap_case(rank, TWO_SIMULATE)
    seen["two act slowly"] = overlap_case(rank, TWO_ACT)
    seen["crash"] = crash_case(rank)
    Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    seen["death"] = death_case(rank)
    Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    # Without rank 0 nothing can be left in order.
    os._exit(0)


def start(directory: Path) -> list[dict[str, Any]]:
    """Return what each rank saw."""
    torch.multiprocessing.spawn(rank_main, args=(str(directory),), nprocs=WORLD)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(WORLD)]
