"""What happens in a synthetic rollout, as plain Python: episodes, who wins them, what groups score.

Shape checks compare what the batch code makes of a rollout with these lists. No torch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from joyrlinf_core.config.schema import AlgorithmConfig, EnvConfig
from joyrlinf_core.plan.run_plan import BatchPlan


@dataclass(frozen=True)
class Episode:
    """One episode of one column, as far as it lies in the window.

    Attributes:
        column: Batch column.
        group: Global group number.
        number: Number of the episode in the run.
        place: Place among the episodes of its column, from 0.
        start: Chunk step at which it begins.
        actions: Actions executed.
        ended: It ended; else the window did.
        terminated: It ended by success, not by the time limit.
        success: It was successful.
        score: Sum of its rewards: half comes with the first action, half with the last one.
    """

    column: int
    group: int
    number: int
    place: int
    start: int
    actions: int
    ended: bool
    terminated: bool
    success: bool
    score: float

    def chunks(self, chunk: int) -> int:
        """Return the chunk steps that it played."""
        return -(-self.actions // chunk)


@dataclass(frozen=True)
class GroupScore:
    """Scores of the finished episodes of one (group, episode number).

    Attributes:
        scores: One an episode.
        kept: The reward filter lets it through.
    """

    scores: tuple[float, ...]
    kept: bool

    @property
    def varied(self) -> bool:
        """Whether there is anything to learn from comparing them."""
        return len(set(self.scores)) > 1

    def advantage(self, score: float) -> float:
        """Return the group-relative advantage of a score."""
        if not self.varied:
            return 0.0
        return (score - fmean(self.scores)) / (stdev(self.scores) + 1e-6)


def write_script(
    groups: Sequence[int], batch: BatchPlan, env: EnvConfig, algorithm: AlgorithmConfig, seed: int
) -> list[Episode]:
    """Return the episodes of one actor, column by column.

    Groups are mixed, won by all, won by none, and mixed again, in turn; winners finish early,
    inside a chunk where a chunk has several actions.

    Args:
        groups: Group of each column.
        batch: Sizes.
        env: Rules of episodes.
        algorithm: Bounds of the reward filter.
        seed: Of the lengths.
    """
    numbers = random.Random(seed)
    high, low, spread = _levels(algorithm, env.reward_coef)
    episodes: list[Episode] = []
    for column, group in enumerate(groups):
        member = column % batch.group_size
        start = place = 0
        while start < batch.t_eff:
            kind = (group + place) % 4
            if kind in (0, 3):
                side = 0 if member == batch.group_size - 1 and member % 2 == 0 else 1
                score = (high + low) / 2 + side * (spread if member % 2 == 0 else -spread)
                success = member % 2 == 0
            else:
                score, success = (high, True) if kind == 1 else (low, False)
            episode = _play(
                Episode(column, group, place, place, start, 0, False, False, success, score),
                batch,
                env,
                numbers,
            )
            episodes.append(episode)
            place += 1
            start = (
                start + episode.chunks(batch.chunk_size)
                if env.auto_reset
                else place * batch.chunk_steps
            )
    return episodes


def group_scores(
    episodes: Iterable[Episode], algorithm: AlgorithmConfig, *, auto_reset: bool
) -> dict[tuple[int, int], GroupScore]:
    """Return the scores by (group, episode number).

    Args:
        episodes: Episodes of one actor.
        algorithm: Bounds of the reward filter.
        auto_reset: Only an episode that ended is finished.
    """
    found: dict[tuple[int, int], list[float]] = {}
    for episode in episodes:
        if episode.ended or not auto_reset:
            found.setdefault((episode.group, episode.number), []).append(episode.score)
    lower, upper = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    return {
        key: GroupScore(
            tuple(scores), not algorithm.filter_rewards or lower <= fmean(scores) <= upper
        )
        for key, scores in found.items()
    }


def _levels(algorithm: AlgorithmConfig, reward: float) -> tuple[float, float, float]:
    """Return a score above the filter's bounds, one below, and how far mixed ones lie apart."""
    lower, upper = algorithm.rewards_lower_bound, algorithm.rewards_upper_bound
    if not algorithm.filter_rewards or not math.isfinite(upper - lower):
        return reward, 0.0, reward / 2
    margin = (upper - lower) / 4 or 1.0
    return upper + margin, lower - margin, margin


def _play(episode: Episode, batch: BatchPlan, env: EnvConfig, numbers: random.Random) -> Episode:
    """Return the episode with its length and its end."""
    chunk = batch.chunk_size
    window = (batch.t_eff - episode.start) * chunk
    if not env.auto_reset:
        window = batch.chunk_steps * chunk
    limit = env.max_episode_steps
    actions, terminated = limit, False
    if episode.success and not env.ignore_terminations:
        actions = numbers.randint(1, max(1, min(limit, batch.chunk_steps * chunk) // 2))
        actions -= chunk > 1 and actions % chunk == 0
        terminated = True
    ended = actions <= window
    return Episode(
        episode.column,
        episode.group,
        episode.number,
        episode.place,
        episode.start,
        min(actions, window),
        ended,
        terminated and ended,
        episode.success and ended,
        episode.score,
    )
