"""evotorch inside our loop is evotorch alone, and keeps the contract of an algorithm."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from adapter_contract import SIZE, START, AdapterContract, Make, P, resumed, run, sphere

import esbench
from esbench.core.arrays import Matrix
from esbench.core.errors import TrainingError, UsageError
from esbench.core.seeding import noise_key
from esbench.engine.worker_pool import WorkerPool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations in what it imports
    evotorch = pytest.importorskip("evotorch")
    from evotorch import algorithms

    from esbench.integrations import evotorch as plugin

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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_evotorch(
    name: str, *, center_init: Any = START, seed: int = 0, num_params: int = P, **settings: Any
) -> Any:
    return esbench.make_algorithm(
        "evotorch",
        num_params=num_params,
        center_init=center_init,
        seed=seed,
        **{
            "search_algorithm": name,
            "population_size": SIZE,
            "arguments": CASES[name],
            **settings,
        },
    )


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


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("name", CASES)
def test_a_search_is_evotorch_alone_bit_for_bit(name: str, seed: int) -> None:
    evaluated, centers = alone(name, seed, 21)
    algorithm = make_evotorch(name, seed=seed)
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
        def made(**settings: Any) -> Any:
            return make_evotorch(request.param, **settings)

        return made


def test_sigma_is_that_of_the_search() -> None:
    assert make_evotorch("PGPE").sigma == pytest.approx(0.3, rel=1e-15)
    deviations = [0.1 * (i + 1) for i in range(P)]
    search = make_evotorch("SNES", arguments={"stdev_init": deviations})
    assert search.sigma == pytest.approx(np.sqrt(np.mean(np.square(deviations))))
    many = make_evotorch("XNES", population_size=3000)  # of the members: it has a matrix
    assert many.sigma == pytest.approx(0.3, rel=0.02)
    cosyne = make_evotorch("Cosyne", population_size=3000, initial_width=0.6)
    assert cosyne.sigma == pytest.approx(0.6 / np.sqrt(3), rel=0.02)


def test_an_evaluation_is_a_generation() -> None:
    """Cosyne's first step evaluates its first members, then elites, children and permutations."""
    algorithm = make_evotorch("Cosyne")
    sizes = []
    for _ in range(4):
        sizes.append(len(algorithm.ask()))
        run(algorithm, 1)
    assert sizes == [SIZE, 20, 20, 20]
    assert algorithm.state_dict()["sizes"].tolist() == sizes


class LooksTwice(algorithms.SearchAlgorithm):
    """A double that draws and evaluates twice per step, and checks the evaluations."""

    def __init__(self, problem: Any, *, popsize: int) -> None:
        super().__init__(problem)
        self.popsize = popsize

    def _step(self) -> None:
        for _ in range(2):
            batch = evotorch.SolutionBatch(self.problem, self.popsize, empty=True)
            batch.set_values(self.problem.make_gaussian(self.popsize, P))
            self.problem.evaluate(batch)
            assert torch.equal(batch.evals[:, 0], -batch.values.square().sum(dim=1))


def test_equal_returns_within_a_step_keep_its_earlier_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(plugin.search_algorithms(), "LooksTwice", LooksTwice)
    algorithm = make_evotorch("SNES", search_algorithm="LooksTwice", arguments={})
    seen = []
    for generation in range(8):
        population = algorithm.ask()
        seen.append(population.members())
        returns = torch.from_numpy(population.members()).square().sum(dim=1).neg().numpy()
        algorithm.tell(population, returns)
        if generation % 3 != 1:  # within a step as well as between two
            algorithm.tell(algorithm.ask(), np.zeros(SIZE))
    assert algorithm._search.step_count == 4
    assert len(np.unique(np.array(seen))) == 8 * SIZE * P  # no seed is taken up twice


def test_a_replay_that_does_not_reach_the_saved_center_is_an_error() -> None:
    algorithm = make_evotorch("SNES")
    run(algorithm, 3)
    state = copy.deepcopy(algorithm.state_dict())
    state["returns"] *= -1.0
    with pytest.raises(TrainingError, match="3 generations did not arrive at the saved center"):
        make_evotorch("SNES").load_state_dict(state)
    with pytest.raises(TrainingError, match="expected the seed"):
        make_evotorch("SNES", seed=1).load_state_dict(algorithm.state_dict())


def test_the_state_is_the_history_of_returns() -> None:
    algorithm = make_evotorch("PGPE")
    told = []
    for generation in range(4):
        population = algorithm.ask()
        told.append(np.zeros(SIZE) if generation == 2 else sphere(population.members()))
        algorithm.tell(population, told[-1])
    state = algorithm.state_dict()
    assert state["sizes"].tolist() == [SIZE, SIZE, 0, SIZE]
    np.testing.assert_array_equal(state["returns"], np.concatenate(told[:2] + told[3:]))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("PGPE", {"search_algorithm": "PGP"}, "did you mean 'PGPE'"),
        ("PGPE", {"search_algorithm": "PyCMAES"}, "did you mean 'CMAES'"),
        ("SNES", {"arguments": {"stdv_init": 0.1}}, "'stdv_init' .*did you mean 'stdev_init'"),
        ("SNES", {"arguments": {"popsize": 4}}, "set population_size instead"),
        ("SNES", {"arguments": {"distributed": True}}, "no argument 'distributed'"),
        ("SNES", {"arguments": {}}, "evotorch SNES with .*stdev_init"),
        ("PGPE", {"population_size": None}, "evotorch PGPE with .*popsize"),
        ("PGPE", {"population_size": 7}, "evotorch PGPE with .*even number"),
        ("PGPE", {"arguments": {"stdev_init": 1.0}}, "center_learning_rate"),
        ("CEM", {"arguments": {"stdev_init": "a", "parenthood_ratio": 0.5}}, "evotorch CEM with"),
        ("SNES", {"arguments": {"stdev_init": [0.1, -0.2]}}, r"stdev_init = \[0.1, -0.2\]"),
        ("SNES", {"arguments": {"stdev_init": 1.0, "ranking_method": "ns"}}, "mean 'nes'"),
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
