"""What tests of algorithms share: a quadratic, and short searches on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import safetensors.numpy

import esbench
from esbench.files import with_arrays, without_arrays

P, SIZE = 7, 20
START = np.linspace(0.5, -0.9, P)
TARGET = np.linspace(-0.5, 0.8, P)

Function = Callable[[Any], Any]


def quadratic(members: Any) -> Any:
    """Return values that are distinct with probability 1."""
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def maker(name: str, /, **fixed: Any) -> Callable[..., Any]:
    """Return a function that makes an algorithm of P parameters with SIZE members at START."""

    def make(**given: Any) -> Any:
        settings = {"num_params": P, "seed": 3, "center_init": START, "population_size": SIZE}
        settings |= fixed | given
        if isinstance(settings.get("sigma"), np.ndarray):
            settings["sigma"] = settings["sigma"].tolist()
        return esbench.make_algorithm(name, **settings)

    return make


def answer(algorithm: Any, function: Function = quadratic) -> Any:
    """Answer what the algorithm asks between generations; return the generation's population."""
    while (population := algorithm.ask()) and algorithm.plan.probe:
        tell(algorithm, population, function(population.members()))
    return population


def tell(algorithm: Any, population: Any, returns: Any) -> None:
    """Tell returns; the behavior of a member is where it lies in the first two dimensions."""
    algorithm.tell(population, returns, population.members()[:, :2])


def climb(algorithm: Any, updates: int, function: Function = quadratic) -> Any:
    """Run some generations; return the centre after each, [updates, P]."""
    centers = []
    for _ in range(updates):
        population = answer(algorithm, function)
        tell(algorithm, population, function(population.members()))
        centers.append(algorithm.center.copy())
    return np.array(centers)


def told(algorithm: Any, returns: Any) -> dict[str, Any]:
    """Return the state of a search after an update with the returns of one generation."""
    tell(algorithm, answer(algorithm), np.array(returns))
    state: dict[str, Any] = algorithm.state_dict()
    return state


def best(
    name: str, function: Function, num_params: int, evaluations: int, seed: int, **given: Any
) -> float:
    """Return the lowest value of the centre in a minimisation that starts at 1."""
    algorithm = esbench.make_algorithm(
        name, num_params=num_params, seed=seed, center_init=1.0, **given
    )
    updates = evaluations // algorithm.population_size
    centers = climb(algorithm, updates, lambda members: -function(members))
    return float(np.min(function(centers)))


def deviations(algorithm: Any) -> Any:
    """Return the standard deviation of each parameter, [P]."""
    return algorithm.state_dict()["sigma"]


def signed_noise(population: Any) -> Any:
    """Return the z of every member, [N, P]."""
    rows = [population.noise.row(population.row(i)) for i in range(len(population))]
    return np.array([population.sign(i) * row for i, row in enumerate(rows)])


def arrays_in(state: dict[str, Any]) -> Iterator[Any]:
    """Yield the arrays of a state."""
    for value in state.values():
        if isinstance(value, dict):
            yield from arrays_in(value)
        elif isinstance(value, np.ndarray):
            yield value


def written(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint."""
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(state, arrays)))
    loaded = safetensors.numpy.load(safetensors.numpy.save(arrays))
    read: dict[str, Any] = with_arrays(plain, loaded)
    return read


def assert_same(one: Any, two: Any) -> None:
    """Compare two states, NaN and types included."""
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    else:
        np.testing.assert_array_equal(one, two)
        assert np.asarray(one).dtype == np.asarray(two).dtype
