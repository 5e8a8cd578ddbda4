from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import scipy.stats

from esbench.analysis.permutation import RESAMPLES, holm, p_different, p_greater


@pytest.mark.parametrize(("n", "m"), [(3, 3), (8, 8), (2, 5), (9, 4)])
def test_p_equals_scipys_exact_permutation_test(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    ours, theirs = rng.normal(size=n).round(1), rng.normal(-0.5, size=m).round(1)  # with ties
    for alternative, ours_of in (("greater", p_greater), ("two-sided", p_different)):
        expected = scipy.stats.permutation_test(
            (ours, theirs),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            vectorized=True,
            n_resamples=RESAMPLES,
            alternative=alternative,
        )
        assert ours_of(ours, theirs) == pytest.approx(expected.pvalue, abs=1e-12)


def test_p_counts_sums_as_equal_that_differ_in_their_last_bits() -> None:
    scores = [0.1, 0.2, 0.3, 0.1 + 0.2 - 0.3 + 0.1, 0.7, 1e9]
    values = {p_greater(order[:3], order[3:]) for order in permutations(scores) if 1e9 in order[:3]}
    assert len(values) <= 10  # one for each choice of the other two
    assert p_greater([5.0, 5.0], [5.0, 5.0]) == 1.0


def test_p_of_random_ways_is_near_the_exact_one_counts_the_observed_one_and_has_a_seed() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.2, size=8), rng.normal(0.2, size=8)
    exact = p_greater(ours, theirs)
    assert p_greater(ours, theirs, resamples=5000) == pytest.approx(exact, abs=0.02)
    one, other = (p_greater(ours, theirs, seed=seed, resamples=5000) for seed in (1, 2))
    assert one != other
    far = p_greater(np.ones(30) + rng.normal(size=30) / 9, rng.normal(size=30) / 9, resamples=1000)
    assert far == 1 / 1000


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.5]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert holm([]).shape == (0,)
