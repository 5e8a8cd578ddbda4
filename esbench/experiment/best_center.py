"""Keeps the best unperturbed policy of a trial beside the last one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, final

from esbench.core.arrays import State, Vector
from esbench.core.errors import NoBestPolicyError
from esbench.engine.jobs import Job
from esbench.policies.normalization import Normalizer
from esbench.results.statistics.curves import WINDOW
from esbench.store.generation_record import GenerationRecord

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
