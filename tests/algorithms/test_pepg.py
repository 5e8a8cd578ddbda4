import numpy as np
import pepg
import pytest
from searches import SIZE, START, P, climb, deviations, maker
from searches import quadratic as fitness

from esbench.algorithms.shaping import SHAPINGS

make = maker("pepg")


def package(sigma=2.0, learning_rate=0.3, sigma_learning_rate=0.2, weight_decay=0.005, **given):
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


@pytest.mark.parametrize("rates", RATES)
def test_one_and_a_hundred_updates_are_the_packages_to_1e_5(rates):
    algorithm, oracle = make(**rates), package(**rates)
    errors = []
    for _ in range(100):
        tell_both(algorithm, oracle)
        # Of the largest entry: those near zero have fewer digits to compare.
        errors.append(np.abs(algorithm.center - oracle.mu).max() / np.abs(oracle.mu).max())
        np.testing.assert_allclose(deviations(algorithm), oracle.sigma, rtol=1e-12)
    assert errors[0] < 1e-5
    assert errors[-1] < 1e-5
    assert max(errors) < 2e-5
    assert min(errors) > 1e-9  # eps is seen


def test_the_first_step_differs_by_no_more_than_the_eps_that_is_documented():
    algorithm, oracle = make(weight_decay=0.0), package(weight_decay=0.0)
    tell_both(algorithm, oracle)
    gradient = (1 - 0.9) ** -1 * oracle.optimizer.m
    ours, theirs = algorithm.center - START, oracle.mu - START
    differences = np.abs(ours / theirs - 1)
    assert (differences < 3.1e-7 / np.abs(gradient) + 1e-14).all()
    assert (differences > 2.9e-7 / np.abs(gradient)).all()


def test_the_defaults_are_those_of_the_packages_examples():
    given = make().settings
    assert (given.sigma, given.learning_rate, given.sigma_learning_rate) == (2.0, 0.3, 0.2)
    assert (given.weight_decay, given.optimizer, given.shaping) == (0.005, "adam", "centered")
    assert given.sigma_max_change is given.sigma_min is given.sigma_max is None
    assert given.uses_pairs


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


def test_it_never_leaves_the_deviations_at_zero():
    algorithm = make(sigma_learning_rate=20.0)
    old = deviations(algorithm)
    for _ in range(30):
        climb(algorithm, 1)
        assert (deviations(algorithm) >= 0.01 * old).all()
        old = deviations(algorithm)
    assert (old > 0).all()


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_it_is_pgpe_at_half_the_deviations_rate(shaping):
    rate = 0.01 if shaping == "raw" else 0.2
    one = make(shaping=shaping, sigma=0.3, sigma_learning_rate=rate)
    other = maker("pgpe")(
        shaping=shaping,
        sigma=0.3,
        learning_rate=0.3,
        optimizer="adam",
        weight_decay=0.005,
        sigma_learning_rate=rate / 2,
        sigma_max_change=None,
    )
    for _ in range(20):
        for algorithm in (one, other):
            climb(algorithm, 1)
        np.testing.assert_allclose(one.center, other.center, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(deviations(one), deviations(other), rtol=1e-10)


def test_the_limits_of_the_deviations_hold():
    algorithm = make(sigma=0.3, sigma_min=0.29, sigma_max=0.305, sigma_max_change=0.01)
    seen = [deviations(algorithm)]
    for _ in range(40):
        climb(algorithm, 1)
        seen.append(deviations(algorithm))
    seen = np.array(seen)
    assert seen.min() == 0.29
    assert seen.max() <= 0.305
    assert np.abs(np.diff(seen, axis=0) / seen[:-1]).max() <= 0.01 * (1 + 1e-12)


def test_the_deviations_rate_decays():
    algorithm = make(sigma_learning_rate_decay=0.5, sigma=0.3, learning_rate=1e-9)
    constant = make(sigma=0.3, learning_rate=1e-9)
    returns = np.arange(SIZE) ** 2.0
    for factor in (1.0, 0.5, 0.25):
        before = deviations(algorithm)
        constant.load_state_dict({**algorithm.state_dict(), "generation": algorithm.generation})
        algorithm.tell(algorithm.ask(), returns)
        constant.tell(constant.ask(), returns)
        changes = deviations(algorithm) - before, deviations(constant) - before
        np.testing.assert_allclose(changes[0], factor * changes[1], rtol=1e-9, atol=1e-15)


def test_one_pair_and_one_parameter():
    algorithm = make(num_params=1, center_init=0.0, population_size=2, weight_decay=0.0)
    population = algorithm.ask()
    algorithm.tell(population, [0.0, 1.0])
    # Adam's first step is the rate, towards the better member.
    expected = 0.3 * np.sign(population.member(1))
    np.testing.assert_allclose(algorithm.center, expected, rtol=1e-6)
    np.testing.assert_array_equal(deviations(algorithm), 2.0)
