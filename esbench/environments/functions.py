"""Test functions of optimization, as NumPy functions and as Gymnasium environments of one step.

The ``FUNCTIONS`` are to be minimized and are 0 at their optimum. They map points [..., P] to values
[...]. In an environment such as ``esbench/Sphere-v0``, the action is the point and the reward is
minus the function. Its optimum is ``shift(P)``, which is neither the origin, where weight decay
pulls, nor the start of a policy.

The formulas are those of Hansen, Finck, Ros & Auger 2009, "Real-Parameter Black-Box Optimization
Benchmarking 2009: Noiseless Functions Definitions" (BBOB, INRIA RR-6829), without the oscillation,
asymmetry and conditioning that BBOB applies to the coordinates of some functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, require_finite, require_integer, unknown
from esbench.core.flat_spaces import MOST_NUMBERS
from esbench.core.noise import GaussianNoise

Function: TypeAlias = Callable[[npt.ArrayLike], Vector]

CONDITION: Final = 1e6
DIMENSION: Final = 10
ROTATION_KEY: Final = 20090101  # of the Philox stream for the rotations
GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0


def sphere(points: npt.ArrayLike) -> Vector:
    """Compute sum_i x_i^2 (BBOB f1) of points [..., P]; 0 at the origin."""
    x = np.asarray(points, dtype=np.float64)
    return np.asarray(np.sum(x * x, axis=-1))


def ellipsoid(points: npt.ArrayLike) -> Vector:
    """Compute sum_i 10^(6 (i-1)/(P-1)) x_i^2 (BBOB f2) of points [..., P]; 0 at the origin.

    It is separable, with condition number 1e6. With one coordinate it is the sphere.
    """
    x = np.asarray(points, dtype=np.float64)
    exponents = np.linspace(0.0, 1.0, x.shape[-1])
    return np.asarray(np.sum(CONDITION**exponents * x * x, axis=-1))


def rotated_ellipsoid(points: npt.ArrayLike) -> Vector:
    """Compute the ellipsoid at R x (BBOB f10) of points [..., P], R = ``rotation(P)``; 0 at 0.

    It is as ill-conditioned as the ellipsoid, but not separable.
    """
    x = np.asarray(points, dtype=np.float64)
    # Not BLAS, whose bits can depend on the number of threads.
    return ellipsoid(np.einsum("ij,...j->...i", rotation(x.shape[-1]), x))


def rosenbrock(points: npt.ArrayLike) -> Vector:
    """Compute sum_i 100 (x_(i+1) - x_i^2)^2 + (1 - x_i)^2 of points [..., P]; 0 at (1, ..., 1).

    Rosenbrock 1960, "An automatic method for finding the greatest or least value of a function",
    The Computer Journal 3(3); in P dimensions as BBOB f8, without its scaling of x. A bent valley;
    from four dimensions on there is a second, local minimum. With one coordinate it is 0.
    """
    x = np.asarray(points, dtype=np.float64)
    along, across = 1.0 - x[..., :-1], x[..., 1:] - x[..., :-1] ** 2
    return np.asarray(np.sum(100.0 * across * across + along * along, axis=-1))


def rastrigin(points: npt.ArrayLike) -> Vector:
    """Compute 10 P + sum_i x_i^2 - 10 cos(2 pi x_i) (BBOB f3) of points [..., P]; 0 at the origin.

    Rastrigin 1974, "Systems of extremal control" (in Russian), Nauka, Moscow, in two dimensions. It
    has a local minimum near every point with integer coordinates. Computed as sum_i x_i^2 + 20
    sin(pi x_i)^2, which is equal and does not cancel near the optimum.
    """
    x = np.asarray(points, dtype=np.float64)
    waves = np.sin(np.pi * x)
    return np.asarray(np.sum(x * x + 20.0 * waves * waves, axis=-1))


FUNCTIONS: Final[dict[str, Function]] = {
    "sphere": sphere,
    "ellipsoid": ellipsoid,
    "rotated_ellipsoid": rotated_ellipsoid,
    "rosenbrock": rosenbrock,
    "rastrigin": rastrigin,
}


def optimum(name: str, dimension: int) -> Vector:
    """The optimum of a function of ``FUNCTIONS``, [P]."""
    return np.full(dimension, 1.0 if name == "rosenbrock" else 0.0)


def shift(dimension: int) -> Vector:
    """The optimum [P] of the environments: 4 frac(i g) - 2 for i = 1..P, in [-2, 2).

    g is the golden ratio minus 1, whose multiples spread evenly. The first coordinates are the same
    in every dimension.
    """
    multiples = np.arange(1, dimension + 1) * GOLDEN
    return np.asarray(4.0 * np.mod(multiples, 1.0) - 2.0)


@cache
def rotation(dimension: int) -> Vector:
    """The orthogonal matrix [P, P] of the rotated ellipsoid; the same in every process.

    Rows of Gaussian noise with the key ``ROTATION_KEY``, made orthogonal by Gram & Schmidt (twice,
    against rounding errors): uniformly distributed over the orthogonal matrices, as in BBOB.
    """
    noise = GaussianNoise(ROTATION_KEY, dimension)
    rows = np.zeros((dimension, dimension))
    for index in range(dimension):
        row, above = noise.row(index), rows[:index]
        for _ in range(2):
            row = row - np.einsum("ij,i->j", above, np.einsum("ij,j->i", above, row))
        rows[index] = row / np.sqrt(np.sum(row * row))
    rows.setflags(write=False)  # the cache shares it
    return rows


@final
class FunctionEnv(gymnasium.Env[Vector, Vector]):
    """A function as an environment of one step, whose action is the point.

    The reward of a point [P] is -f(z) + noise * e. z is the point, shifted so that the optimum is
    at ``shift(P)``; e is standard normal, from the environment's generator. Without noise the best
    reward is 0. The first observation is zero. The last one is the point, because novelty search
    compares last observations by default.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, function: str, dimension: int = DIMENSION, noise: float = 0.0) -> None:
        """Describe the environment.

        Args:
            function: a name of ``FUNCTIONS``.
            dimension: P, of the points; at least 2 for the Rosenbrock function.
            noise: standard deviation of the noise of the reward.

        Raises:
            UsageError: an unknown function, too small a dimension, or negative noise.
        """
        if function not in FUNCTIONS:
            raise unknown("function", function, FUNCTIONS)
        require_integer("dimension", dimension, 2 if function == "rosenbrock" else 1, MOST_NUMBERS)
        require_finite("noise", noise)
        if noise < 0:
            raise UsageError(f"noise = {noise!r}: expected at least 0")
        self.observation_space = spaces.Box(-np.inf, np.inf, (dimension,), np.float64)
        self.action_space = spaces.Box(-np.inf, np.inf, (dimension,), np.float64)
        self._function = FUNCTIONS[function]
        self._offset = optimum(function, dimension) - shift(dimension)
        self._noise = float(noise)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin an episode; ``seed`` determines its noise."""
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape or ()), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Evaluate a point [P] and end the episode; UsageError for another shape."""
        if np.shape(action) != self.action_space.shape:
            raise UsageError(
                f"a point of shape {np.shape(action)}: expected {self.action_space.shape}"
            )
        reward = 0.0 - float(self._function(action + self._offset))  # and not -0.0
        if self._noise:
            reward += self._noise * self.np_random.standard_normal()
        return np.array(action, dtype=np.float64), reward, True, False, {}
