"""Every algorithm on every test function; CartPole is in test_learns_cartpole.py."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import esbench
from esbench.environments.functions import FUNCTIONS
from esbench.grids.grid_file import read_grid

P, EVALUATIONS, SEEDS = 5, 2_000, range(2)
SETTINGS = read_grid("functions")[0]["algorithms"]

# What the worst of the seeds reaches with the settings of the grid ``functions``, from a standard
# normal start: about three times what was measured.
QUADRATIC = "sphere", "ellipsoid", "rotated_ellipsoid"
WORST: dict[str, tuple[float, float, float]] = {
    "ars": (1e-7, 400, 300),
    "cem": (2e-3, 400, 700),
    "cma_es": (1e-20, 1e-11, 2e-10),
    "csa_es": (1e-18, 6e3, 4e3),
    "eggroll": (4e-4, 1e3, 2.5e3),
    "genetic": (0.01, 300, 100),
    "nsr_es": (1.5, 1.5e5, 7e4),
    "nsra_es": (0.02, 5e3, 4e3),
    "openai_es": (4e-4, 1e3, 2.5e3),
    "pepg": (3e-4, 400, 4e3),
    "pgpe": (0.03, 4e3, 1.6e4),
    "random_search": (2, 1.5e4, 2.5e3),
    "sep_cma_es": (1e-22, 1e-14, 500),
    "snes": (1e-14, 1e-9, 700),
    "xnes": (1e-8, 1e-4, 1e-4),
}


@cache
def reached(name: str, function: str, num_params: int = P) -> list[float]:
    """Return the values of the last centers of all seeds."""
    values = []
    for seed in SEEDS:
        start = np.random.default_rng(seed).standard_normal(num_params)
        algorithm = esbench.make_algorithm(
            name, num_params=num_params, seed=seed, center_init=start, **SETTINGS[name]
        )
        evaluations = 0
        while evaluations < EVALUATIONS:
            population = algorithm.ask()
            members = population.members()
            algorithm.tell(population, -FUNCTIONS[function](members), members)
            evaluations += len(population)
        values.append(float(FUNCTIONS[function](algorithm.center)))
    return values


def test_the_grid_of_functions_has_every_algorithm() -> None:
    assert set(SETTINGS) == {*WORST, "ns_es"}


@pytest.mark.parametrize("function", QUADRATIC)
@pytest.mark.parametrize("name", WORST)
def test_the_worst_seed_reaches_a_known_value(name: str, function: str) -> None:
    assert max(reached(name, function)) < WORST[name][QUADRATIC.index(function)]


@pytest.mark.parametrize("name", sorted({*WORST} - {"random_search"}))
def test_every_algorithm_beats_random_search(name: str) -> None:
    """In ten dimensions; in fewer, random search is lucky."""
    assert max(reached(name, "sphere", 10)) < min(reached("random_search", "sphere", 10))


@pytest.mark.parametrize("full", ["xnes", "cma_es"])
@pytest.mark.parametrize("separable", ["snes", "sep_cma_es", "cem", "pgpe", "pepg"])
def test_a_full_covariance_beats_a_separable_one(full: str, separable: str) -> None:
    values = (reached(name, "rotated_ellipsoid") for name in (full, separable))
    full_values, separable_values = values
    assert max(full_values) < 1e-3 * min(separable_values)


@pytest.mark.parametrize("name", sorted({*WORST} - {"random_search"}))
def test_default_settings_come_ten_times_nearer_in_40_000_evaluations(name: str) -> None:
    """On a shifted sphere in ten dimensions."""
    goal = np.random.default_rng(0).standard_normal(10)
    algorithm, evaluations = esbench.make_algorithm(name, num_params=10), 0
    while np.linalg.norm(algorithm.center - goal) >= np.linalg.norm(goal) / 10:
        assert evaluations < 40_000
        population = algorithm.ask()
        members = population.members()
        algorithm.tell(population, -np.sum((members - goal) ** 2, axis=1), members)
        evaluations += len(population)


def test_novelty_alone_does_not_look_at_the_function() -> None:
    start = [np.random.default_rng(seed).standard_normal(P) for seed in SEEDS]
    before = FUNCTIONS["rotated_ellipsoid"](np.array(start))
    assert np.median(reached("ns_es", "rotated_ellipsoid")) > np.median(before)
