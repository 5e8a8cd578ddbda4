import numpy as np
import pytest
from searches import START, P
from searches import quadratic as fitness

import esbench

VERSIONS = {"V1": False, "V2": True, "V1-t": False, "V2-t": True}


def make(**given):
    given = {"num_params": P, "seed": 3, "center_init": START, **given}
    return esbench.make_algorithm("ars", **given)


def paper_step(m, deltas, plus, minus, *, b, alpha):
    """Mania et al. 2018, algorithm 2, lines 6 and 7."""
    order = sorted(range(len(deltas)), key=lambda k: max(plus[k], minus[k]), reverse=True)[:b]
    sigma_r = np.std([plus[k] for k in order] + [minus[k] for k in order])
    total = np.zeros(len(m))
    for k in order:
        total += (plus[k] - minus[k]) * deltas[k]
    return m + alpha / (b * sigma_r) * total


@pytest.mark.parametrize(("n", "b"), [(1, 1), (8, 8), (8, 4), (32, 1), (32, 5)])
@pytest.mark.parametrize("decay", [1.0, 0.98])
def test_a_hundred_updates_are_the_papers(n, b, decay):
    nu, alpha = 0.03, 0.02
    algorithm = make(
        num_pairs=n, num_best=b, sigma=nu, learning_rate=alpha, learning_rate_decay=decay
    )
    m = START
    for j in range(100):
        population = algorithm.ask()
        deltas = [population.noise.row(k) for k in range(n)]
        plus = fitness(np.array([m + nu * delta for delta in deltas]))
        minus = fitness(np.array([m - nu * delta for delta in deltas]))
        m = paper_step(m, deltas, plus, minus, b=b, alpha=alpha * decay**j)
        algorithm.tell(population, fitness(population.members()))
        np.testing.assert_allclose(algorithm.center, m, rtol=1e-9, atol=1e-11)
    assert np.abs(m - START).max() > 0.1


@pytest.mark.parametrize(("version", "normalizes"), VERSIONS.items())
def test_the_second_versions_normalize_observations(make_spec, version, normalizes):
    given = {"version": version, "num_pairs": 4, "num_best": 4}
    spec = make_spec(algorithms={"ars": given}, policy={"normalize_observations": not normalizes})
    assert spec.policy.settings.normalize_observations is normalizes


@pytest.mark.parametrize(
    ("growth", "num_best", "kept"), [(8, 3, 3), (16, 3, 6), (20, 3, 7), (24, None, 24), (9, 8, 9)]
)
def test_in_a_grown_population_the_same_part_is_kept(growth, num_best, kept):
    algorithm = make(num_pairs=8, num_best=num_best)
    population = algorithm.ask().extended(2 * growth)
    returns = fitness(population.members())
    algorithm.tell(population, returns)
    deltas = [population.noise.row(k) for k in range(growth)]
    expected = paper_step(START, deltas, returns[0::2], returns[1::2], b=kept, alpha=0.02)
    np.testing.assert_allclose(algorithm.center, expected, rtol=1e-12)


@pytest.mark.parametrize(("num_best", "kept"), [(1, [2]), (2, [2, 0]), (3, [2, 0, 1])])
def test_the_earlier_of_tied_pairs_is_kept(num_best, kept):
    pairs = np.array([[1.0, 5.0], [5.0, 2.0], [9.0, 0.0], [3.0, 5.0]])
    algorithm = make(num_pairs=4, num_best=num_best)
    deltas = [algorithm.ask().noise.row(k) for k in kept]
    algorithm.tell(algorithm.ask(), pairs.ravel())
    expected = paper_step(START, deltas, *pairs[kept].T, b=num_best, alpha=0.02)
    np.testing.assert_allclose(algorithm.center, expected, rtol=1e-12)
