"""What tests of algorithms share: a quadratic, and short searches on it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import safetensors.numpy
from scipy import stats

import esbench
from esbench.core.arrays import with_arrays, without_arrays
from esbench.environments.functions import rotation

P, SIZE = 7, 20
START = np.linspace(0.5, -0.9, P)
TARGET = np.linspace(-0.5, 0.8, P)

Function = Callable[[Any], Any]


def quadratic(members: Any) -> Any:
    """Return values that are distinct with probability 1."""
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def tilted(members: Any) -> Any:
    """Return a quadratic whose axes are not the coordinates."""
    turned = (members - TARGET) @ rotation(P).T
    return -np.sum(turned**2 * np.arange(1, P + 1), axis=1)


def maker(name: str, /, **fixed: Any) -> Callable[..., Any]:
    """Return a function that makes an algorithm of P parameters with SIZE members at START."""

    def make(**given: Any) -> Any:
        settings: dict[str, Any] = {
            "num_params": P,
            "seed": 3,
            "center_init": START,
            "population_size": SIZE,
        }
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
    """Run some generations; return the center after each, [updates, P]."""
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


def deviations(algorithm: Any) -> Any:
    """Return the standard deviation of each parameter, [P]."""
    return algorithm.state_dict()["sigma"]


def signed_noise(population: Any) -> Any:
    """Return the z of every member, [N, P]."""
    rows = [population.noise.row(population.row(i)) for i in range(len(population))]
    return np.array([population.sign(i) * row for i, row in enumerate(rows)])


def centered_ranks(returns: Any) -> Any:
    """Return the ranks [N], from -0.5 to 0.5."""
    return (stats.rankdata(returns) - 1) / (len(returns) - 1) - 0.5


def philox(row: int, key: int) -> np.random.Generator:
    """Return the generator 2**128 * row draws into the key's stream."""
    return np.random.Generator(np.random.Philox(key=key).jumped(row))


def dense_noise(key: int, size: int, num_params: int, antithetic: bool = True) -> Any:
    """Return the signed Gaussian noise of every member, [N, P], drawn by NumPy alone."""
    rows = [philox(row, key).standard_normal(num_params) for row in range(size)]
    if antithetic:
        rows = [sign * row for row in rows[: size // 2] for sign in (1.0, -1.0)]
    return np.stack(rows)


def arrays_in(state: dict[str, Any]) -> Iterator[Any]:
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


def printed_with_one_and_two_threads(script: str) -> tuple[bytes, bytes]:
    """Return the output of a script in a process with one BLAS thread, and in one with two."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
        )
        for threads in ("1", "2")
    ]
    one, two = (process.communicate()[0] for process in processes)
    return one, two
