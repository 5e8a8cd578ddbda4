import math

import numpy as np
import pytest
import torch
from searches import centered_ranks, climb, philox

import esbench
from esbench.core.seeding import noise_key

SHAPES = ((5, 4), (5,), (2, 5), (2,))  # a policy of two layers
P, SIZE, SIGMA, RATE = 37, 20, 0.05, 0.03


def fitness(members):
    return -np.sum((members - np.linspace(-0.5, 0.8, P)) ** 2 * np.arange(1, P + 1), axis=1)


def make(name="eggroll", **changes):
    given = {"num_params": P, "shapes": SHAPES, "population_size": SIZE, "center_init": 0.25}
    given |= {"sigma": SIGMA, "learning_rate": RATE} | changes
    return esbench.make_algorithm(name, seed=3, **given)


def dense_noise(seed, generation, rank):
    """Return the perturbations of one generation, E = A B^T / sqrt(r), as one matrix [SIZE, P]."""
    rows = []
    for i in range(SIZE // 2):
        normal = philox(i, noise_key(seed, generation)).standard_normal
        parts = []
        for shape in SHAPES:
            if len(shape) == 1:
                parts.append(normal(shape))
                continue
            r = min(rank, *shape)
            a, b_transposed = normal((shape[0], r)), normal((r, shape[1]))
            parts.append((a @ b_transposed / math.sqrt(r)).reshape(-1))
        rows += [np.concatenate(parts), -np.concatenate(parts)]
    return np.stack(rows)


@pytest.mark.parametrize("rank", [1, 2, 50])
def test_the_center_is_the_papers(rank):
    mu = torch.full((P,), 0.25, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([mu], lr=RATE, maximize=True)
    for t in range(50):
        perturbations = dense_noise(3, t, rank)
        theta = mu.detach().numpy()
        ranks = centered_ranks(fitness(theta + SIGMA * perturbations))
        estimate = sum(f * e for f, e in zip(ranks, perturbations, strict=True)) / SIZE
        mu.grad = torch.from_numpy(estimate - 0.005 * theta)
        adam.step()
    reached = climb(make(rank=rank), 50, fitness)[-1]
    np.testing.assert_allclose(reached, mu.detach().numpy(), rtol=1e-11)
    assert np.abs(reached - 0.25).max() > 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"antithetic": False, "population_size": 7},
        {"optimizer": "clipup", "shaping": "nes", "weight_decay": 0.0},
        {"sigma": None, "radius": 0.4, "learning_rate_decay": 0.9},
    ],
)
@pytest.mark.parametrize("shapes", [None, ((P,),), ((30,), (7,))])
def test_without_matrices_it_is_openai_es(changes, shapes):
    low, full = make(shapes=shapes, **changes), make("openai_es", shapes=shapes, **changes)
    for _ in range(20):
        np.testing.assert_array_equal(low.ask().members(), full.ask().members())
        climb(low, 1, fitness)
        climb(full, 1, fitness)
        np.testing.assert_array_equal(low.center, full.center)
