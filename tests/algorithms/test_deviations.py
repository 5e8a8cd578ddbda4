"""Deviations that decay, and their bounds, which may be one number per parameter."""

from typing import Any

import numpy as np
import pytest
from searches import P, climb, maker, quadratic, tell

import esbench
from esbench.algorithms.base import ALGORITHMS

DECAYING = [
    name for name in esbench.list_algorithms()
    if "sigma_decay" in ALGORITHMS.get(name).Settings.model_fields
]  # fmt: skip
LOW, HIGH = np.linspace(0.05, 0.18, P), np.linspace(0.21, 0.3, P)


def make(name: str, **settings: Any) -> Any:
    return maker(name, population_size=8)(**settings)


def step(algorithm: Any) -> None:
    population = algorithm.ask()
    tell(algorithm, population, quadratic(population.members()))


@pytest.mark.parametrize("name", DECAYING)
def test_a_generation_is_that_of_a_search_with_this_sigma(name: str) -> None:
    decaying = make(name, sigma=0.5, sigma_decay=0.5, sigma_min=0.1)
    seen = []
    while decaying.generation < 5:
        now = max(0.5 * 0.5**decaying.generation, 0.1)
        constant = make(name, sigma=now)
        constant.load_state_dict(decaying.state_dict())
        assert decaying.sigma == pytest.approx(now, rel=1e-12)
        ours, theirs = decaying.ask(), constant.ask()
        every = range(len(ours))
        np.testing.assert_array_equal(ours.members(every), theirs.members(every))
        step(decaying)
        step(constant)
        np.testing.assert_array_equal(decaying.center, constant.center)
        seen.append(now)
    assert sorted(set(seen)) == [0.1, 0.125, 0.25, 0.5]


@pytest.mark.parametrize("name", ["pgpe", "pepg", "snes", "cem"])
def test_every_deviation_stays_within_its_own_bounds(name: str) -> None:
    faster = {} if name == "cem" else {"sigma_learning_rate": 5.0}
    make = maker(name, sigma=0.2, **faster)
    searches = [
        make(sigma_min=LOW.tolist(), sigma_max=HIGH.tolist()),
        make(sigma_min=[0.15] * P, sigma_max=[0.25] * P),
        make(sigma_min=0.15, sigma_max=0.25),
    ]
    for algorithm in searches:
        climb(algorithm, 30)
    own, equal, one = (algorithm.state_dict()["sigma"] for algorithm in searches)
    assert ((own >= LOW) & (own <= HIGH)).all()
    assert ((own == LOW) | (own == HIGH)).any()
    np.testing.assert_array_equal(equal, one)
    capped = make(sigma_max=LOW.tolist())
    climb(capped, 1)
    assert (capped.state_dict()["sigma"] <= LOW).all()


@pytest.mark.parametrize("name", ["openai_es", "ars", "ns_es"])
def test_a_decay_stops_at_each_parameters_own_minimum(name: str) -> None:
    algorithm = maker(name, sigma=0.4)(sigma_decay=0.5, sigma_min=LOW.tolist())
    climb(algorithm, 2)
    expected = np.sqrt(np.mean(np.maximum(0.1, LOW) ** 2))
    assert algorithm.sigma == pytest.approx(expected, rel=1e-12)
    assert algorithm.ask().members().shape[1] == P
