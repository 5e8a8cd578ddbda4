"""A deviation that decays: each generation is that of a search with this constant deviation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from searches import P, maker, quadratic, tell
from watchers import run

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import Trial

DECAYING = [
    name for name in esbench.list_algorithms()
    if "sigma_decay" in ALGORITHMS.get(name).Settings.model_fields
]  # fmt: skip


def make(name: str, **settings: Any) -> Any:
    return maker(name, population_size=8)(**settings)


def step(algorithm: Any) -> None:
    population = algorithm.ask()
    tell(algorithm, population, quadratic(population.members()))


def test_those_that_do_not_learn_the_deviation_have_it() -> None:
    assert DECAYING == ["ars", "eggroll", "ns_es", "nsr_es", "nsra_es", "openai_es"]


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


@pytest.mark.parametrize("name", ["openai_es", "ars", "nsra_es"])
def test_each_parameter_has_its_own(name: str) -> None:
    sigma = np.linspace(0.1, 0.6, P)
    algorithm = make(name, sigma=sigma.tolist(), sigma_decay=0.5, sigma_min=0.06)
    noise = make(name, sigma=1.0)
    while algorithm.generation < 3 or algorithm.plan.probe:
        step(algorithm)
    noise.load_state_dict(algorithm.state_dict())
    members = algorithm.ask().members(range(8)) - algorithm.ask().center
    expected = np.maximum(0.5**3 * sigma, 0.06)
    units = noise.ask().members(range(8)) - noise.ask().center
    np.testing.assert_allclose(members, expected * units, rtol=1e-6, atol=1e-9)
    assert algorithm.sigma == pytest.approx(np.sqrt(np.mean(expected**2)))


def test_the_rows_of_a_trial_say_it(make_trial: Callable[..., Trial], pool: WorkerPool) -> None:
    trial = make_trial(settings={"sigma": 0.2, "sigma_decay": 0.5, "sigma_min": 0.08})
    run(pool, trial)
    sigmas = [row["sigma"] for row in trial.folder.rows()]
    assert sigmas[:3] == pytest.approx([0.1, 0.08, 0.08])  # after the update
