"""A population as a recipe that makes any member, so that no matrix of all members is needed.

Every process that holds the recipe makes the same members, bit for bit.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, Self, final

import numpy as np

from esbench.algorithms.noise import Factors, Noise
from esbench.arrays import Matrix, Vector

_THREADS: Final = ContextVar("threads that draw noise", default=1)


@contextlib.contextmanager
def drawing_threads(count: int) -> Iterator[None]:
    """Let sums of noise use up to ``count`` threads inside the block; the sums stay the same."""
    token = _THREADS.set(count)
    try:
        yield
    finally:
        _THREADS.reset(token)


@final
@dataclass(frozen=True, eq=False)
class LowRankMember:
    """A member as the shared centre and noise of low rank.

    Attributes:
        center: [P], the same array for all members of a population.
        scale: the factor of the noise: sigma or -sigma.
        factors: the factors of the noise of each tensor.
    """

    center: Vector
    scale: float
    factors: Factors


@dataclass(frozen=True, eq=False, kw_only=True)
class Population(ABC):
    """A recipe for N members.

    Attributes:
        size: the number of members, N.
    """

    size: int

    def __len__(self) -> int:
        return self.size

    @property
    @abstractmethod
    def num_params(self) -> int:
        """The number of parameters, P."""

    @abstractmethod
    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""

    @abstractmethod
    def low_rank(self, index: int) -> LowRankMember | None:
        """A member as centre and factors; None if its noise has full rank."""

    @abstractmethod
    def row(self, member: int) -> int:
        """The number of a member's noise, which the two members of a pair share."""

    @final
    def members(self, indices: Sequence[int] | None = None) -> Matrix:
        """The parameters of the members ``indices`` (all by default), [m, P]."""
        chosen = range(self.size) if indices is None else indices
        rows = [self.member(index) for index in chosen]
        return np.array(rows).reshape(len(rows), self.num_params)

    @final
    def extended(self, size: int) -> Self:
        """The same recipe with ``size`` members; members of the same index are equal."""
        return replace(self, size=size)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPopulation(Population):
    """Members around a centre: center + sigma * noise.

    Attributes:
        center: [P].
        sigma: the deviation: a number, a vector [P] or a matrix [P, P].
        noise: the noise of the generation.
        antithetic: whether members 2i and 2i + 1 are center plus and minus the same noise.
    """

    center: Vector
    sigma: float | Vector | Matrix
    noise: Noise
    antithetic: bool = True
    _latest: _Latest = field(default_factory=lambda: _Latest(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 1 or (self.antithetic and self.size % 2):
            expected = "a positive even number of members" if self.antithetic else "a positive size"
            raise ValueError(f"population size {self.size}: expected {expected}")

    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return self.center.size

    @property
    def num_rows(self) -> int:
        """The number of distinct noise vectors: one per pair or one per member."""
        return self.size // 2 if self.antithetic else self.size

    def row(self, member: int) -> int:
        """The noise row of a member, which the two members of a pair share."""
        return member // 2 if self.antithetic else member

    def sign(self, member: int) -> int:
        """-1 for the second member of an antithetic pair, +1 for all others."""
        return -1 if self.antithetic and member % 2 else 1

    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""
        step = self._latest.step(self, self.row(index))
        return self.center + step if self.sign(index) > 0 else self.center - step

    def low_rank(self, index: int) -> LowRankMember | None:
        """A member as centre and factors; None if its noise has full rank."""
        factors = self.noise.factors(self.row(index))
        if factors is None or isinstance(self.sigma, np.ndarray):
            return None
        return LowRankMember(self.center, self.sign(index) * self.sigma, factors)

    def step(self, row: int) -> Vector:
        """Sigma times a noise row, [P]."""
        noise = self.noise.row(row)
        if isinstance(self.sigma, np.ndarray) and self.sigma.ndim == 2:
            # Without BLAS, whose bits can depend on the number of threads.
            product: Vector = np.einsum("ij,j->i", self.sigma, noise)
            return product
        noise *= self.sigma
        return noise

    def weighted_noise(self, weights: Vector) -> Vector:
        """The sum of weights_i * z_i over the signed noise z_i of the members, [P].

        The unit is sigma. Rows are added in member order without BLAS, a few at a time: the memory
        is O(P) and the bits do not depend on the number of threads.
        """
        return self._sums(weights, np.zeros_like(weights))[0]

    def weighted_squares(self, weights: Vector) -> Vector:
        """The sum of weights_i * z_i**2 over the noise z_i of the members, [P]."""
        return self._sums(np.zeros_like(weights), weights)[1]

    def weighted_moments(self, weights: Vector, square_weights: Vector) -> tuple[Vector, Vector]:
        """``weighted_noise`` and ``weighted_squares``, for which the noise is drawn only once."""
        return self._sums(weights, square_weights)

    def _sums(self, weights: Vector, square_weights: Vector) -> tuple[Vector, Vector]:
        for given in (weights, square_weights):
            if given.shape != (self.size,):
                raise ValueError(f"weights of shape {given.shape}: expected ({self.size},)")
        first, second = self._by_row(weights, -1.0), self._by_row(square_weights, 1.0)
        sums = np.zeros(self.center.size), np.zeros(self.center.size)
        rows = np.flatnonzero((first != 0.0) | (second != 0.0)).tolist()
        weighed = zip(first[rows].tolist(), second[rows].tolist(), strict=True)
        for (w, w2), blocks in zip(weighed, self.noise.in_turn(rows, _THREADS.get()), strict=True):
            for place, block in blocks:
                if w != 0.0:
                    sums[0][place] += w * block
                if w2 != 0.0:
                    sums[1][place] += w2 * (block * block)
        return sums

    def _by_row(self, weights: Vector, sign: float) -> Vector:
        """The weight of each noise row; ``sign`` is the sign of a pair's second member."""
        return weights[0::2] + sign * weights[1::2] if self.antithetic else weights


@final
class _Latest:
    """The last step that was drawn, because the two members of a pair usually follow each other."""

    def __init__(self) -> None:
        self._latest: tuple[int, Vector] | None = None

    def __reduce__(self) -> tuple[type[_Latest], tuple[()]]:
        return _Latest, ()  # not sent to other processes

    def step(self, population: SampledPopulation, row: int) -> Vector:
        """The step of a row, [P]; read-only."""
        latest = self._latest
        if latest is None or latest[0] != row:
            latest = self._latest = row, population.step(row)
        return latest[1]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPopulation(Population):
    """Members as a matrix, for libraries that sample themselves; it cannot be extended.

    Attributes:
        stored: the parameters of all members, [N, P].
    """

    stored: Matrix

    def __post_init__(self) -> None:
        if self.size != len(self.stored):
            raise ValueError(f"population size {self.size}: expected {len(self.stored)}, as stored")

    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return int(self.stored.shape[1])

    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""
        parameters: Vector = self.stored[index].copy()
        return parameters

    def row(self, member: int) -> int:
        """The number of the member."""
        return member

    def low_rank(self, index: int) -> None:
        """None: the noise is not known."""
