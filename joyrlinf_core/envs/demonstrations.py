"""Scripted demonstrations, collected by several simulator processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from joyrlinf_core.envs.simulator_process import SimulatorProcess, close_all
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.batch.demonstration import Demonstration
    from joyrlinf_core.config.schema import EnvConfig


@dataclass(frozen=True)
class Recipe:
    """How to record.

    Attributes:
        noise: Standard deviation of Gaussian noise on executed actions; labels stay clean.
        frame_stride: Env steps between two pictures.
        steps_after_success: Env steps that an episode goes on after success.
    """

    noise: float
    frame_stride: int
    steps_after_success: int

    def options(self, seed: int, index: int) -> dict[str, Any]:
        """Return the keyword arguments of `Simulator.demonstrate` for one episode."""
        return {
            "noise": self.noise,
            "noise_seed": stream(seed, "demo-noise", index),
            "frame_stride": self.frame_stride,
            "steps_after_success": self.steps_after_success,
        }


def collect(
    config: EnvConfig, recipe: Recipe, *, seed: int, indices: Sequence[int], num_workers: int
) -> Generator[Demonstration]:
    """Yield the demonstrations of these numbers in order, failed ones included.

    What is yielded depends on config, recipe and seed alone, not on `num_workers`. Closing the
    iterator early ends the processes.

    Args:
        config: Env section.
        recipe: How to record.
        seed: Seed of initial states and noise.
        indices: Numbers of the demonstrations; equal numbers give equal ones.
        num_workers: Simulator processes; 0 plays in this process.

    Raises:
        SimulatorCrashError: A simulator process raised or died.
    """
    config.check_ready()
    if num_workers == 0:
        simulator = config.build(1)
        try:
            for index in indices:
                episode = config.demo_episode(seed, index)
                yield simulator.demonstrate(episode, **recipe.options(seed, index))
        finally:
            simulator.close()
        return
    processes: list[SimulatorProcess] = []
    try:
        for index in range(min(num_workers, len(indices))):
            slots = range(index, index + 1)
            processes.append(SimulatorProcess(config, index=index, slots=slots))
        yield from _in_order(config, recipe, processes, seed=seed, indices=indices)
    finally:
        close_all(processes)


def _in_order(
    config: EnvConfig,
    recipe: Recipe,
    processes: list[SimulatorProcess],
    *,
    seed: int,
    indices: Sequence[int],
) -> Iterator[Demonstration]:
    """Hand the next episode to whichever process is free; put results in order."""
    playing: dict[Any, tuple[SimulatorProcess, int | None]] = {
        process.connection: (process, None) for process in processes
    }
    finished: dict[int, Demonstration] = {}
    next_play = next_yield = 0
    while next_yield < len(indices):
        for connection in wait(list(playing)):
            process, place = playing.pop(connection)
            answer = process.recv()
            if place is not None:
                finished[place] = answer
            if next_play < len(indices):
                index = indices[next_play]
                episode = config.demo_episode(seed, index)
                process.send("demonstrate", episode, recipe.options(seed, index))
                playing[connection] = (process, next_play)
                next_play += 1
        while next_yield in finished:
            yield finished.pop(next_yield)
            next_yield += 1
