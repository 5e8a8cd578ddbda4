from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from command_line import finished
from gymnasium.utils.env_checker import check_env

from esbench.environments.functions import (
    FUNCTIONS,
    ellipsoid,
    optimum,
    rastrigin,
    rosenbrock,
    rotation,
    shift,
    sphere,
)
from esbench.environments.make_environment import make_environment
from esbench.environments.registration import FUNCTION_ENVIRONMENTS as ENVIRONMENTS
from esbench.environments.registration import roms
from esbench.grids.environment_files import environment_kind, environment_names

SPHERE, NOISY = "esbench/Sphere-v0", "esbench/NoisySphere-v0"
by_name = pytest.mark.parametrize("name", FUNCTIONS)
by_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def points(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2.0, size=shape)


def play(name: str, point: Any, seed: int = 0, **kwargs: Any) -> float:
    """Return the reward of a point."""
    env = make_environment(name, kwargs)
    env.reset(seed=seed)
    reward = env.step(np.asarray(point, dtype=np.float64))[1]
    env.close()
    return float(reward)


@pytest.mark.parametrize(
    ("function", "point", "value"),
    [
        (sphere, [3.0, -4.0], 25.0),
        (ellipsoid, [3.0, 2.0], 9.0 + 4e6),
        (ellipsoid, [1.0, 1.0, 1.0], 1.0 + 1e3 + 1e6),
        (ellipsoid, [3.0], 9.0),
        (rosenbrock, [-1.2, 1.0], 24.2),  # where Rosenbrock (1960) starts
        (rosenbrock, [0.0, 0.0, 0.0], 2.0),
        (rosenbrock, [2.0, 3.0, 5.0], 100.0 + 1.0 + 1600.0 + 4.0),
        (rastrigin, [1.0, -2.0], 5.0),  # whole coordinates: the waves are at rest
        (rastrigin, [0.5], 20.25),
        (rastrigin, [0.25, 0.0], 10.0625),
    ],
)
def test_values_by_hand(
    function: Callable[[Any], np.ndarray], point: list[float], value: float
) -> None:
    assert function(point) == pytest.approx(value, rel=1e-12)


@by_name
def test_a_function_is_zero_at_its_optimum_and_positive_elsewhere(name: str) -> None:
    for dimension in (2, 10):
        best = optimum(name, dimension)
        assert FUNCTIONS[name](best) == 0.0
        near = best + 1e-6 * points(200, dimension)
        assert (FUNCTIONS[name](near) > 0).all()
        assert (FUNCTIONS[name](points(200, dimension)) > 0).all()


@by_name
def test_a_batch_of_points_has_the_values_of_its_points(name: str) -> None:
    batch = points(2, 3, 5)
    values = FUNCTIONS[name](batch)
    assert (values.shape, values.dtype) == ((2, 3), np.float64)
    expected = [[float(FUNCTIONS[name](point)) for point in row] for row in batch]
    np.testing.assert_allclose(values, expected, rtol=1e-13)


def test_the_rotation_is_the_same_on_every_machine_and_mixes_all_coordinates() -> None:
    matrix = rotation(10)
    assert (np.abs(matrix) > 1e-4).all()
    first = [0.26454211, 0.22746802, 0.14755949]
    np.testing.assert_allclose(matrix[0, :3], first, rtol=0, atol=1e-8)


def test_the_shift_is_within_2_and_has_the_same_first_coordinates_in_all_dimensions() -> None:
    np.testing.assert_allclose(shift(3), [0.472135955, -1.05572809, 1.416407865], atol=1e-9)
    np.testing.assert_array_equal(shift(100)[:10], shift(10))
    assert (np.abs(shift(100)) <= 2).all()
    assert len(set(shift(100))) == 100


def test_every_function_environment_has_a_file_and_the_kind_function() -> None:
    assert set(ENVIRONMENTS) == {
        name for name in environment_names() if environment_kind(name) == "function"
    }


@by_environment
# A point has no bounds.
@pytest.mark.filterwarnings("ignore:.*Box (action|observation) space")
def test_gymnasiums_checker_finds_no_fault(name: str) -> None:
    check_env(gymnasium.make(name, disable_env_checker=True).unwrapped)


@by_environment
def test_a_reward_is_minus_the_function_about_the_shift(name: str) -> None:
    function = ENVIRONMENTS[name]["function"]
    for dimension in (2, 10):
        kwargs = {"dimension": dimension, "noise": 0.0}
        best = play(name, shift(dimension), **kwargs)
        assert -1e-28 < best <= 0
        assert str(best) != "-0.0"
        for offset in points(5, dimension):
            value = FUNCTIONS[function](optimum(function, dimension) + offset)
            reward = play(name, shift(dimension) + offset, **kwargs)
            assert reward == pytest.approx(-float(value), rel=1e-9)


def test_noise_depends_on_the_seed_and_has_its_standard_deviation() -> None:
    assert play(NOISY, np.zeros(10), seed=3) == play(NOISY, np.zeros(10), seed=3)
    assert play(NOISY, np.zeros(10), seed=3) != play(NOISY, np.zeros(10), seed=4)
    clean = play(SPHERE, np.zeros(10))
    assert clean == play(NOISY, np.zeros(10), noise=0.0) == play(NOISY, np.zeros(10), noise=0)
    for noise in (1.0, 0.25):
        env = make_environment(NOISY, {"noise": noise})
        rewards = []
        for seed in range(2000):
            env.reset(seed=seed)
            rewards.append(env.step(np.zeros(10))[1])
        assert np.mean(rewards) == pytest.approx(clean, abs=4 * noise / math.sqrt(2000))
        assert np.std(rewards) == pytest.approx(noise, rel=0.1)


def test_gymnasium_finds_them_by_the_name_of_the_package() -> None:
    """In a process that imports Gymnasium only; nothing slow is imported before it is needed."""
    program = (
        "import sys, gymnasium; make = gymnasium.make; "
        "print(make('esbench:esbench/Sphere-v0').action_space.shape); "
        "print(sum(name.startswith('esbench/') for name in gymnasium.registry)); "
        "print([name for name in ('torch', 'scipy', 'ale_py', 'mujoco') if name in sys.modules]); "
        "print(make('esbench/Pong-ram-v5').observation_space.shape)"
    )
    code, out, err = finished("-W", "ignore", "-c", program)
    assert code == 0, err
    assert out.splitlines() == ["(10,)", str(6 + 3 * len(roms())), "[]", "(128,)"]
