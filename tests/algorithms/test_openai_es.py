import numpy as np
import pytest
import torch
from scipy import stats
from searches import SIZE, P, centered_ranks, climb, dense_noise, maker
from searches import quadratic as fitness

import esbench
from esbench.algorithms.shaping import SHAPINGS
from esbench.core.seeding import noise_key

SIGMA, RATE = 0.05, 0.03


def paper(updates, ascend, *, seed=3, antithetic=True, shape=centered_ranks, weight_decay=0.005):
    """Salimans et al. 2017, algorithm 1 with sections 2.1's additions: the last theta."""
    theta = np.full(P, 0.25)
    for t in range(updates):
        epsilon = dense_noise(noise_key(seed, t), SIZE, P, antithetic)
        utilities = shape(fitness(theta + SIGMA * epsilon))
        gradient = epsilon.T @ utilities / SIZE - weight_decay * theta
        theta = ascend(theta, gradient)
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


def esbench_center(updates, **settings):
    make = maker("openai_es", center_init=0.25, sigma=SIGMA, learning_rate=RATE)
    return climb(make(**settings), updates)[-1]


@pytest.mark.parametrize(
    ("updates", "given"),
    [
        (100, {"antithetic": True}),
        (100, {"antithetic": False}),
        (30, {"weight_decay": 0.0}),
        (30, {"weight_decay": 0.1}),
    ],
)
def test_the_center_is_the_papers(updates, given):
    expected = paper(updates, torch_climb(), **given)
    reached = esbench_center(updates, **given)
    np.testing.assert_allclose(reached, expected, rtol=1e-12)
    assert not np.allclose(reached, 0.25, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", lambda returns: (stats.rankdata(returns) - 1) / (len(returns) - 1)),
        ("normalized", stats.zscore),
        ("raw", lambda returns: returns),
        ("nes", SHAPINGS["nes"]),  # compared with the paper in test_shaping.py
    ],
)
def test_shapings_weight_the_gradient_as_published(name, shape):
    # SGD, because Adam does not see the scale of a shaping.
    expected = paper(20, torch_climb(torch.optim.SGD), shape=shape)
    reached = esbench_center(20, shaping=name, optimizer="sgd")
    np.testing.assert_allclose(reached, expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["openai_es", "eggroll"])
@pytest.mark.parametrize("shaping", ["raw", "linear", "centered"])
def test_without_pairs_a_large_mean_return_does_not_hide_the_gradient(name, shaping):
    slope, cosines = np.linspace(1.0, 2.0, 50), []
    settings = {"sigma": 0.1, "population_size": 64, "antithetic": False, "optimizer": "sgd"}
    for seed in range(10):
        algorithm = esbench.make_algorithm(
            name, num_params=50, seed=seed, center_init=0.0, shaping=shaping, **settings
        )
        population = algorithm.ask()
        algorithm.tell(population, 1000.0 + population.members() @ slope)
        step = algorithm.center
        cosines.append(step @ slope / np.linalg.norm(step) / np.linalg.norm(slope))
    assert np.mean(cosines) > 0.6
