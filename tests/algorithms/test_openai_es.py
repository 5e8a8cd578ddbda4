import math

import numpy as np
import pytest
import torch
from scipy import stats

import esbench
from esbench.algorithms.shaping import SHAPINGS
from esbench.seeding import noise_key

P, SIZE, SIGMA, RATE = 7, 20, 0.05, 0.03
TARGET = np.linspace(-0.5, 0.8, P)


def fitness(members):
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def centered_ranks(returns):
    return (stats.rankdata(returns) - 1) / (len(returns) - 1) - 0.5


def dense_noise(seed, generation, antithetic):
    """Return the noise of one generation, [SIZE, P], as one matrix."""
    philox = np.random.Philox(key=noise_key(seed, generation))
    rows = np.stack([np.random.Generator(philox.jumped(i)).standard_normal(P) for i in range(SIZE)])
    if not antithetic:
        return rows
    mirrored = np.empty_like(rows)
    mirrored[0::2], mirrored[1::2] = rows[: SIZE // 2], -rows[: SIZE // 2]
    return mirrored


def paper(updates, climb, *, seed=3, antithetic=True, shape=centered_ranks, weight_decay=0.005):
    """Salimans et al. 2017, algorithm 1 with sections 2.1's additions: the last theta."""
    theta = np.full(P, 0.25)
    for t in range(updates):
        epsilon = dense_noise(seed, t, antithetic)
        utilities = shape(fitness(theta + SIGMA * epsilon))
        gradient = epsilon.T @ utilities / SIZE - weight_decay * theta
        theta = climb(theta, gradient)
    return theta


def torch_climb(cls=torch.optim.Adam, **settings):
    parameter = torch.nn.Parameter(torch.zeros(P, dtype=torch.float64))
    optimizer = cls([parameter], lr=RATE, maximize=True, **settings)

    def climb(theta, gradient):
        parameter.data = torch.from_numpy(theta.copy())
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        return parameter.detach().numpy().copy()

    return climb


def adam_climb(beta1=0.9, beta2=0.999, eps=1e-8):
    """Kingma & Ba 2015, algorithm 1, upwards."""
    m, v, t = np.zeros(P), np.zeros(P), 0

    def climb(theta, gradient):
        nonlocal m, v, t
        t += 1
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        return theta + RATE * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)

    return climb


def clipup_climb(momentum=0.9, max_speed=2 * RATE):
    velocity = np.zeros(P)

    def climb(theta, gradient):
        nonlocal velocity
        velocity = momentum * velocity + RATE * gradient / np.linalg.norm(gradient)
        velocity *= min(1.0, max_speed / np.linalg.norm(velocity))
        return theta + velocity

    return climb


def esbench_center(updates, *, seed=3, **settings):
    algorithm = esbench.make_algorithm(
        "openai_es",
        num_params=P,
        seed=seed,
        center_init=0.25,
        population_size=SIZE,
        sigma=SIGMA,
        learning_rate=RATE,
        **settings,
    )
    for _ in range(updates):
        population = algorithm.ask()
        algorithm.tell(population, fitness(population.members()))
    return algorithm.center


@pytest.mark.parametrize("updates", [1, 100])
@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("climb", [torch_climb, adam_climb])
def test_the_center_is_the_papers(updates, antithetic, climb):
    expected = paper(updates, climb(), antithetic=antithetic)
    reached = esbench_center(updates, antithetic=antithetic)
    np.testing.assert_allclose(reached, expected, rtol=1e-12)
    assert not np.allclose(reached, 0.25, atol=1e-3)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_weight_decay_acts_on_the_estimate(weight_decay):
    expected = paper(30, torch_climb(), weight_decay=weight_decay)
    np.testing.assert_allclose(esbench_center(30, weight_decay=weight_decay), expected, rtol=1e-12)


def z_scores(returns):
    return stats.zscore(returns, ddof=0)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", lambda returns: (stats.rankdata(returns) - 1) / (len(returns) - 1)),
        ("normalized", z_scores),
        ("raw", lambda returns: returns),
        ("nes", SHAPINGS["nes"]),  # compared with the paper in test_shaping.py
    ],
)
def test_other_shapings(name, shape):
    # SGD, because Adam does not see the scale of a shaping.
    expected = paper(20, torch_climb(torch.optim.SGD), shape=shape)
    reached = esbench_center(20, shaping=name, optimizer="sgd")
    np.testing.assert_allclose(reached, expected, rtol=1e-11)


def test_other_optimizers():
    expected = paper(50, torch_climb(torch.optim.SGD, momentum=0.9))
    reached = esbench_center(50, optimizer="sgd", optimizer_settings={"momentum": 0.9})
    np.testing.assert_allclose(reached, expected, rtol=1e-12)
    reached = esbench_center(50, optimizer="clipup")
    np.testing.assert_allclose(reached, paper(50, clipup_climb()), rtol=1e-11)
    settings = {"momentum": 0.5, "max_speed": 0.04}
    reached = esbench_center(50, optimizer="clipup", optimizer_settings=settings)
    np.testing.assert_allclose(reached, paper(50, clipup_climb(0.5, 0.04)), rtol=1e-11)


def test_another_seed_is_another_run():
    np.testing.assert_allclose(esbench_center(5, seed=4), paper(5, torch_climb(), seed=4))
    assert not np.allclose(esbench_center(5, seed=4), paper(5, torch_climb(), seed=3))


def test_the_estimate_averages_over_an_extended_population():
    algorithm = esbench.make_algorithm(
        "openai_es",
        num_params=P,
        population_size=4,
        learning_rate=RATE,
        weight_decay=0.0,
        optimizer="sgd",
    )
    population = algorithm.ask().extended(SIZE)
    returns = np.random.default_rng(0).standard_normal(SIZE)
    algorithm.tell(population, returns)
    noise = (population.members() - population.center) / population.sigma
    expected = RATE * noise.T @ centered_ranks(returns) / SIZE
    np.testing.assert_allclose(algorithm.center, expected, rtol=1e-9)


def test_an_odd_population_without_pairs_is_fine():
    algorithm = esbench.make_algorithm(
        "openai_es", num_params=P, population_size=7, antithetic=False
    )
    assert len(algorithm.ask()) == 7
    assert algorithm.sigma == algorithm.settings.sigma == 0.02


def test_a_deviation_for_each_parameter():
    sigma = np.linspace(0.1, 0.7, P)
    algorithm = esbench.make_algorithm("openai_es", num_params=P, sigma=sigma.tolist())
    assert algorithm.sigma == pytest.approx(math.sqrt(np.mean(sigma**2)))
    one = esbench.make_algorithm("openai_es", num_params=P, sigma=1.0)
    members, unit = (a.ask().members() for a in (algorithm, one))
    np.testing.assert_allclose(members, sigma * unit, rtol=1e-12)


def test_a_radius_is_the_expected_distance_of_a_member():
    algorithm = esbench.make_algorithm("openai_es", num_params=10_000, radius=3.0)
    assert algorithm.sigma == 0.03
    distances = np.linalg.norm(algorithm.ask().members(range(8)), axis=1)
    np.testing.assert_allclose(distances, 3.0, rtol=0.05)


def test_center_init_is_where_it_starts():
    for center in (0.5, list(range(P))):
        algorithm = esbench.make_algorithm("openai_es", num_params=P, center_init=center)
        np.testing.assert_array_equal(algorithm.center, np.broadcast_to(center, P))


@pytest.mark.parametrize("optimizer", ["sgd", "clipup"])
def test_the_learning_rate_decays_by_generation(optimizer):
    settings = {"optimizer": optimizer, "optimizer_settings": {"momentum": 0.0}}
    settings |= {"weight_decay": 0.0, "population_size": 6}
    constant, decaying = (
        esbench.make_algorithm("openai_es", num_params=P, learning_rate_decay=decay, **settings)
        for decay in (1.0, 0.5)
    )
    for generation in range(4):
        steps = []
        for algorithm in (constant, decaying):
            before = algorithm.center.copy()
            algorithm.tell(algorithm.ask(), [1, 5, 3, 2, 6, 4])
            steps.append(algorithm.center - before)
        np.testing.assert_allclose(steps[1], 0.5**generation * steps[0], rtol=1e-9)
