"""Selects the final policy of a search by validation episodes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np

from esbench.core.arrays import State, Vector
from esbench.core.seeding import Purpose
from esbench.engine.jobs import Job
from esbench.experiment.best_center import with_stored_center
from esbench.grids.trial_spec import ValidationSpec


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
