"""PGPE makes evotorch's updates, and PEPG those of its package."""

import math

import numpy as np
import pepg
import pytest
from evotorch_oracle import PGPE, Oracle
from searches import SIZE, START, P, climb, deviations, maker, signed_noise
from searches import quadratic as fitness

from esbench.algorithms.shaping import SHAPINGS

make = maker("pgpe", learning_rate=0.15)


def evotorchs(sigma=0.1, **given):
    """Return evotorch's PGPE in float64.

    ``compare`` gives it members mu + sigma z with its own mu, which at first are ours bit for bit.
    Ours themselves would feed the rounding error of the centers back in, because evotorch takes
    members minus mu for the noise.
    """
    rates = {"center_learning_rate": 0.15, "stdev_learning_rate": 0.1}
    return Oracle(PGPE, START, sigma, size=SIZE, **(rates | given))


def compare(algorithm, oracle, updates=100, before_update=lambda t: None):
    """Tell both the same; return the deviations after every update, [updates, P]."""
    seen = []
    for t in range(updates):
        population = algorithm.ask()
        returns = fitness(population.members())
        before_update(t)
        algorithm.tell(population, returns)
        oracle.tell(oracle.center + oracle.sigma * signed_noise(population), returns)
        np.testing.assert_allclose(algorithm.center, oracle.center, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(deviations(algorithm), oracle.sigma, rtol=1e-9)
        seen.append(deviations(algorithm))
    assert np.abs(algorithm.center - START).max() > 0.01
    return np.array(seen)


OPTIMIZERS = {
    "clipup": ({}, {}),
    "clipup-slow": (
        {"optimizer_settings": {"max_speed": 0.1, "momentum": 0.8}},
        {"optimizer_config": {"max_speed": 0.1, "momentum": 0.8}},
    ),
    "adam": ({"optimizer": "adam"}, {"optimizer": "adam"}),
    "plain": ({"optimizer": "sgd"}, {"optimizer": None}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("antithetic", [True, False])
def test_a_hundred_updates_are_evotorchs(optimizer, antithetic):
    ours, theirs = OPTIMIZERS[optimizer]
    oracle = evotorchs(symmetric=antithetic, **theirs)
    seen = compare(make(antithetic=antithetic, **ours), oracle)
    assert np.ptp(seen[-1]) > 0.005  # the deviations went apart


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "change"),
    [
        (None, None, None),
        (0.09, None, None),
        (None, 0.101, None),
        (None, None, 0.01),
        (0.08, 0.101, 0.02),
        (0.15, None, 0.02),  # starts out of bounds
    ],
)
def test_bounds_and_limits_of_the_deviations_are_evotorchs(low, high, change, antithetic):
    ours = {"antithetic": antithetic, "sigma_learning_rate": 0.4}
    theirs = {"symmetric": antithetic, "stdev_learning_rate": 0.4}
    bounds = {"sigma_min": low, "sigma_max": high, "sigma_max_change": change}
    oracle = evotorchs(stdev_min=low, stdev_max=high, stdev_max_change=change, **theirs)
    seen = compare(make(**bounds, **ours), oracle, 40)
    changes = np.abs(np.diff(seen, axis=0) / seen[:-1]).max()
    # Each bound was met.
    assert low is None or seen.min() == low or (low > 0.1 and seen[-1].min() == low)
    assert high is None or seen.max() == high
    assert change is None or changes == pytest.approx(change, rel=1e-12)


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("shaping", SHAPINGS)
def test_shapings_are_centered_as_evotorchs(shaping, antithetic):
    rates = {"raw": (0.02, 0.002), "normalized": (0.05, 0.1)}
    rate, sigma_rate = rates.get(shaping, (0.15, 0.1))
    # Ours divide by the deviation with N below the sum of squares, evotorch's with N - 1.
    factor = math.sqrt((SIZE - 1) / SIZE) if shaping == "normalized" else 1.0
    theirs = {"center_learning_rate": rate, "stdev_learning_rate": sigma_rate}
    oracle = evotorchs(symmetric=antithetic, optimizer=None, ranking_method=shaping, **theirs)
    ours = {"learning_rate": rate * factor, "sigma_learning_rate": sigma_rate * factor}
    algorithm = make(antithetic=antithetic, optimizer="sgd", shaping=shaping, **ours)
    compare(algorithm, oracle, 30)


@pytest.mark.parametrize("optimizer", ["clipup", "adam"])
def test_decaying_rates_are_evotorchs_with_a_schedule(optimizer):
    oracle = evotorchs(optimizer=optimizer)
    group = oracle.search.optimizer.param_groups[0]

    def schedule(t):
        group["lr"] = 0.15 * 0.97**t
        if optimizer == "clipup":
            group["max_speed"] = 0.3 * 0.97**t
        oracle.search._stdev_learning_rate = 0.1 * 0.95**t

    decays = {"learning_rate_decay": 0.97, "sigma_learning_rate_decay": 0.95}
    compare(make(optimizer=optimizer, **decays), oracle, 40, before_update=schedule)


make_pepg = maker("pepg")


def package(sigma=2.0, learning_rate=0.3, sigma_learning_rate=0.2, weight_decay=0.0, **given):
    oracle = pepg.PEPG(
        SIZE, P, 0.0, sigma, learning_rate, sigma_learning_rate, weight_decay, **given
    )
    oracle.mu[:] = START
    return oracle


def tell_both(algorithm, oracle):
    """Tell both of one population: the package has all the pluses first, then the minuses."""
    population = algorithm.ask()
    values = fitness(population.members())
    z = np.array([population.noise.row(i) for i in range(len(values) // 2)])
    oracle.epsilon = oracle.sigma * z
    oracle.theta = np.concatenate([oracle.mu + oracle.epsilon, oracle.mu - oracle.epsilon])
    oracle.update(np.concatenate([values[0::2], values[1::2]]))
    algorithm.tell(population, values)


RATES = [
    {},  # the package's examples
    {"sigma": 0.3, "learning_rate": 0.05, "sigma_learning_rate": 0.1, "weight_decay": 0.0},
    {"sigma": 0.3, "learning_rate": 0.05, "sigma_learning_rate": 1.0, "weight_decay": 0.1},
]


@pytest.mark.parametrize("rates", RATES)
def test_a_hundred_updates_are_the_packages_but_for_adams_eps(rates):
    algorithm = make_pepg(optimizer_settings={"eps": 0.0}, **rates)
    oracle = package(optimizer_kwargs={"epsilon": 0.0}, **rates)
    for _ in range(100):
        tell_both(algorithm, oracle)
        np.testing.assert_allclose(algorithm.center, oracle.mu, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(deviations(algorithm), oracle.sigma, rtol=1e-12)
    assert np.abs(algorithm.center - START).max() > 0.1
    assert np.abs(deviations(algorithm) / algorithm.settings.sigma - 1).max() > 0.1


def test_a_deviation_stays_positive_where_the_packages_turns_negative():
    rates = {"sigma": 0.3, "sigma_learning_rate": 16.0}
    negative = 0
    for seed in range(30):
        algorithm, oracle = make_pepg(seed=seed, **rates), package(**rates)
        tell_both(algorithm, oracle)
        turned = oracle.sigma < 0.01 * 0.3
        np.testing.assert_allclose(deviations(algorithm)[~turned], oracle.sigma[~turned], rtol=1e-9)
        np.testing.assert_allclose(deviations(algorithm)[turned], 0.01 * 0.3, rtol=1e-14)
        negative += np.count_nonzero(oracle.sigma <= 0)
    assert negative > 3


@pytest.mark.parametrize(
    "given",
    [
        *({"shaping": shaping} for shaping in SHAPINGS),
        {"sigma_min": 0.29, "sigma_max": 0.305, "sigma_max_change": 0.01},
        {"sigma_learning_rate_decay": 0.5, "learning_rate_decay": 0.9},
    ],
)
def test_pepg_is_pgpe_at_half_the_rate_of_the_deviations(given):
    rate = 0.01 if given.get("shaping") == "raw" else 0.2
    one = make_pepg(sigma=0.3, sigma_learning_rate=rate, **given)
    adam = {"optimizer": "adam", "learning_rate": 0.3, "weight_decay": 0.0}
    given = {"sigma": 0.3, "sigma_learning_rate": rate / 2, "sigma_max_change": None, **given}
    other = maker("pgpe")(**adam, **given)
    for _ in range(20):
        for algorithm in (one, other):
            climb(algorithm, 1)
        np.testing.assert_allclose(one.center, other.center, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(deviations(one), deviations(other), rtol=1e-10)
