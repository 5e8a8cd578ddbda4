import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import stats

import esbench
from esbench.seeding import noise_key

SHAPES = ((5, 4), (5,), (2, 5), (2,))  # a policy of two layers
P, SIZE, SIGMA, RATE = 37, 20, 0.05, 0.03
TARGET = np.linspace(-0.5, 0.8, P)


def fitness(members):
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def make(name="eggroll", *, seed=3, **changes):
    given = {"num_params": P, "shapes": SHAPES, "population_size": SIZE, "center_init": 0.25}
    given |= {"sigma": SIGMA, "learning_rate": RATE} | changes
    return esbench.make_algorithm(name, seed=seed, **given)


def run(algorithm, generations, objective=fitness):
    for _ in range(generations):
        population = algorithm.ask()
        algorithm.tell(population, objective(population.members()))
    return algorithm


def dense_noise(seed, generation, rank):
    """Return the perturbations of one generation, E = A B^T / sqrt(r), as one matrix [SIZE, P]."""
    philox = np.random.Philox(key=noise_key(seed, generation))
    rows = []
    for i in range(SIZE // 2):
        normal = np.random.Generator(philox.jumped(i)).standard_normal
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
        ranks = (stats.rankdata(fitness(theta + SIGMA * perturbations)) - 1) / (SIZE - 1) - 0.5
        estimate = sum(f * e for f, e in zip(ranks, perturbations, strict=True)) / SIZE
        mu.grad = torch.from_numpy(estimate - 0.005 * theta)
        adam.step()
    reached = run(make(rank=rank), 50).center
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
        run(low, 1)
        run(full, 1)
        np.testing.assert_array_equal(low.center, full.center)


def matrices(vector, shapes=SHAPES):
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = zip(np.split(vector, ends), shapes, strict=True)
    return [part.reshape(shape[0], -1) for part, shape in parts if len(shape) > 1]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_member_perturbs_a_matrix_by_the_rank(rank):
    algorithm = make(rank=rank)
    population = algorithm.ask()
    for plus, minus in zip(population.members()[0::2], population.members()[1::2], strict=True):
        np.testing.assert_allclose(plus + minus, 0.5, rtol=0, atol=1e-15)  # mirrored about 0.25
        for matrix in matrices((plus - minus) / 2):
            assert np.linalg.matrix_rank(matrix, tol=1e-12) == min(rank, *matrix.shape)


def test_the_update_has_full_rank():
    algorithm = make(optimizer="sgd", weight_decay=0.0)
    start = algorithm.center.copy()
    run(algorithm, 1)
    ranks = [np.linalg.matrix_rank(m, tol=1e-12) for m in matrices(algorithm.center - start)]
    assert ranks == [4, 2]


def test_a_convolution_is_a_matrix_of_its_filters():
    shapes = ((6, 3, 2, 2), (6,))
    algorithm = make(num_params=78, shapes=shapes)
    (kernel,) = matrices(algorithm.ask().member(0) - 0.25, shapes)
    assert kernel.shape == (6, 12)
    assert np.linalg.matrix_rank(kernel, tol=1e-12) == 1


@pytest.mark.parametrize("rank", [1, 4])
def test_one_layer_is_perturbed_with_the_variance_of_full_noise(rank):
    size = 4000
    settings = {"num_params": 20, "population_size": size, "antithetic": False, "sigma": 0.5}
    low = make(shapes=((5, 4),), rank=rank, **settings).ask().members() - 0.25
    full = make("openai_es", shapes=None, **settings).ask().members() - 0.25
    # Five standard errors: E[z^4] is at most 9 for rank 1 and 3 for full noise.
    np.testing.assert_allclose(low.var(axis=0) / 0.25, 1.0, atol=5 * np.sqrt(8 / size))
    np.testing.assert_allclose(full.var(axis=0) / 0.25, 1.0, atol=5 * np.sqrt(2 / size))
    np.testing.assert_allclose(low.mean(axis=0) / 0.5, 0.0, atol=5 / np.sqrt(size))
    correlations = np.corrcoef(low, rowvar=False) - np.eye(20)
    assert np.abs(correlations).max() < 5 * np.sqrt(3 / size)


def test_the_noise_is_another_one_every_generation():
    algorithm = make()
    noise = []
    for _ in range(4):
        population = algorithm.ask()
        noise.append(population.noise.row(0))
        algorithm.tell(population, np.zeros(SIZE))  # nothing moves
    assert np.unique(noise, axis=0).shape == (4, P)


def test_it_climbs_and_a_higher_rank_climbs_as_well():
    for rank, seed in ((1, 0), (1, 1), (4, 0)):
        algorithm = make(rank=rank, seed=seed, weight_decay=0.0)
        start = fitness(algorithm.center[None])[0]
        run(algorithm, 100)
        assert fitness(algorithm.center[None])[0] > start / 10


@pytest.mark.parametrize("shapes", [((1, 1),), ((1,),), ((),)])
def test_one_parameter_and_two_members(shapes):
    algorithm = make(num_params=1, shapes=shapes, population_size=2, weight_decay=0.0)
    run(algorithm, 60, lambda members: -((members[:, 0] - 1.0) ** 2))
    assert algorithm.center == pytest.approx(1.0, abs=0.2)


def test_memory_at_a_million_parameters_is_a_few_vectors():
    shapes = ((1000, 990), (1000,), (9000, 1))
    algorithm = make(num_params=1_000_000, shapes=shapes, optimizer="clipup")
    tracemalloc.start()
    algorithm.tell(algorithm.ask(), np.arange(float(SIZE)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 8_000_000  # bytes; the members are twenty vectors of 8,000,000
