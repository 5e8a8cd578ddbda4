"""evotorch inside our loop is evotorch alone, and keeps the contract of an algorithm."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from adapter_contract import SIZE, START, AdapterContract, Make, P, maker_of, resumed, run

from esbench.core.arrays import Matrix
from esbench.core.errors import TrainingError, UsageError
from esbench.core.one_thread import one_torch_thread
from esbench.core.seeding import noise_key
from esbench.engine.worker_pool import WorkerPool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations in what it imports
    evotorch = pytest.importorskip("evotorch")
    from evotorch import algorithms


CASES: dict[str, dict[str, Any]] = {
    "PGPE": {"center_learning_rate": 0.2, "stdev_learning_rate": 0.1, "stdev_init": 0.3},
    "SNES": {"stdev_init": 0.3},
    "XNES": {"stdev_init": 0.3},
    "CEM": {"stdev_init": 0.3, "parenthood_ratio": 0.5},
    "CMAES": {"stdev_init": 0.3},
    "Cosyne": {"tournament_size": 4, "mutation_stdev": 0.2, "num_elites": 2},
}
GAUSSIAN = ["PGPE", "SNES", "XNES", "CEM"]  # update at the beginning of the step that follows


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Matrices of six numbers are not worth a second thread."""
    with one_torch_thread():
        yield


make_evotorch = maker_of("evotorch", "search_algorithm", CASES)


def rosenbrock(members: Matrix) -> Any:
    return -np.sum(100 * (members[:, 1:] - members[:, :-1] ** 2) ** 2, axis=1) - np.sum(
        (1 - members) ** 2, axis=1
    )


def alone(name: str, seed: int, steps: int) -> tuple[list[Matrix], list[Any]]:
    """Run evotorch by itself: what it evaluated, and its center after every step."""
    evaluated: list[Matrix] = []

    def objective(values: torch.Tensor) -> torch.Tensor:
        evaluated.append(values.numpy().copy())
        return torch.from_numpy(rosenbrock(evaluated[-1]))

    bounds = torch.from_numpy(START - 1.0), torch.from_numpy(START + 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = evotorch.Problem(
            "max", objective, vectorized=True, solution_length=P, dtype="float64",
            initial_bounds=bounds, seed=noise_key(seed, 0) % 2**64,
        )  # fmt: skip
        start = {} if name == "Cosyne" else {"center_init": torch.from_numpy(START)}
        search = getattr(algorithms, name)(problem, popsize=SIZE, **start, **CASES[name])
        centers = []
        for _ in range(steps):
            search.step()
            centers.append(search.status["center"].clone().numpy() if start else None)
    return evaluated, centers


@pytest.mark.parametrize("name", CASES)
def test_a_search_is_evotorch_alone_bit_for_bit(name: str) -> None:
    evaluated, centers = alone(name, 5, 21)
    algorithm = make_evotorch(name, seed=5)
    best = -np.inf
    for generation in range(20):
        population = algorithm.ask()
        members = population.members()
        np.testing.assert_array_equal(members, evaluated[generation])
        returns = rosenbrock(members)
        algorithm.tell(population, returns)
        if name == "Cosyne":
            best = max(best, returns.max())
            assert rosenbrock(algorithm.center[None]) == best
        else:
            expected = centers[generation + (name in GAUSSIAN)]
            np.testing.assert_array_equal(algorithm.center, expected)
    assert not np.array_equal(algorithm.center, START)


class TestContract(AdapterContract):
    @pytest.fixture(params=["PGPE", "XNES", "CMAES", "Cosyne"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        return partial(make_evotorch, request.param)


def test_sigma_is_that_of_the_search() -> None:
    assert make_evotorch("PGPE").sigma == pytest.approx(0.3, rel=1e-15)
    deviations = [0.1 * (i + 1) for i in range(P)]
    search = make_evotorch("SNES", arguments={"stdev_init": deviations})
    assert search.sigma == pytest.approx(np.sqrt(np.mean(np.square(deviations))))
    many = make_evotorch("XNES", population_size=3000)  # of the members: it has a matrix
    assert many.sigma == pytest.approx(0.3, rel=0.02)
    cosyne = make_evotorch("Cosyne", population_size=3000, initial_width=0.6)
    assert cosyne.sigma == pytest.approx(0.6 / np.sqrt(3), rel=0.02)


def test_a_replay_that_does_not_reach_the_saved_center_is_an_error() -> None:
    algorithm = make_evotorch("SNES")
    run(algorithm, 3)
    state = copy.deepcopy(algorithm.state_dict())
    state["returns"] *= -1.0
    with pytest.raises(TrainingError, match="3 generations did not arrive at the saved center"):
        make_evotorch("SNES").load_state_dict(state)
    with pytest.raises(TrainingError, match="expected the seed"):
        make_evotorch("SNES", seed=1).load_state_dict(algorithm.state_dict())


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("PGPE", {"search_algorithm": "PGP"}, "did you mean 'PGPE'"),
        ("SNES", {"arguments": {"stdv_init": 0.1}}, "'stdv_init' .*did you mean 'stdev_init'"),
        ("SNES", {"arguments": {"popsize": 4}}, "set population_size instead"),
        ("PGPE", {"population_size": 7}, "evotorch PGPE with .*even number"),
        ("PGPE", {"arguments": {"stdev_init": 1.0}}, "center_learning_rate"),
        ("SNES", {"arguments": {"stdev_init": [0.1, -0.2]}}, r"stdev_init = \[0.1, -0.2\]"),
    ],
)
def test_a_bad_setting_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_evotorch(name, **settings)


def test_a_resumed_trial_equals_an_uninterrupted_one(make_spec: Any, pool: WorkerPool) -> None:
    settings = {
        "algorithm": "evotorch",
        "search_algorithm": "Cosyne",
        "population_size": 8,
        "arguments": CASES["Cosyne"],
        "initial_width": 0.5,
    }
    history = resumed(make_spec(algorithms={"theirs": settings}), pool)
    assert {record.population_size for record in history} == {8, 14}
