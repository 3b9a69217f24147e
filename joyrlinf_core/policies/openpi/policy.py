"""`OpenPiPolicy`: what the engine drives (see `policies/base.py`).

Letters: b rows, n scored denoise points (1, or K with a joint log-prob), H horizon, A action width
inside the model, C executed actions, D env action dims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from joyrlinf_core.policies.base import ActionScores, Inputs, NormStats, PolicyOutput, Sharding
from joyrlinf_core.policies.openpi import sampler
from joyrlinf_core.policies.openpi.checkpoint import write_policy
from joyrlinf_core.policies.openpi.gemma import AdaptiveRmsNorm
from joyrlinf_core.policies.openpi.model import OpenPiModel, PrefixCache
from joyrlinf_core.policies.openpi.normalizer import Normalizer
from joyrlinf_core.policies.openpi.prompts import PromptEncoder
from joyrlinf_core.policies.openpi.settings import Settings
from joyrlinf_core.policies.tokenizer import Tokenizer

if TYPE_CHECKING:
    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.policies.base import Draws, Mode
    from joyrlinf_core.policies.openpi.config import OpenPiConfig

RATIO_TOLERANCE = {"fp32": 1e-3, "bf16": 0.05}


class OpenPiPolicy:
    """Pi0 or Pi0.5 with a stochastic sampler.

    Inputs: `images` uint8 [b, V, h, w, 3], `state` float32 [b, S], `tokens` int32 [b, L] and
    `token_count` int32 [b].
    Draws: `x0` float32 [b, H, A], `noise` float32 [b, n, H, A] and, with one noisy step, `step`
    int64 [b].
    Replay: `x` float32 [b, n, H, A] before each scored step, `x_next` float32 [b, n, C, D] after it
    and, with one noisy step, `step` int64 [b]. Nothing else of the chain enters a log-prob.

    Args:
        config: Sampler and training keys.
        settings: What the policy directory records.
        stats: Normalisation statistics.
        tokenizer: Text to ids.
        model: Weights.
    """

    def __init__(
        self,
        config: OpenPiConfig,
        settings: Settings,
        stats: NormStats,
        tokenizer: Tokenizer,
        model: OpenPiModel,
    ) -> None:
        self.config = config
        self.settings = settings
        self.stats = stats
        self.tokenizer = tokenizer
        self.model = model
        # For `prepare`, which stays on CPU whatever the device of the weights is.
        self._scale = Normalizer(settings, stats)
        self._module = nn.ModuleDict({"model": model, "normalizer": Normalizer(settings, stats)})
        self._prompts = PromptEncoder(tokenizer, settings.architecture.max_token_len)
        self._tables: dict[torch.device, sampler.StepTable] = {}
        self.ratio_tolerance = RATIO_TOLERANCE["fp32"]
        self._freeze()

    @property
    def module(self) -> nn.Module:
        """Every weight."""
        return self._module

    @property
    def horizon(self) -> int:
        """H."""
        return self.settings.architecture.horizon

    def set_precision(self, precision: Literal["fp32", "bf16"]) -> None:
        """Choose the compute type of the backbone.

        bf16 runs vision, language model and expert under autocast and stores the frozen matrices in
        bf16; trained weights, norms, time and action projections, heads, chains and log-probs stay
        float32.
        """
        self.model.autocast_dtype = torch.bfloat16 if precision == "bf16" else None
        self.ratio_tolerance = RATIO_TOLERANCE[precision]
        if self.config.train_expert_only:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            for part in (self.model.vision, self.model.mm, self.model.embed, self.model.vlm):
                for parameter in part.parameters():
                    if parameter.ndim > 1:
                        parameter.data = parameter.data.to(dtype)

    def set_gradient_checkpointing(self, *, enabled: bool) -> None:
        """Recompute the layers of language model and expert in the backward pass."""
        self.model.vlm.gradient_checkpointing = enabled
        self.model.expert.gradient_checkpointing = enabled

    def prepare(self, observation: Observation) -> dict[str, Tensor]:
        """Tokenise prompts and pick what the policy reads; on CPU."""
        if self.settings.discrete_state_input:
            state = self._scale.state(observation.state, pad=self.settings.pad_discrete_state)
            tokens, counts = self._prompts.states(observation.prompts, observation.task, state)
        else:
            tokens, counts = self._prompts.tasks(observation.prompts, observation.task)
        return {
            "images": observation.images,
            "state": observation.state,
            "tokens": tokens,
            "token_count": counts,
        }

    def draw(self, generator: torch.Generator, n: int) -> dict[str, Tensor]:
        """Draw start noise, step noise and, for one noisy step, which step it is; on CPU."""
        size = (self.horizon, self.settings.architecture.action_dim)
        points = self.config.num_steps if self.config.joint_logprob else 1
        draws = {
            "x0": torch.randn((n, *size), generator=generator),
            "noise": torch.randn((n, points, *size), generator=generator),
        }
        if not self.config.joint_logprob:
            high = self.config.num_scored_steps
            draws["step"] = torch.randint(high, (n,), generator=generator)
        return draws

    @torch.no_grad()
    def predict(self, inputs: Inputs, draws: Draws, mode: Mode) -> PolicyOutput:
        """Choose actions; `train` explores and scores, `eval` integrates the ODE from `x0`."""
        run = self._explore if mode == "train" else self._integrate
        total = inputs["tokens"].shape[0]
        size = self.config.predict_micro_batch_size or total
        if size >= total:
            return run(inputs, draws)
        return PolicyOutput.concatenate(
            [
                run(_rows(inputs, start, size), _rows(draws, start, size))
                for start in range(0, total, size)
            ]
        )

    def evaluate_actions(self, inputs: Inputs, replay: Mapping[str, Tensor]) -> ActionScores:
        """Score stored actions under the current weights, with gradients."""
        x = replay["x"]
        with self.model.autocast():
            cache = self._prefix_cache(inputs)
            table = self._table(x.device)
            condition = self.model.condition(table.times)
            step = self._scored_steps(replay, x.device)
            features = self.model.features(cache, x, condition[step])
            return self._score(features, x, replay["x_next"], step)

    def sft_loss(
        self, inputs: Inputs, actions: Tensor, valid: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Return the flow-matching loss, the mean over valid actions and real dims.

        Args:
            inputs: As from `prepare`.
            actions: float32 [b, H, D], in the env's units.
            valid: bool [b, H].
            generator: CPU generator of noise and times.
        """
        rows, horizon, _ = actions.shape
        width = self.settings.architecture.action_dim
        noise = torch.randn((rows, horizon, width), generator=generator)
        times = beta_times(rows, generator)
        return self.flow_loss(
            inputs, actions, valid, noise.to(actions.device), times.to(actions.device)
        )[valid].mean()

    def flow_loss(
        self, inputs: Inputs, actions: Tensor, valid: Tensor, noise: Tensor, times: Tensor
    ) -> Tensor:
        """Return the squared velocity error of given noise and times.

        Args:
            inputs: As from `prepare`.
            actions: float32 [b, H, D], in the env's units.
            valid: bool [b, H]; actions elsewhere count as zero.
            noise: float32 [b, H, A].
            times: float32 [b].

        Returns:
            float32 [b, H, D].
        """
        d = actions.shape[-1]
        target = self._normalizer.actions(actions) * valid[..., None]
        t = times[:, None, None]
        x = t * noise + (1 - t) * target
        with self.model.autocast():
            cache = self._prefix_cache(inputs)
            condition = self.model.condition(times).unsqueeze(1)
            features = self.model.features(cache, x.unsqueeze(1), condition).squeeze(1)
            velocity = self.model.velocity(features)[..., :d]
        return (velocity - (noise - target)[..., :d]).square()

    def trainable_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Return the named parameters that can get a gradient."""
        return [
            (name, parameter)
            for name, parameter in self._module.named_parameters()
            if parameter.requires_grad
        ]

    def sharding(self) -> Sharding:
        """Return the layers of all stacks, and adaptive norms, which are read from outside."""
        model = self.model
        norms = [m for m in model.expert.modules() if isinstance(m, AdaptiveRmsNorm)]
        layers = [*model.vision.encoder.layers, *model.vlm.layers, *model.expert.layers]
        names = ("prefix", "with_state", "condition", "features", "velocity", "noise", "value")
        return Sharding(
            units=[*norms, *layers],
            root=model,
            forward_methods=[
                *((norm, "condition") for norm in norms),
                *((model, name) for name in names),
            ],
        )

    def save(self, directory: Path) -> None:
        """Write a policy directory in the upstream layout; `directory` must not exist yet."""
        write_policy(directory, self.model, self.settings, self.stats, self.tokenizer.model)

    @property
    def _normalizer(self) -> Normalizer:
        normalizer = self._module["normalizer"]
        assert isinstance(normalizer, Normalizer)
        return normalizer

    def _freeze(self) -> None:
        """Take the gradient from everything that never gets one."""
        model = self.model
        frozen = [
            *model.vlm.norm.parameters(),
            *(parameter for layer in model.vlm.layers for parameter in layer.unused()),
        ]
        model.frozen_prefix = self.config.train_expert_only
        if self.config.train_expert_only:
            for part in (model.vision, model.mm, model.embed, model.vlm):
                frozen += part.parameters()
        for parameter in frozen:
            parameter.requires_grad_(False)

    def _prefix_cache(self, inputs: Inputs) -> PrefixCache:
        cache = self.model.prefix(inputs["images"], inputs["tokens"], inputs["token_count"])
        return self.model.with_state(cache, self._normalizer.state(inputs["state"]))

    def _table(self, device: torch.device) -> sampler.StepTable:
        if device not in self._tables:
            config = self.config
            self._tables[device] = sampler.step_table(
                config.noise_method, config.num_steps, config.noise_level, device
            )
        return self._tables[device]

    def _scored_steps(self, source: Mapping[str, Tensor], device: torch.device) -> Tensor:
        """Return the denoise step of each scored point, int64 [b, 1] or [1, K]."""
        if self.config.joint_logprob:
            return torch.arange(self.config.num_steps, device=device)[None]
        return source["step"][:, None]

    def _explore(self, inputs: Inputs, draws: Draws) -> PolicyOutput:
        x = draws["x0"]
        step = self._scored_steps(draws, x.device)
        table = self._table(x.device)
        of_x, of_v, std = self._transitions(table, step)
        states, features = [x], []
        with self.model.autocast():
            cache = self._prefix_cache(inputs)
            condition = self.model.condition(table.times)
            for index in range(self.config.num_steps):
                hidden = self._features_at(cache, x, condition, index)
                noise = draws["noise"][:, index if self.config.joint_logprob else 0]
                scale = std[index]
                if self.model.noise_head is not None:
                    # Here the table only says whether a row is noised at this step.
                    scale = torch.where(scale == 0, scale, self._learned_std(hidden))
                x = of_x[index] * x + of_v[index] * self.model.velocity(hidden) + scale * noise
                states.append(x)
                features.append(hidden)
        chain, hiddens = torch.stack(states, dim=1), torch.stack(features, dim=1)
        before, after, scored = _pick(chain, step), _pick(chain, step + 1), _pick(hiddens, step)
        chunk = self.config.num_action_chunks
        replay = {"x": before, "x_next": after[:, :, :chunk, : self.settings.action_dim].clone()}
        if not self.config.joint_logprob:
            replay["step"] = draws["step"]
        scores = self._score(scored, before, replay["x_next"], step)
        actions = self._normalizer.env_actions(x[:, :chunk])
        return PolicyOutput(actions, scores.logprobs, scores.values, replay)

    def _integrate(self, inputs: Inputs, draws: Draws) -> PolicyOutput:
        x = draws["x0"]
        table = self._table(x.device)
        features = []
        with self.model.autocast():
            cache = self._prefix_cache(inputs)
            condition = self.model.condition(table.times)
            for index in range(self.config.num_steps):
                hidden = self._features_at(cache, x, condition, index)
                x = x + table.ode * self.model.velocity(hidden)
                if self.model.value_head is not None:
                    features.append(hidden)
            values = self._values(torch.stack(features, dim=1)) if features else None
        actions = self._normalizer.env_actions(x[:, : self.config.num_action_chunks])
        return PolicyOutput(actions, torch.zeros_like(actions), values)

    def _features_at(self, cache: PrefixCache, x: Tensor, condition: Tensor, index: int) -> Tensor:
        """Return the expert's features [b, H, W] of x [b, H, A] at one denoise step."""
        rows = condition[None, index : index + 1]
        return self.model.features(cache, x.unsqueeze(1), rows).squeeze(1)

    def _transitions(self, table: sampler.StepTable, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the factors of x and v and the std of every step, each [K, b or 1, 1, 1].

        A row follows the ODE at steps that are not scored.
        """
        index = torch.arange(len(table.times), device=step.device)[:, None]
        noisy = (step[None] == index[..., None]).any(-1)[..., None, None]
        of_x, of_v, std = (
            part[:, None, None, None] for part in (table.of_x, table.of_v, table.std)
        )
        return (
            torch.where(noisy, of_x, 1.0),
            torch.where(noisy, of_v, table.ode),
            torch.where(noisy, std, 0.0),
        )

    def _learned_std(self, features: Tensor) -> Tensor:
        with self.model.autocast(enabled=False):
            output = self.model.noise(features)
        return sampler.learned_std(output, self.config.noise_logvar_range)

    def _values(self, features: Tensor) -> Tensor | None:
        """Return the value of features [b, n, H, W]: float32 [b]."""
        if self.model.value_head is None:
            return None
        if self.config.detach_critic_input:
            features = features.detach()
        with self.model.autocast(enabled=False):
            return self.model.value(features.mean(dim=(1, 2)))

    def _score(self, features: Tensor, x: Tensor, x_next: Tensor, step: Tensor) -> ActionScores:
        """Return the log-prob of scored transitions, cut to the executed part.

        Args:
            features: float32 [b, n, H, W] at x.
            x: float32 [b, n, H, A].
            x_next: float32 [b, n, C, D].
            step: int64 [b or 1, n].
        """
        chunk, d = x_next.shape[2:]
        table = self._table(x.device)
        executed = features[:, :, :chunk]
        velocity = self.model.velocity(executed)[..., :d]
        start = x[:, :, :chunk, :d]
        of_x, of_v, std = (
            part[step][..., None, None] for part in (table.of_x, table.of_v, table.std)
        )
        entropy = None
        if self.model.noise_head is not None:
            std = self._learned_std(executed)[..., :d]
            entropy = sampler.entropy(std).mean(dim=(1, 2, 3))
        terms = sampler.log_prob(x_next, of_x * start + of_v * velocity, std)
        if self.config.joint_logprob:
            # The start is drawn from N(0, 1); it does not depend on the weights.
            origin = start[:, :1]
            first = sampler.log_prob(origin, torch.zeros_like(origin), torch.ones_like(origin))
            terms = torch.cat((first, terms), dim=1)
        mean = self.config.joint_logprob and self.config.logprob_reduction == "mean"
        logprobs = terms.mean(dim=1) if mean else terms.sum(dim=1)
        return ActionScores(logprobs, entropy, self._values(features))


def beta_times(n: int, generator: torch.Generator) -> Tensor:
    """Draw training times 0.999 * Beta(1.5, 1) + 0.001, float32 [n]."""
    # Beta(a, 1) has the distribution function t^a.
    return 0.999 * torch.rand(n, generator=generator) ** (1 / 1.5) + 0.001


def _pick(chain: Tensor, step: Tensor) -> Tensor:
    """Return chain[row, step[row, j]]: [b, m, ...] and int64 [b or 1, n] -> [b, n, ...]."""
    if step.shape[0] == 1 and step.shape[1] > 1:
        return chain[:, step[0]]
    return chain[torch.arange(chain.shape[0], device=chain.device)[:, None], step]


def _rows(tensors: Mapping[str, Tensor], start: int, size: int) -> dict[str, Tensor]:
    return {name: tensor[start : start + size] for name, tensor in tensors.items()}
