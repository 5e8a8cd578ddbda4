from __future__ import annotations

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
import scipy.stats
from scipy.stats import rankdata

from esbench.core.arrays import Floats
from esbench.results.statistics.significance import (
    OMNIBUS,
    PERMUTATIONS,
    all_splits,
    chances_of_best,
    change_points,
    compare,
    compare_across,
    holm,
    p_different,
    p_greater,
    p_paired,
    standings,
)

LOW, HIGH = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0]


def test_a_clear_difference_by_hand() -> None:
    found = compare(HIGH, LOW)
    assert (found.first, found.second, found.runs) == (12.5, 3.0, (4, 5))
    assert found.difference.value == 9.5
    assert found.difference.low < 9.5 < found.difference.high
    assert found.difference.low > 0
    assert found.improvement.value == found.improvement.high == 1.0
    assert 0.5 < found.improvement.low < 0.9
    assert found.p_value == pytest.approx(2 / 126)
    assert found.effect_size > 5
    other = compare(LOW, HIGH)  # the sides are symmetric
    assert other.difference.value == -found.difference.value
    assert other.improvement.value == 1 - found.improvement.value
    assert other.improvement.high == pytest.approx(1 - found.improvement.low)
    assert other.p_value == found.p_value
    assert other.effect_size == -found.effect_size


def test_across_environments_the_probability_is_the_mean_and_the_difference_pooled() -> None:
    difference, improvement = compare_across([HIGH, LOW], [LOW, LOW])
    assert improvement.value == pytest.approx((1.0 + 0.5) / 2)
    assert improvement.low < improvement.value < improvement.high
    one = compare(HIGH, LOW).improvement  # of one environment, and of the same one twice
    (_, alone), (_, twice) = (compare_across([HIGH] * n, [LOW] * n) for n in (1, 2))
    assert (alone.value, alone.low, alone.high) == pytest.approx((one.value, one.low, one.high))
    assert 1 - twice.low == pytest.approx((1 - one.low) / math.sqrt(2))
    assert difference.value > 0


def test_standings_by_hand() -> None:
    near = [10.0, 12.0, 12.5, 14.5]
    assert standings([LOW, HIGH, near]) == ["", "best", "tied"]
    assert standings([LOW, HIGH]) == ["", "best"]
    assert standings([[500.0] * 5, [500.0] * 5]) == ["best", "tied"]
    assert standings([LOW[:3], HIGH[:3]]) == ["tied", "best"]  # three seeds tell nothing
    # Holm: 2/126 is enough alone, and not beside three others that are as far away.
    assert standings([HIGH, LOW, LOW, LOW, LOW]) == ["best", *["tied"] * 4]
    # A side without scores stands nowhere.
    assert standings([LOW, [], HIGH]) == ["", "", "best"]
    assert standings([LOW, []]) == ["", ""]
    assert standings([LOW, HIGH, HIGH[:2]]) == [""] * 3  # two seeds are too few
    assert standings([]) == []
    # The best by the interquartile mean may have a mean that is significantly lower.
    failing = [0.0] * 4 + [100.3] * 12
    rising = [99.7] * 12 + [300.0] * 4
    assert compare(rising, failing).p_value < 0.05
    assert standings([failing, rising]) == ["best", "tied"]


def test_the_chance_of_staying_the_best_is_that_of_all_resamples() -> None:
    sides = [3.0, 5.0, 7.0], [4.0, 4.0, 6.0], [1.0]
    pairs = product(*(product(side, repeat=3) for side in sides[:2]))
    firsts = [(np.sign(sum(a) - sum(b)) + 1) / 2 for a, b in pairs]
    assert chances_of_best(sides)[:2] == pytest.approx([np.mean(firsts), 1 - np.mean(firsts)])
    assert math.isnan(chances_of_best(sides)[2])
    many = [np.arange(20.0), np.arange(20.0), np.arange(20.0) - 30]
    first, second, last = chances_of_best(many)
    assert (first, last) == (pytest.approx(0.5, abs=0.02), 0.0)
    assert first != 0.5  # rows are resampled independently of each other
    assert chances_of_best([[500.0] * 10] * 4) == [0.25] * 4
    assert chances_of_best(many) == [first, second, last]


@pytest.mark.parametrize(("n", "m"), [(3, 3), (8, 8), (2, 5), (9, 4), (10, 10)])
def test_p_equals_scipys_exact_permutation_test(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    ours, theirs = rng.normal(size=n).round(1), rng.normal(-0.5, size=m).round(1)  # with ties
    for alternative, ours_of in (("greater", p_greater), ("two-sided", p_different)):
        expected = scipy.stats.permutation_test(
            (ours, theirs),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            vectorized=True,
            n_resamples=math.inf,
            alternative=alternative,
        )
        assert ours_of(ours, theirs) == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("pairs", [2, 6, 12, 14])
def test_p_of_pairs_equals_scipys_exact_sign_flips(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    first = rng.normal(size=pairs).round(1)
    second = first + rng.normal(0.5, size=pairs).round(1)
    expected = scipy.stats.permutation_test(
        (first, second),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=math.inf,
    )
    equal = np.full(50, 7.0)  # says nothing
    for others in (equal[:0], equal):
        found = p_paired(np.append(first, others), np.append(second, others))
        assert found == pytest.approx(expected.pvalue, abs=1e-12)


def test_p_of_many_pairs_is_uniform_without_and_small_with_a_difference() -> None:
    rng = np.random.default_rng(101)
    noise = rng.standard_t(2, size=(200, 40))  # with outliers
    found = [p_paired(row, np.zeros(40)) for row in noise]
    assert 0.01 < np.mean(np.array(found) <= 0.05) < 0.1
    assert p_paired(np.arange(40.0), np.arange(40.0) + 1) == 2.0**-39


def test_p_counts_sums_as_equal_that_differ_in_their_last_bits() -> None:
    scores = [0.1, 0.2, 0.3, 0.1 + 0.2 - 0.3 + 0.1, 0.7, 1e9]
    values = {p_greater(order[:3], order[3:]) for order in permutations(scores) if 1e9 in order[:3]}
    assert len(values) <= 10  # one for each choice of the other two
    assert p_greater([5.0, 5.0], [5.0, 5.0]) == 1.0


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


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.5]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert holm([]).shape == (0,)


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


@pytest.mark.parametrize("samples", [[], [[1.0]], [[1.0, 2.0]], [[1.0]] * 50])
def test_without_a_difference_there_is_no_change(samples: list[list[float]]) -> None:
    assert change_points(samples) == []


@pytest.mark.parametrize(
    ("first", "second", "resamples", "splits"),
    [
        (8, 8, PERMUTATIONS, 12_870),
        (10, 10, PERMUTATIONS, 184_756),
        (10, 11, PERMUTATIONS, 0),
        (3, 100, PERMUTATIONS, 0),  # 176,851 of many runs
        (2, 60, PERMUTATIONS, 1_891),
        (8, 8, 12_869, 0),
        (10, 10, 19_999, 0),  # fewer than by default were asked for
    ],
)
def test_all_splits_are_tried_if_they_are_few(
    first: int, second: int, resamples: int, splits: int
) -> None:
    assert all_splits(first, second, resamples) == splits
