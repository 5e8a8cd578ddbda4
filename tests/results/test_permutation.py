from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
import scipy.stats

from esbench.results.statistics.significance import (
    OMNIBUS,
    PERMUTATIONS,
    holm,
    p_different,
    p_greater,
)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (8, 8), (2, 5), (9, 4)])
def test_p_equals_scipys_exact_permutation_test(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    ours, theirs = rng.normal(size=n).round(1), rng.normal(-0.5, size=m).round(1)  # with ties
    for alternative, ours_of in (("greater", p_greater), ("two-sided", p_different)):
        expected = scipy.stats.permutation_test(
            (ours, theirs),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            vectorized=True,
            n_resamples=PERMUTATIONS,
            alternative=alternative,
        )
        assert ours_of(ours, theirs) == pytest.approx(expected.pvalue, abs=1e-12)


def test_p_counts_sums_as_equal_that_differ_in_their_last_bits() -> None:
    scores = [0.1, 0.2, 0.3, 0.1 + 0.2 - 0.3 + 0.1, 0.7, 1e9]
    values = {p_greater(order[:3], order[3:]) for order in permutations(scores) if 1e9 in order[:3]}
    assert len(values) <= 10  # one for each choice of the other two
    assert p_greater([5.0, 5.0], [5.0, 5.0]) == 1.0


def test_an_extreme_score_does_not_make_others_equal() -> None:
    low = [-1e14, -1.0, -2.0, -3.0, -4.0]
    assert p_greater([1, 2, 3, 4, 5], low) == p_greater([1, 2, 3, 4, 5], [-1e5, *low[1:]])


@pytest.mark.parametrize("exploded", [-1e17, -1e20, -1e300])
def test_an_exploded_score_blinds_neither_ranks_nor_iqm(exploded: float) -> None:
    low, high = [exploded, *range(7)], [*range(10, 18)]
    for statistic in ("ranks", "iqm"):
        expected = p_greater(high, [-1e5, *low[1:]], statistics=(statistic,))
        assert p_greater(high, low, statistics=(statistic,)) == expected < 0.01


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_unit_of_the_scores_changes_no_p(factor: float) -> None:
    scores = np.random.default_rng(0).normal(size=(20, 11))
    for high, low in ((row[:5], row[5:]) for row in scores):
        expected = p_greater(high, low, statistics=OMNIBUS)
        assert p_greater(factor * high, factor * low, statistics=OMNIBUS) == expected


def test_p_of_random_ways_is_near_the_exact_one_counts_the_observed_one_and_has_a_seed() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.2, size=8), rng.normal(0.2, size=8)
    exact = p_greater(ours, theirs)
    assert p_greater(ours, theirs, resamples=5000) == pytest.approx(exact, abs=0.02)
    one, other = (p_greater(ours, theirs, seed=seed, resamples=5000) for seed in (1, 2))
    assert one != other
    far = p_greater(np.ones(30) + rng.normal(size=30) / 9, rng.normal(size=30) / 9, resamples=1000)
    assert far == 1 / 1000


def smallest_of_three(scores: np.ndarray, splits: list[tuple[int, ...]]) -> np.ndarray:
    """The smallest p-value of three statistics for each split, by SciPy and by counting."""
    sides = [(scores[list(s)], np.delete(scores, s)) for s in splits]
    ranks = scipy.stats.rankdata(scores)
    columns = [
        [ours.mean() - theirs.mean() for ours, theirs in sides],
        [scipy.stats.trim_mean(o, 0.25) - scipy.stats.trim_mean(t, 0.25) for o, t in sides],
        [ranks[list(s)].sum() for s in splits],
    ]
    return np.min([[np.mean(np.array(c) >= value - 1e-12) for value in c] for c in columns], axis=0)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 4), (2, 6)])
def test_the_omnibus_p_is_that_of_all_splits_and_has_the_exact_level(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    scores = rng.standard_t(2, size=n + m).round(1)  # with ties
    splits = list(combinations(range(n + m), n))
    smallest = smallest_of_three(scores, splits)
    found = np.array(
        [p_greater(scores[list(s)], np.delete(scores, s), statistics=OMNIBUS) for s in splits]
    )
    expected = [np.mean(smallest <= value + 1e-12) for value in smallest]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert all(np.mean(found <= level + 1e-12) <= level + 1e-12 for level in found)


def test_the_omnibus_test_sees_what_one_statistic_alone_does_not() -> None:
    steady = np.linspace(0.95, 1.05, 16)
    failed = np.r_[0.0, steady[1:]]  # a failed seed hides from the mean that the others dropped
    assert p_greater(failed, steady - 0.08) > 0.3
    assert p_greater(failed, steady - 0.08, statistics=OMNIBUS) < 0.002
    half = np.r_[np.zeros(4), steady[4:]]  # a quarter of the seeds fails: cut from both ends
    assert p_greater(steady, half, statistics=("iqm",)) > 0.01
    assert p_greater(steady, half, statistics=OMNIBUS) < 0.1


def test_random_splits_of_the_omnibus_test_are_near_all_of_them() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(0.5, size=8), rng.normal(size=8)
    exact = p_greater(ours, theirs, statistics=OMNIBUS)
    near = p_greater(ours, theirs, resamples=8000, statistics=OMNIBUS)
    assert near == pytest.approx(exact, abs=0.02)
    far = p_greater(ours + 100, theirs, resamples=1000, statistics=OMNIBUS)
    assert far == 1 / 1000


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.5]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert holm([]).shape == (0,)
