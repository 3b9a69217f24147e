"""Faults in the ranks of a real run: what, where and on which rank says a variable.

`install` wraps one function of the product, or of the reach double, in this process. The wrapper
does nothing but count until its call is due.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

VARIABLE = "JOYRL_TEST_FAULT"

PLACES = {
    "env.step": "tests.doubles.reach:ReachSimulator.chunk_step",
    "policy.predict": "joyrlinf_core.policies.openpi.policy:OpenPiPolicy.predict",
    "policy.score": "joyrlinf_core.policies.openpi.policy:OpenPiPolicy.evaluate_actions",
    "loss": "joyrlinf_core.algorithms.losses.actor:compute",
    "hand_over": "joyrlinf_core.comm.trajectories.exchange:TrajectoryExchange.exchange",
    "send": "joyrlinf_core.comm.trajectories.exchange:TrajectoryExchange.send",
    "receive": "joyrlinf_core.comm.trajectories.exchange:TrajectoryExchange.receive",
    "weights.send": "joyrlinf_core.comm.weights.sender:WeightSender.send",
    "weights.receive": "joyrlinf_core.comm.weights.receiver:WeightReceiver.receive",
    "scalars.receive": "joyrlinf_core.comm.scalars:ScalarChannel.receive",
    "save": "joyrlinf_core.checkpoint.archive:save",
    "evaluate": "joyrlinf_core.engine.evaluator:_Player.receive",
    "sink": "joyrlinf_core.observability.sinks.tensorboard:TensorBoardSink.write",
}
"""What can be made to fail, by name."""

PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        place: Key of `PLACES`.
        what: A function of this module that is named `do_<what>` or `spoil_<what>`.
        rank: Global rank that it strikes.
        call: Number of the call that it strikes, from 1, counted since the process began.
        mark: File that is written when it strikes.
        argument: What `what` needs; may be empty.
    """

    place: str
    what: str
    rank: int
    mark: str
    call: int = 2
    argument: str = ""

    def to_text(self) -> str:
        """Return what `VARIABLE` holds."""
        return json.dumps(asdict(self))


def install() -> None:
    """Wrap what the variable names, if this is the rank that it is about."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    fault = Fault(**json.loads(text))
    if fault.rank == int(os.environ["RANK"]):
        owner, name = _owner(PLACES[fault.place])
        setattr(owner, name, _wrapped(getattr(owner, name), fault))


def _owner(place: str) -> tuple[Any, str]:
    module_name, _, path = place.partition(":")
    *parents, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def _wrapped(function: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != fault.call:
            return function(*args, **kwargs)
        Path(fault.mark).write_text(repr(time.time()))
        if do := globals().get(f"do_{fault.what}"):
            do(fault)
            return function(*args, **kwargs)
        return globals()[f"spoil_{fault.what}"](function(*args, **kwargs))

    return wrapper


def do_raise(fault: Fault) -> None:
    raise RuntimeError(f"told to fail in {fault.place}")


def do_kill(_fault: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def do_hang(_fault: Fault) -> None:
    while True:
        time.sleep(60)


def do_pause(_fault: Fault) -> None:
    time.sleep(PAUSE_SECONDS)


def do_fill(fault: Fault) -> None:
    """Take all space of the disk that the argument is on."""
    with Path(fault.argument).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**20))
        except OSError:
            size = file.tell()
        try:
            while True:
                file.write(bytes(2**10))
        except OSError:
            file.truncate(max(size, file.tell()))


def spoil_reward(result: Any) -> Any:
    result.rewards[0, 0] = float("nan")
    return result


def spoil_state(result: Any) -> Any:
    result.frame.state[0, 0] = float("inf")
    return result


def spoil_logprobs(output: Any) -> Any:
    return replace(output, logprobs=output.logprobs * float("nan"))


def spoil_score(scores: Any) -> Any:
    return replace(scores, logprobs=scores.logprobs * float("nan"))


def spoil_gradient(output: Any) -> Any:
    """Leave the loss as it is, and make its gradient infinite."""
    nothing = output.loss - output.loss.detach()
    return replace(output, loss=output.loss + nothing.sqrt())
