"""One generation as it is recorded: a row of ``metrics.jsonl``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias, final

import msgspec

from esbench.core.arrays import LARGEST_MEAN

Return: TypeAlias = Annotated[float, msgspec.Meta(ge=-LARGEST_MEAN, le=LARGEST_MEAN)]


@final
@dataclass(frozen=True)
class GenerationRecord:
    """A row of ``metrics.jsonl``. Returns are undiscounted and without reward shift.

    An agent has no population: its size is 0, the returns of the population are those of the
    training episodes that ended since the last row, and what describes an update is NaN.

    Attributes:
        generation: counted from 1.
        env_steps: training steps so far: of the population, of probes and of validation.
        eval_env_steps: steps of evaluating the center so far.
        episodes: episodes of the population and of probes so far.
        wall_time_s: seconds of training so far, without loading and pauses between runs.
        cpu_time_s: CPU seconds of all processes so far.
        population_size: members of this generation.
        population_return_mean, _std, _min, _max: over the members with a finite return.
        center_return: mean return of the unperturbed policy before the update; NaN if it was not
            evaluated.
        center_rank: 1 + the number of members that beat the unperturbed policy, ties shared.
        center_rank_fraction: (rank - 1) / members, in [0, 1].
        non_finite: members whose return was not finite.
        episode_length_mean: mean length of the members' episodes, in steps.
        max_episode_steps: cap on the length of this generation's episodes, or None.
        sigma: standard deviation of the population after the update.
        update_norm: Euclidean length of the center's step.
        digest: SHA-256 of the center after the update and the returns in member order.
        tied_returns: fraction of the members, in [0, 1], whose return equals another member's, as
            the algorithm sees them.
        update_cosine: cosine between this step of the center and the previous one; NaN in the first
            generation and if either is zero. Momentum keeps it near 1.
        split_half_cosine: cosine between the updates that each half of the population would make;
            with mean r, the signal-to-noise ratio of the update is 2 r / (1 - r). NaN where the
            members' noise is not known (cma_es, sep_cma_es, evotorch, evosax), where the update is
            not a mean of it (genetic), where it does not follow the returns alone (novelty search),
            below four rows of noise, and if all returns are equal.
        center_norm: Euclidean length of the center before the update.
        distance: Euclidean distance of the center from where the search started.
        observation_drift: root mean square change of a normalized input, in standard deviations,
            by this generation's update of the statistics; NaN without observation normalization.
        losses: what an agent's library has logged about its latest update, by its own names such as
            "train/value_loss"; empty for a search.
    """

    generation: int
    env_steps: int
    eval_env_steps: int
    episodes: int
    wall_time_s: float
    cpu_time_s: float
    population_size: int
    population_return_mean: Return
    population_return_std: Return
    population_return_min: Return
    population_return_max: Return
    center_return: Return
    center_rank: float
    center_rank_fraction: float
    non_finite: int
    episode_length_mean: float
    max_episode_steps: int | None
    sigma: float
    update_norm: float
    digest: str
    tied_returns: float
    update_cosine: float
    split_half_cosine: float
    center_norm: float
    distance: float
    observation_drift: float
    losses: dict[str, float] = field(default_factory=dict, hash=False)
