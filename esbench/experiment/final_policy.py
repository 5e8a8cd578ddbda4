"""The final policy of a trial: the last or best center, or that of validation; and its score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import State, Vector
from esbench.core.errors import NoBestPolicyError
from esbench.core.json_text import Json, finite
from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.jobs import Job
from esbench.grids.trial_spec import ValidationSpec
from esbench.policies.normalization import Normalizer
from esbench.results.statistics.curves import WINDOW
from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """The final policy on held-out episodes of the unmodified environment.

    Attributes:
        returns, lengths: [episodes]; the lengths are in steps.
    """

    returns: Vector
    lengths: Vector

    def joined(self, more: HeldOutScore) -> HeldOutScore:
        """These episodes followed by further ones."""
        return HeldOutScore(
            np.concatenate([self.returns, more.returns]),
            np.concatenate([self.lengths, more.lengths]),
        )

    @property
    def mean(self) -> float:
        """The mean return, which is the score."""
        return float(np.mean(self.returns))

    @property
    def finite_mean(self) -> float | None:
        """The mean return, or None if it is not finite."""
        return self.mean if math.isfinite(self.mean) else None

    @property
    def as_json(self) -> Json:
        """The part of ``result.json`` that is played."""
        return {
            "score": self.mean,
            "evaluation_episodes": self.returns.size,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }

    def is_identical(self, result: Json) -> bool:
        """Whether these are the recorded episodes of ``result.json``, bit for bit."""
        return all(result.get(key, value) == value for key, value in finite(self.as_json).items())


def held_out_seeds(seed: int, episodes: int) -> list[int]:
    """The environment seeds of the held-out episodes of the trial ``seed``."""
    purpose = Purpose.EVALUATION_EPISODE
    return [episode_seed(seed, purpose, 0, episode) for episode in range(episodes)]


Which: TypeAlias = Literal["last", "best"]


@final
class BestCenter:
    """The center with the largest smoothed return, the first of equal ones.

    The smoothed return of a center is the mean of its own return and those of the four centers
    before it, each over the episodes that training plays anyway.
    """

    def __init__(self) -> None:
        self._found: State = {}

    @property
    def generation(self) -> int:
        """The generation after which the search had this center.

        Raises:
            NoBestPolicyError: there is none yet.
        """
        self._require()
        generation: int = self._found["generation"]
        return generation

    def update(
        self, history: Sequence[GenerationRecord], center: Vector, normalizer: Normalizer | None
    ) -> None:
        """Keep ``center``, which has the return of the last record, if it is the best so far."""
        recent = [record.center_return for record in history[-WINDOW:]]
        smoothed = sum(recent) / WINDOW  # NaN is never larger
        if len(recent) == WINDOW and smoothed > self._found.get("return", -math.inf):
            generation = history[-1].generation - 1
            scales = {} if normalizer is None else vars(normalizer)
            self._found = {
                "generation": generation,
                "return": smoothed,
                "center": center,
                "normalizer": scales,
            }

    def job(self, last: Job) -> Job:
        """The job ``last`` with this center.

        Raises:
            NoBestPolicyError: there is none yet.
        """
        self._require()
        return with_stored_center(last, self._found)

    def state_dict(self) -> State:
        """The center and its normalizer; empty if there is none yet."""
        return self._found

    def load_state_dict(self, state: State) -> None:
        """Restore the result of ``state_dict``."""
        self._found = state

    def _require(self) -> None:
        if not self._found:
            raise NoBestPolicyError(
                f"which = 'best': the trial has no best center yet; it takes {WINDOW} generations "
                "with evaluation.center = true; expected which = 'last'"
            )


def with_stored_center(job: Job, stored: State) -> Job:
    """A job with the ``center`` of a stored state, and its ``normalizer``, empty if it has none."""
    scales = stored["normalizer"]
    normalizer = Normalizer(**scales) if scales else None
    return replace(job, center=stored["center"], normalizer=normalizer)


@final
class Validation:
    """The candidate with the largest mean return over validation episodes.

    The candidates are the centers that the search has at ``start`` training steps and every
    ``interval`` steps from there on. They all play the same episodes, which are neither those of
    training nor held out. A candidate that is worse than the best one in the first quarter of the
    episodes does not play the others.

    Attributes:
        quarter: the number of episodes that every candidate plays.
    """

    def __init__(self, spec: ValidationSpec) -> None:
        self._spec = spec
        self._due = spec.start
        self._best: State = {}
        self.quarter = max(1, spec.episodes // 4)

    def is_due(self, env_steps: int) -> bool:
        """Whether the search has a candidate after ``env_steps`` training steps."""
        return env_steps >= self._due

    def job(self, final_policy: Job) -> Job:
        """The validation episodes of the policy in ``final_policy``."""
        purpose, episodes = Purpose.VALIDATION_EPISODE, self._spec.episodes
        return replace(final_policy, purpose=purpose, episodes=episodes)

    def is_promising(self, returns: Vector) -> bool:
        """Whether a candidate with these returns in the first quarter plays the others too."""
        if not self._best:
            return True
        best: Vector = self._best["returns"]
        return bool(np.mean(returns) >= np.mean(best[: returns.size]))  # False for NaN

    def add(self, job: Job, returns: Vector, generation: int, env_steps: int) -> None:
        """Keep the candidate of ``job`` if it has played all episodes and is the best so far."""
        spec, best = self._spec, self._best.get("returns", -math.inf)
        self._due = env_steps + spec.interval - (env_steps - spec.start) % spec.interval
        if returns.size == spec.episodes and np.mean(returns) > np.mean(best):
            self._best = {
                "generation": generation,
                "returns": returns,
                "center": job.center,
                "normalizer": {} if job.normalizer is None else vars(job.normalizer),
            }

    @property
    def generation(self) -> int | None:
        """The generation after which the search had the best candidate; None without one."""
        return self._best.get("generation")

    def final_policy(self, last: Job) -> Job:
        """The job ``last`` with the best candidate, if there is one."""
        return with_stored_center(last, self._best) if self._best else last

    def state_dict(self) -> State:
        """The best candidate, and when the next one is due."""
        return {"due": self._due, "best": self._best}

    def load_state_dict(self, state: State) -> None:
        """Restore the result of ``state_dict``."""
        self._due, self._best = state["due"], state["best"]
