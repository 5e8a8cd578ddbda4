"""The means that samples with known quantiles can have, against a linear program of SciPy."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from esbench.results.statistics.quantile_bounds import QUANTILES, is_mean, mean_bounds

SIZES = [1, 2, 3, 4, 5, 7, 10, 11, 12, 20, 21, 23, 37, 100, 101, 128]


def program(values: list[float], size: int, sign: float, count: int) -> float:
    """The smallest or largest mean of the first numbers of a sorted sample with these quantiles."""
    equal = np.zeros((len(values), size))
    for row, share in zip(equal, QUANTILES, strict=True):
        below, part = divmod(Fraction(str(share)) * (size - 1), 1)
        row[int(below)] += 1 - part
        if part:
            row[int(below) + 1] += part
    rising = np.eye(size)[:-1] - np.eye(size)[1:]
    found = linprog(
        np.where(np.arange(size) < count, sign / count, 0.0),
        A_ub=rising,
        b_ub=np.zeros(size - 1),
        A_eq=equal,
        b_eq=values,
        bounds=(None, None),
    )
    assert found.status in {0, 2}
    return sign * found.fun if found.status == 0 else np.nan


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "integer", "mostly one", "wide"])
def test_the_bounds_are_those_of_a_linear_program(size: int, kind: str) -> None:
    rng = np.random.default_rng(size)
    sample = {
        "normal": rng.normal(size=size),
        "integer": rng.integers(-3, 4, size=size),
        "mostly one": np.where(rng.uniform(size=size) < 0.9, 500.0, rng.uniform(0, 500, size)),
        "wide": -(10 ** rng.uniform(-3, 6, size=size)),
    }[kind]
    values = np.quantile(sample, QUANTILES).tolist()
    for count in (size, -(-size // 10)):
        found = mean_bounds(values, size, count)
        assert found is not None
        assert found[0] <= np.sort(sample)[:count].mean() <= found[1]
        expected = [program(values, size, sign, count) for sign in (1.0, -1.0)]
        for mean in np.linspace(2 * found[0] - found[1], 2 * found[1] - found[0], 31):
            assert is_mean(mean, values, size, count) == (found[0] <= mean <= found[1])
        assert np.array(found) == pytest.approx(expected, abs=1e-6 * np.abs(sample).max())


@pytest.mark.parametrize("size", SIZES)
def test_quantiles_that_no_sample_has_are_found(size: int) -> None:
    assert mean_bounds([0, 1, 2, 3, 2.9, 5, 6, 7, 8], size, size) is None
    rng, known = np.random.default_rng(size), []
    for _ in range(20):
        values = np.sort(rng.normal(size=9)).tolist()
        known.append(mean_bounds(values, size, size) is None)
        assert known[-1] is bool(np.isnan(program(values, size, 1.0, size)))
    assert all(known) or size >= 5
