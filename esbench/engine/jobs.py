"""Jobs for workers, which are the episodes of one generation or evaluation, and their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from esbench.algorithms.shaping import center_rank
from esbench.core.arrays import LARGEST_RETURN, Matrix, Vector, float_digest, unit_of
from esbench.core.errors import UserCodeError
from esbench.core.population import LowRankMember, Population
from esbench.core.seeding import Purpose, episode_seed, stream
from esbench.grids.trial_spec import EpisodeSeeds
from esbench.policies.normalization import Moments, Normalizer, ObservationStatistics

CENTER: Final = -1  # member number of the unperturbed policy


@final
class Task(NamedTuple):
    """One episode to play: the number of a member, or ``CENTER``, and of its episode."""

    member: int
    episode: int


def member_tasks(members: range, episodes: int) -> list[Task]:
    """The episodes of a range of members, in member order."""
    return [Task(member, episode) for member in members for episode in range(episodes)]


@final
@dataclass(frozen=True, eq=False)
class Job:
    """The episodes of one generation or of one evaluation; sent to workers."""

    seed: int  # of the trial
    generation: int  # selects the random streams, together with the purpose
    purpose: Purpose  # a training, probe or evaluation episode
    population: Population | None  # None if only the center plays
    center: Vector  # the parameters of the unperturbed policy, [P]
    episodes: int  # per member
    normalizer: Normalizer | None = None
    gather: bool = False  # the moments of the members' observations
    characterize: bool = False  # record the behaviors of the members
    max_steps: int | None = None  # per episode; None for the limit of the environment alone
    action_noise: float = 0.0  # standard deviation, on continuous actions
    episode_seeds: EpisodeSeeds = "fresh"  # which members share environment seeds

    def parameters(self, member: int) -> Vector:
        """The parameters of a member or of the center, [P]."""
        if member == CENTER or self.population is None:
            return self.center
        return self.population.member(member)

    def low_rank(self, member: int) -> LowRankMember | None:
        """A member as center and low-rank factors, or None if it has no such form."""
        if member == CENTER or self.population is None:
            return None
        return self.population.low_rank(member)

    def environment_seed(self, task: Task) -> int:
        """The environment seed of an episode."""
        if self.purpose is not Purpose.TRAINING_EPISODE:  # all members play the same episodes
            return episode_seed(self.seed, self.purpose, self.generation, task.episode)
        if self.episode_seeds == "shared":
            return episode_seed(self.seed, self.purpose, self.generation, 0, task.episode)
        if task.member == CENTER or self.population is None:
            return episode_seed(self.seed, Purpose.CENTER_EPISODE, self.generation, task.episode)
        owner = task.member
        if self.episode_seeds == "pair":
            owner = self.population.row(task.member)
        return episode_seed(self.seed, self.purpose, self.generation, owner, task.episode)

    def noise_stream(self, task: Task) -> np.random.Generator:
        """The stream of the action noise of an episode."""
        return stream(
            self.seed, Purpose.ACTION_NOISE, self.generation, task.member + 1, task.episode
        )


@final
class EpisodeResult(NamedTuple):
    """The result of one episode, with moments and behavior [D] if they were gathered."""

    task: Task
    total: float  # the undiscounted return without shift; NaN if not finite
    length: int  # steps
    moments: Moments | None  # of the observations less the mean of the normalizer
    behavior: Vector | None = None
    clipped: float | None = None  # the sum of the clipped rewards, if they are clipped in training

    @property
    def training_return(self) -> float:
        """What the search maximizes, without shift; NaN if the return is."""
        return self.total if self.clipped is None else self.clipped


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """The results of many episodes, in task order."""

    returns: Matrix  # [members, episodes], NaN where an action or reward was not finite
    lengths: npt.NDArray[np.int64]  # [members, episodes] in steps
    center_returns: Vector  # [episodes]; empty if the center did not play
    center_lengths: npt.NDArray[np.int64]
    moments: list[Moments]  # of the observations of each member's episodes; empty if not gathered
    behaviors: Matrix  # [members, D], the mean over a member's episodes; D = 0 if not recorded
    training_returns: Matrix  # as ``returns``, of clipped rewards
    # Of the policy around which the members are drawn: the center, unless there are several.
    ranked_training_returns: Vector  # [episodes]
    ranked_lengths: npt.NDArray[np.int64]
    eval_steps: int  # steps of all episodes that no member has played

    def joined(self, more: Episodes) -> Episodes:
        """These episodes followed by those of further members."""
        joined: dict[str, Any] = {}
        for each in fields(self):
            ours, theirs = getattr(self, each.name), getattr(more, each.name)
            is_array = isinstance(ours, np.ndarray)
            joined[each.name] = np.concatenate([ours, theirs]) if is_array else ours + theirs
        return Episodes(**joined)

    def merge_into(self, statistics: ObservationStatistics, shift: Vector) -> None:
        """Add the observations to running statistics, in member order.

        Episodes with a return or an observation that is not finite are left out.
        """
        for total, moments in zip(self.returns.ravel().tolist(), self.moments, strict=True):
            if np.isfinite(total) and np.isfinite(moments[2]).all():
                statistics.merge(moments, shift)


def collect(tasks: Sequence[Task], results: dict[Task, EpisodeResult]) -> Episodes:
    """The results of ``tasks`` as arrays, in the order of ``tasks``."""
    ordered = [results[task] for task in tasks]
    members = [r for r in ordered if r.task.member != CENTER]
    center = [r for r in ordered if r.task.member == CENTER]
    episodes = 1 + max((task.episode for task in tasks), default=0)
    center_lengths = np.array([r.length for r in center], dtype=np.int64)
    return Episodes(
        returns=np.array([r.total for r in members]).reshape(-1, episodes),
        lengths=np.array([r.length for r in members], dtype=np.int64).reshape(-1, episodes),
        center_returns=np.array([r.total for r in center]),
        center_lengths=center_lengths,
        moments=[r.moments for r in members if r.moments is not None],
        behaviors=_mean_behaviors([r.behavior for r in members], episodes),
        training_returns=np.array([r.training_return for r in members]).reshape(-1, episodes),
        ranked_training_returns=np.array([r.training_return for r in center]),
        ranked_lengths=center_lengths,
        eval_steps=int(center_lengths.sum()),
    )


def _mean_behaviors(behaviors: list[Vector | None], episodes: int) -> Matrix:
    """The mean behavior of each member, [members, D]; episodes are added in order."""
    given = [behavior for behavior in behaviors if behavior is not None]
    sizes = sorted({behavior.size for behavior in given})
    if len(sizes) > 1:
        raise UserCodeError(
            f"the behavior is {sizes[0]} numbers in one episode and {sizes[-1]} in another; "
            "expected as many in every episode"
        )
    rows = np.array(given).reshape(len(behaviors), -1) if given else np.empty((len(behaviors), 0))
    total = np.zeros((len(rows) // episodes, rows.shape[1]))
    for episode in range(episodes):
        total += rows[episode::episodes]
    return total / episodes


def fitness_of(played: Episodes, reward_shift: float) -> Vector:
    """The fitness of each member: its mean return of clipped, shifted rewards, [members]."""
    return _row_means(played.training_returns - reward_shift * played.lengths)


def summary(played: Episodes, fitness: Vector, reward_shift: float) -> dict[str, Any]:
    """The fields of a ``GenerationRecord`` that depend on the returns alone."""
    returns = _row_means(played.returns)
    center_return = rank = math.nan
    if played.center_returns.size:
        center_return = float(_row_means(played.center_returns[None, :])[0])
        ranked = played.ranked_training_returns - reward_shift * played.ranked_lengths
        rank = center_rank(float(_row_means(ranked[None, :])[0]), fitness)
    return {
        **spread(returns),
        "population_size": returns.size,
        "center_return": center_return,
        "center_rank": rank,
        "center_rank_fraction": (rank - 1) / returns.size,
        "episode_length_mean": float(played.lengths.mean()),
    }


def spread(returns: Vector) -> dict[str, Any]:
    """The fields of a ``GenerationRecord`` about the finite ones of some returns."""
    finite = returns[np.abs(returns) <= LARGEST_RETURN]
    known = finite if finite.size else np.array([math.nan])
    unit = unit_of(known)
    return {
        "population_return_mean": float(known.mean()),
        "population_return_std": float((known / unit).std() * unit),
        "population_return_min": float(known.min()),
        "population_return_max": float(known.max()),
        "non_finite": int(returns.size - finite.size),
    }


def digest(center: Vector, played: Episodes) -> str:
    """The ``float_digest`` of the center and all returns in member order."""
    return float_digest(center, played.returns, played.center_returns)


def _row_means(values: Vector) -> Vector:
    """The mean of each row, added from left to right; NaN for a row that is not finite."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total
