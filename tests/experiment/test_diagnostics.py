import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from trainers import results, train

from esbench.core.noise import GaussianNoise
from esbench.core.population import SampledPopulation
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.diagnostics import Gauge, cosine, drift, split_half_cosine, tied_share
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer

Spec = Callable[..., TrialSpec]
WALK = "doubles:Walk-v0"
FIVE = {"generations": 5, "env_steps": 10**6}


def population(
    size: int, num_params: int = 3, key: int = 0, antithetic: bool = True
) -> SampledPopulation:
    return SampledPopulation(
        center=np.zeros(num_params),
        sigma=0.1,
        noise=GaussianNoise(key, num_params),
        size=size,
        antithetic=antithetic,
    )


@pytest.mark.parametrize(
    ("returns", "share"),
    [
        ([1.0, 2.0, 3.0, 4.0], 0.0),
        ([1.0, 2.0, 2.0, 4.0], 0.5),
        ([1.0, 1.0, 2.0, 2.0], 1.0),  # of two pairs everyone shares
        ([5.0], 0.0),
        ([1.0, math.nan, -math.inf, 2.0], 0.5),  # what is not finite is equal
    ],
)
def test_the_share_of_ties_is_of_members(returns: list[float], share: float) -> None:
    assert tied_share(np.array(returns)) == share


def test_the_cosine_is_of_the_angle() -> None:
    x = np.array([1.0, 0.0])
    assert cosine(x, np.array([3.0, 4.0])) == pytest.approx(0.6)
    assert cosine(x, -2 * x) == -1.0
    assert math.isnan(cosine(x, np.zeros(2)))


def test_drift_is_the_change_of_a_normalized_input() -> None:
    before = Normalizer(mean=np.array([1.0, 0.0]), scale=np.array([0.5, 1.0]), clip=5.0)
    after = Normalizer(mean=np.array([2.0, 0.0]), scale=np.array([0.25, 1.0]), clip=5.0)
    # Of the first: ((2 / 4 - 1)^2 + ((1 - 2) / 4)^2) = 0.3125; the second sees what it saw.
    assert drift(before, after) == pytest.approx(math.sqrt(0.3125 / 2))
    seen = np.random.default_rng(0).normal([1.0, 0.0], [2.0, 1.0], (100_000, 2))
    change = (seen - after.mean) * after.scale - (seen - before.mean) * before.scale
    assert drift(before, after) == pytest.approx(np.sqrt(np.mean(change**2)), rel=0.01)
    assert drift(before, before) == 0.0


@pytest.mark.parametrize("antithetic", [True, False])
def test_the_signal_to_noise_is_that_of_the_halves(antithetic: bool) -> None:
    drawn = population(12, antithetic=antithetic)
    returns = np.random.default_rng(0).normal(size=12)
    utilities = np.argsort(np.argsort(returns)) / 11 - 0.5
    a, b = np.zeros(3), np.zeros(3)
    for member in range(12):
        pair, sign = (member // 2, 1 - 2 * (member % 2)) if antithetic else (member, 1)
        half = a if pair % 2 == 0 else b
        half += utilities[member] * sign * drawn.noise.row(pair)
    assert split_half_cosine(drawn, returns) == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))


def slopes(count: int) -> np.ndarray:
    """The cosines of 80 members on a noiseless slope of 100 parameters."""
    drawn = (population(80, 100, key) for key in range(count))
    return np.array([split_half_cosine(p, p.members() @ np.ones(100)) for p in drawn])


def test_the_ratio_on_a_slope_is_that_of_rows_to_parameters() -> None:
    mean = float(np.mean(slopes(100)))
    assert 2 * mean / (1 - mean) == pytest.approx(40 / 100, rel=0.15)


def test_the_gauge_knows_the_start_and_the_last_update() -> None:
    gauge = Gauge(np.array([0.0, 1.0]))
    points = [np.array(point) for point in ([0.0, 1.0], [3.0, 1.0], [3.0, 5.0], [3.0, 5.0])]
    drawn, returns = population(8, 2), np.arange(8.0)
    found = [
        gauge.measure(drawn, returns, centers, (None, None), True)
        for centers in itertools.pairwise(points)
    ]
    columns = {key: [item[key] for item in found] for key in found[0]}
    assert columns["update_norm"] == [3.0, 4.0, 0.0]
    assert columns["distance"] == [3.0, 5.0, 5.0]
    assert columns["center_norm"] == pytest.approx([1.0, math.sqrt(10), math.sqrt(34)])
    np.testing.assert_equal(columns["update_cosine"], [math.nan, 0.0, math.nan])
    assert all(map(math.isnan, columns["observation_drift"]))
    other = gauge.measure(drawn, returns, (points[0], points[1]), (None, None), ranked=False)
    assert math.isnan(other["split_half_cosine"])


def test_a_gauge_that_is_restored_before_the_first_update_knows_the_start() -> None:
    restored = Gauge(np.zeros(2))  # as made without the start of a warm trial
    restored.load_state_dict(Gauge(np.array([6.0, 1.0])).state_dict())
    centers = np.array([6.0, 1.0]), np.array([6.0, 5.0])
    found = restored.measure(population(8, 2), np.arange(8.0), centers, (None, None), True)
    assert found["distance"] == 4.0


@pytest.mark.parametrize("algorithm", ["ars", "pgpe", "genetic", "nsr_es"])
def test_what_is_measured_is_the_same_with_any_workers_and_after_a_resume(
    make_spec: Spec, pool: WorkerPool, single: WorkerPool, algorithm: str
) -> None:
    spec = make_spec(WALK, algorithm, budget=FIVE)
    expected = results(train(spec, single))
    assert results(train(spec, pool, 3)) == expected
    columns = {key: [row[key] is not None for row in expected] for key in expected[0]}
    assert columns["observation_drift"] == [True] * 5
    assert columns["split_half_cosine"] == [algorithm in {"ars", "pgpe"}] * 5
    assert algorithm != "pgpe" or columns["update_cosine"] == [False, *[True] * 4]
