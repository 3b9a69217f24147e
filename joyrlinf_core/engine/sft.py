"""Supervised fine-tuning: demonstrations -> flow-matching training -> policy directory."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from joyrlinf_core import seeding
from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.demos import samples as demo_samples
from joyrlinf_core.engine.demo_collection import gather_demonstrations
from joyrlinf_core.engine.evaluator import Evaluator
from joyrlinf_core.engine.optim import build_learning_rate, build_optimizer, clip_gradients
from joyrlinf_core.engine.stopping import JobStopped
from joyrlinf_core.engine.vec_envs import build_vec_envs
from joyrlinf_core.errors import NonFiniteError, RunFailedError
from joyrlinf_core.observability.events import CheckpointSaved, Finished, RunStarted, Step
from joyrlinf_core.policies.norm_stats import compute_norm_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from joyrlinf_core.batch.demonstration import Demonstration
    from joyrlinf_core.demos.samples import Samples
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.policies.base import Policy

ACTION_ERROR_SAMPLES = 64
"""Samples on which the error of predicted actions is measured at each log interval."""


class SftJob:
    """One SFT run on all ranks.

    Args:
        context: This worker; `context.plan.args["output"]` is the policy directory to write,
            `args["policy"]` the name that the launcher will give it.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._config = context.plan.config
        if self._config.sft is None:
            raise RunFailedError("the config has no `sft` section", fix="add one, see presets/")
        self._sft = self._config.sft
        self._collectives = Collectives()
        self._seed = self._config.runner.seed
        self._step = 0

    def run(self) -> str:
        """Collect or read demonstrations, train, evaluate, and write the policy directory.

        Raises:
            JobStopped: A stop was asked for before the training was over; nothing is written.
        """
        started = time.perf_counter()
        self._announce()
        demonstrations = gather_demonstrations(self._context, self._sft, self._collectives)
        policy, samples = self._policy_and_samples(demonstrations)
        finished = self._train(policy, samples)
        if finished and self._sft.eval_episodes:
            with suppress(JobStopped):  # the policy is worth keeping all the same
                self._evaluate(policy, self._step)
        if finished:
            self._save(policy)
        status = "completed" if finished else "stopped"
        if self._collectives.is_main:
            seconds = time.perf_counter() - started
            self._context.emitter.emit(Finished(status, step=self._step, seconds=seconds))
        return status

    def _announce(self) -> None:
        if not self._collectives.is_main:
            return
        source = self._sft.dataset or f"{self._sft.num_demos} scripted episodes"
        self._context.emitter.emit(
            RunStarted(
                job="sft",
                run_dir=str(self._context.run_dir.root),
                world_size=self._collectives.world_size,
                start_step=0,
                total_steps=self._sft.steps,
                facts={
                    "device": str(self._context.device),
                    "simulator": self._config.env.train.check_ready(),
                    "demonstrations": source,
                },
            )
        )

    def _policy_and_samples(
        self, demonstrations: Sequence[Demonstration]
    ) -> tuple[Policy, Samples]:
        """Build a policy with random weights and the statistics of the demonstrations."""
        self._context.emitter.phase("load", 0)
        model, env = self._config.actor.model, self._config.env.train
        stats = compute_norm_stats(
            np.concatenate([demo.state for demo in demonstrations]),
            np.concatenate([demo.actions for demo in demonstrations]),
        )
        policy = model.create(env, stats, seed=seeding.stream(self._seed, "init"))
        policy.set_precision(self._config.actor.precision)
        policy.module.to(self._context.device)
        return policy, demo_samples.build(demonstrations, policy.horizon)

    def _train(self, policy: Policy, samples: Samples) -> bool:
        """Train; return whether it ran to its end."""
        sft, context = self._sft, self._context
        optimizer = build_optimizer(policy, sft.optim)
        scheduler = build_learning_rate(optimizer, sft.optim, sft.steps)
        parameters = [parameter for _, parameter in policy.trainable_parameters()]
        inputs = policy.prepare(_observation(samples, self._config.env.train.task_prompts))
        actions, valid = torch.from_numpy(samples.actions), torch.from_numpy(samples.valid)
        started = window = time.perf_counter()
        losses: list[float] = []
        policy.module.train()
        for step in range(sft.steps):
            rows = self._rows(step, len(actions))
            optimizer.zero_grad(set_to_none=True)
            # A rank gets no rows where the batch is smaller than the number of ranks.
            if len(rows):
                loss = policy.sft_loss(
                    {name: value[rows].to(context.device) for name, value in inputs.items()},
                    actions[rows].to(context.device),
                    valid[rows].to(context.device),
                    self._generator("noise", step, self._collectives.rank),
                )
                (loss * (len(rows) / sft.batch_size)).backward()
                losses.append(float(loss.detach()))
            self._collectives.sum_gradients(parameters)
            norm = clip_gradients(parameters, sft.optim.clip_grad)
            if not np.isfinite([*losses[-1:], norm]).all():
                raise NonFiniteError(
                    f"SFT step {step + 1} is not finite: loss {losses[-1:]}, gradient norm {norm}",
                    fix="lower sft.optim.lr",
                )
            optimizer.step()
            scheduler.step()
            self._step = step + 1
            last = step + 1 == sft.steps or self._out_of_time(started)
            if (step + 1) % sft.log_interval == 0 or last:
                now = time.perf_counter()
                self._log(policy, inputs, actions, valid, step + 1, losses, norm, now - window)
                losses, window = [], now
            context.emitter.phase("sft", step + 1, done=step + 1, total=sft.steps)
            if self._interval_due(step + 1) and not last:
                self._evaluate(policy, step + 1)
            if last:
                return True
            if self._stop(step):
                return False
        return True

    def _stop(self, step: int) -> bool:
        # Asking every step would cost a collective per step; a stop may wait a few steps.
        if self._collectives.world_size > 1 and step % 10:
            return False
        return self._collectives.any(flag=self._context.stop_requested())

    def _out_of_time(self, started: float) -> bool:
        limit = self._sft.max_seconds
        if limit is None:
            return False
        return self._collectives.any(flag=time.perf_counter() - started > limit)

    def _interval_due(self, step: int) -> bool:
        interval = self._sft.eval_interval
        return interval > 0 and self._sft.eval_episodes > 0 and step % interval == 0

    def _rows(self, step: int, count: int) -> Tensor:
        """Return this rank's rows of the global batch of a step: epochs without replacement."""
        size = self._sft.batch_size
        first = step * size
        wanted = torch.arange(first, first + size)
        rows = torch.empty(size, dtype=torch.int64)
        for epoch in range(first // count, (first + size - 1) // count + 1):
            order = torch.randperm(count, generator=self._generator("order", epoch))
            inside = (wanted // count) == epoch
            rows[inside] = order[wanted[inside] % count]
        return rows[self._collectives.rank :: self._collectives.world_size]

    def _generator(self, *names: int | str) -> torch.Generator:
        return torch.Generator().manual_seed(seeding.stream(self._seed, "sft", *names))

    def _log(
        self,
        policy: Policy,
        inputs: dict[str, Tensor],
        actions: Tensor,
        valid: Tensor,
        step: int,
        losses: list[float],
        norm: float,
        seconds: float,
    ) -> None:
        """Emit loss and action error; the flow loss alone says little about success."""
        total, count, error, error_count = self._collectives.sum(
            [sum(losses), len(losses), *self._action_error(policy, inputs, actions, valid)]
        )
        if not self._collectives.is_main:
            return
        metrics = {
            "sft/loss": total / count,
            "sft/action_error": error / max(1.0, error_count),
            "sft/grad_norm": norm,
        }
        self._context.emitter.emit(
            Step(step=step, metrics=metrics, timings={"train": seconds}, seconds=seconds)
        )

    @torch.no_grad()
    def _action_error(
        self, policy: Policy, inputs: dict[str, Tensor], actions: Tensor, valid: Tensor
    ) -> tuple[float, float]:
        """Return sum and count of |predicted - demonstrated| over the executed actions."""
        device = self._context.device
        rows = torch.linspace(0, len(actions) - 1, ACTION_ERROR_SAMPLES).long()
        rows = rows[self._collectives.rank :: self._collectives.world_size]
        draws = policy.draw(self._generator("action_error"), ACTION_ERROR_SAMPLES)
        chunk = slice(self._collectives.rank, None, self._collectives.world_size)
        output = policy.predict(
            {name: value[rows].to(device) for name, value in inputs.items()},
            {name: value[chunk].to(device) for name, value in draws.items()},
            "eval",
        )
        size = output.actions.shape[1]
        mask = valid[rows, :size].unsqueeze(2)
        error = (output.actions.cpu() - actions[rows, :size]).abs() * mask
        return float(error.sum()), float(mask.sum() * error.shape[2])

    def _evaluate(self, policy: Policy, step: int) -> None:
        policy.module.eval()
        with ExitStack() as opened:
            envs = build_vec_envs(self._context, self._config.eval_env, opened)
            evaluator = Evaluator(self._context, policy, envs, self._collectives)
            result = evaluator.run(step, "sft", episodes=self._sft.eval_episodes)
        if self._collectives.is_main:
            self._context.emitter.emit(result)
        policy.module.train()

    def _save(self, policy: Policy) -> None:
        self._context.emitter.phase("save", self._step)
        started = time.perf_counter()
        args = self._context.plan.args
        output = Path(args["output"])
        if self._collectives.is_main:
            policy.save(output)
            self._context.emitter.emit(
                CheckpointSaved(
                    step=self._step,
                    path=args.get("policy", str(output)),
                    seconds=time.perf_counter() - started,
                )
            )
        self._collectives.barrier()


def _observation(samples: Samples, prompts: tuple[str, ...]) -> Observation:
    return Observation(
        images=torch.from_numpy(samples.images),
        state=torch.from_numpy(samples.state),
        task=torch.from_numpy(samples.task),
        prompts=prompts,
    )
