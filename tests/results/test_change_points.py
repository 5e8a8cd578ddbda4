"""Change points: compared with all permutations, rare on noise, and where the levels change."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import rankdata

from esbench.core.arrays import Floats
from esbench.results.statistics.significance import change_points


def checks(rng: np.random.Generator, levels: list[float], seeds: int = 8) -> list[Floats]:
    """One sample of normal scores for each level; one seed in ten fails."""
    samples = [level + rng.standard_normal(seeds) for level in levels]
    return [np.where(rng.random(seeds) < 0.1, each - 50, each) for each in samples]


def exact_p(values: Floats) -> float:
    """The share of all orders whose largest |z| of mean ranks is at least that of this one."""

    def largest(ranks: Floats) -> float:
        total = len(ranks)
        gaps = [abs(ranks[:k].mean() - ranks[k:].mean()) for k in range(1, total)]
        weights = [1 / k + 1 / (total - k) for k in range(1, total)]
        return max(gap / weight**0.5 for gap, weight in zip(gaps, weights, strict=True))

    ranks = rankdata(values)
    observed = largest(ranks) - 1e-9
    return float(np.mean([largest(np.array(order)) >= observed for order in permutations(ranks)]))


@pytest.mark.parametrize("seed", range(6))
def test_the_test_is_that_of_all_permutations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.round(rng.standard_normal(7) + 1.2 * (np.arange(7) > 3), 1)  # with ties
    exact = exact_p(values)
    assert change_points(list(values[:, None]), 0.75 * exact) == []
    assert change_points(list(values[:, None]), 1.25 * exact)


def test_noise_is_rarely_marked() -> None:
    rng = np.random.default_rng(1)
    marked = [change_points(checks(rng, [0.0] * 12)) for _ in range(300)]
    assert sum(map(bool, marked)) <= 7  # 3 expected


def test_real_changes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(2)
    for levels, expected in (
        ([5.0] * 6 + [3.0] * 6, [6]),
        ([5.0] * 6 + [8.0] * 6 + [5.0] * 6, [6, 12]),
        ([5.0, 5.0, 5.0, 2.0], [3]),  # the last one alone
    ):
        assert change_points(checks(rng, levels)) == expected


def test_only_the_order_of_values_matters() -> None:
    samples = checks(np.random.default_rng(3), [5.0] * 8 + [3.5] * 8)
    found = change_points(samples)
    assert len(found) == 1
    assert change_points([np.exp(sample / 10) for sample in samples]) == found


@pytest.mark.parametrize("samples", [[], [[1.0]], [[1.0, 2.0]], [[1.0]] * 50])
def test_without_a_difference_there_is_no_change(samples: list[list[float]]) -> None:
    assert change_points(samples) == []


def test_samples_may_have_any_number_of_values() -> None:
    rng = np.random.default_rng(4)
    sizes = [3, 8, 1, 16, 5, 8, 2, 9]
    samples = [rng.standard_normal(size) - 4 * (n >= 4) for n, size in enumerate(sizes)]
    assert change_points(samples) == [4]
