"""One generation as it is recorded: a row of ``metrics.jsonl``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class GenerationRecord:
    """A row of ``metrics.jsonl``. Returns are undiscounted and without reward shift.

    Attributes:
        generation: counted from 1.
        env_steps: steps the population took in training so far.
        eval_env_steps: steps spent on evaluating the centre so far.
        episodes: episodes the population played so far.
        wall_time_s: seconds of training so far, pauses between runs and loading left out.
        cpu_time_s: seconds of all processes so far.
        population_size: members of this generation.
        population_return_mean, _std, _min, _max: over the members with a finite return.
        center_return: mean return of the unperturbed policy before the update; NaN if it was not
            evaluated.
        center_rank: 1 + the number of members that beat it, ties shared.
        center_rank_fraction: (rank - 1) / members, in [0, 1].
        non_finite: members whose return was not finite.
        episode_length_mean: of the members' episodes, in steps.
        max_episode_steps: the cap this generation ran under, or None.
        sigma: deviation of the population, after the update.
        update_norm: Euclidean length of the centre's step.
        digest: SHA-256 of the centre after the update and the returns in member order.
        tied_returns: share of the members, in [0, 1], whose return another member has too, as the
            algorithm was told them.
        update_cosine: between this step of the centre and the one of the generation before; NaN in
            the first generation and if one of the two is zero. Momentum keeps it near 1.
        split_half_cosine: between the updates that the two halves of the population would make
            alone; with r for its mean, the update's signal-to-noise ratio is 2 r / (1 - r) (see
            ``measures.split_half_cosine``). NaN where the members' noise is not known (cma_es,
            sep_cma_es, evotorch, evosax), where no mean of it is taken (genetic), where the update
            does not follow the returns alone (novelty search), below four rows of noise, and if
            all returns are equal.
        center_norm: Euclidean length of the centre before the update.
        distance: Euclidean, of the centre from where the search started.
        observation_drift: root mean square change of a normalised input, in deviations, by this
            generation's update of the statistics; NaN where observations are not normalised.

    The last six were added later: in rows without them they are NaN.
    """

    generation: int
    env_steps: int
    eval_env_steps: int
    episodes: int
    wall_time_s: float
    cpu_time_s: float
    population_size: int
    population_return_mean: float
    population_return_std: float
    population_return_min: float
    population_return_max: float
    center_return: float
    center_rank: float
    center_rank_fraction: float
    non_finite: int
    episode_length_mean: float
    max_episode_steps: int | None
    sigma: float
    update_norm: float
    digest: str
    tied_returns: float = math.nan
    update_cosine: float = math.nan
    split_half_cosine: float = math.nan
    center_norm: float = math.nan
    distance: float = math.nan
    observation_drift: float = math.nan
