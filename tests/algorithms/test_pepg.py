import numpy as np
import pepg
import pytest
from searches import SIZE, START, P, climb, deviations, maker
from searches import quadratic as fitness

from esbench.algorithms.shaping import SHAPINGS

make = maker("pepg")


def package(sigma=2.0, learning_rate=0.3, sigma_learning_rate=0.2, weight_decay=0.0, **given):
    oracle = pepg.PEPG(
        SIZE, P, 0.0, sigma, learning_rate, sigma_learning_rate, weight_decay, **given
    )
    oracle.mu[:] = START
    return oracle


def tell_both(algorithm, oracle, returns=None):
    """Tell both of one population: the package has all the pluses first, then the minuses."""
    population = algorithm.ask()
    values = fitness(population.members()) if returns is None else np.array(returns)
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
    algorithm = make(optimizer_settings={"eps": 0.0}, **rates)
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
        algorithm, oracle = make(seed=seed, **rates), package(**rates)
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
    one = make(sigma=0.3, sigma_learning_rate=rate, **given)
    adam = {"optimizer": "adam", "learning_rate": 0.3, "weight_decay": 0.0}
    given = {"sigma": 0.3, "sigma_learning_rate": rate / 2, "sigma_max_change": None, **given}
    other = maker("pgpe")(**adam, **given)
    for _ in range(20):
        for algorithm in (one, other):
            climb(algorithm, 1)
        np.testing.assert_allclose(one.center, other.center, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(deviations(one), deviations(other), rtol=1e-10)
