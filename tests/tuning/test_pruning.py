"""The rule that stops configurations early, also under the noise of the seeds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import trim_mean

from esbench.core.arrays import Vector
from esbench.grids.trial_spec import BudgetSpec
from esbench.tuning.pruning import at_rung, is_clearly_worse, objective


def test_the_objective_is_the_interquartile_mean_and_a_failure_is_the_worst() -> None:
    scores = [3.0, 1.0, -50.0, 2.0, 8.0]
    assert objective(scores) == pytest.approx(trim_mean(scores, 0.25))
    assert objective([1.0, -math.inf, 2.0]) == -math.inf


@pytest.mark.parametrize(
    ("scores", "others", "worse"),
    [
        ([0.0, 1.0, 2.0], [3.0, 4.0, 5.0, 2.5], True),
        ([0.0, 1.0, 3.9], [3.0, 4.0, 5.0, 2.5], False),  # one lucky seed is enough
        ([0.0, 1.0, 2.0], [3.0, 4.0, 5.0], False),  # too few others
        ([0.0, 1.0, 2.0], [-math.inf, -math.inf, -math.inf, 9.0], False),
    ],
)
def test_only_configurations_whose_best_seed_is_below_the_median_are_worse(
    scores: list[float], others: list[float], worse: bool
) -> None:
    assert is_clearly_worse(scores, others) is worse


def test_a_rung_is_a_part_of_the_budget_rounded_up() -> None:
    budget = BudgetSpec(env_steps=1001, generations=3, target_return=5.0)
    part = at_rung(budget, Fraction(1, 4))
    assert (part.env_steps, part.generations, part.target_return) == (251, 1, 5.0)
    assert at_rung(BudgetSpec(env_steps=8), Fraction(1, 2)) == BudgetSpec(env_steps=4)


def wrongly_pruned(noise: float, seeds: int, rng: np.random.Generator) -> float:
    """The share of searches that prune the best of 30 configurations at one of two rungs.

    Their true scores have a standard deviation of 1, and those of the seeds one of ``noise``.
    """

    def once() -> bool:
        truth = rng.standard_normal(30)
        left = list(range(30))
        for _ in range(2):
            scores: dict[int, Vector] = {
                i: truth[i] + noise * rng.standard_normal(seeds) for i in left
            }
            means = {i: objective(list(scores[i])) for i in left}
            left = [
                i
                for i in left
                if not is_clearly_worse(list(scores[i]), [means[j] for j in left if j != i])
            ]
        return int(np.argmax(truth)) not in left

    return float(np.mean([once() for _ in range(150)]))


def test_three_seeds_protect_the_best_configuration_where_one_does_not() -> None:
    rng = np.random.default_rng(0)
    assert wrongly_pruned(1.0, 3, rng) <= 0.02
    assert wrongly_pruned(1.0, 1, rng) >= 0.05
