"""A population as a recipe: how to make any member, never a matrix of all of them.

Whoever holds the recipe, in whichever process, rebuilds any members bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

import numpy as np

from esbench.algorithms.noise import Factors, Noise
from esbench.arrays import Matrix, Vector


@final
@dataclass(frozen=True, eq=False)
class LowRankMember:
    """A member as what it has in common with all others, and a little of its own.

    Attributes:
        center: [P], the same array for all members of a population.
        scale: what the noise is multiplied by: sigma, or -sigma.
        factors: of its noise, tensor by tensor.
    """

    center: Vector
    scale: float
    factors: Factors


@dataclass(frozen=True, eq=False, kw_only=True)
class Population(ABC):
    """``size`` members.

    Attributes:
        size: the number of members, N.
        lineage: which centre of a meta-population they descend from; 0 if there is only one. Each
            lineage has its own observation statistics.
        probe: whether the algorithm only asks how these members do, and learns in a later
            generation: told, they do not end the generation.
        episodes: episodes a member, if not the environment's own number.
        threads: how many may draw its noise at once, when it is summed; the sums are the same.
    """

    size: int
    lineage: int = 0
    probe: bool = False
    episodes: int | None = None
    threads: int = 1

    def __len__(self) -> int:
        return self.size

    @property
    @abstractmethod
    def num_params(self) -> int:
        """The number of parameters, P."""

    @abstractmethod
    def member(self, index: int) -> Vector:
        """Return the parameters of one member, [P]; a new array."""

    def low_rank(self, index: int) -> LowRankMember | None:
        """Return a member as centre and factors; None if its noise is of full rank."""
        return None

    @abstractmethod
    def row(self, member: int) -> int:
        """Return the number of a member's noise; the two members of a pair share theirs."""

    @final
    def members(self, indices: Sequence[int] | None = None) -> Matrix:
        """Return the parameters of ``indices`` (all members by default), [m, P]."""
        chosen = range(self.size) if indices is None else indices
        rows = [self.member(index) for index in chosen]
        return np.array(rows).reshape(len(rows), self.num_params)

    @final
    def extended(self, size: int) -> Self:
        """Return the same recipe with ``size`` members; the members both have are equal."""
        return replace(self, size=size)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPopulation(Population):
    """Members around a centre: center + sigma * noise.

    Attributes:
        center: [P].
        sigma: the deviation: a number, [P], or a matrix [P, P] that the noise is multiplied by.
        noise: of the generation.
        antithetic: members 2i and 2i+1 are a pair, center + and - the same noise.
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
        """The number of distinct noise vectors: one a pair, or one a member."""
        return self.size // 2 if self.antithetic else self.size

    def row(self, member: int) -> int:
        """Return the noise row of a member; the two members of a pair share theirs."""
        return member // 2 if self.antithetic else member

    def sign(self, member: int) -> int:
        """Return -1 for the second member of an antithetic pair, else +1."""
        return -1 if self.antithetic and member % 2 else 1

    def member(self, index: int) -> Vector:
        """Return the parameters of one member, [P]."""
        step = self._latest.step(self, self.row(index))
        return self.center + step if self.sign(index) > 0 else self.center - step

    def low_rank(self, index: int) -> LowRankMember | None:
        """Return a member as centre and factors; None if its noise is of full rank."""
        factors = self.noise.factors(self.row(index))
        if factors is None or isinstance(self.sigma, np.ndarray):
            return None
        return LowRankMember(self.center, self.sign(index) * self.sigma, factors)

    def step(self, row: int) -> Vector:
        """Return sigma times a noise row, [P]."""
        noise = self.noise.row(row)
        if isinstance(self.sigma, np.ndarray) and self.sigma.ndim == 2:
            # Without BLAS, whose bits can depend on the number of threads.
            product: Vector = np.einsum("ij,j->i", self.sigma, noise)
            return product
        noise *= self.sigma
        return noise

    def weighted_noise(self, weights: Vector) -> Vector:
        """Return sum_i weights_i * z_i over the members' signed noise z_i, [P].

        In units of sigma; added in member order, some rows of noise at a time at most, without
        BLAS: the memory is O(P) and the bits do not depend on the number of threads.
        """
        return self._sums(weights, np.zeros_like(weights))[0]

    def weighted_squares(self, weights: Vector) -> Vector:
        """Return sum_i weights_i * z_i**2 over the members' noise z_i, [P]."""
        return self._sums(np.zeros_like(weights), weights)[1]

    def weighted_moments(self, weights: Vector, square_weights: Vector) -> tuple[Vector, Vector]:
        """Return ``weighted_noise`` and ``weighted_squares``, drawing the noise only once."""
        return self._sums(weights, square_weights)

    def _sums(self, weights: Vector, square_weights: Vector) -> tuple[Vector, Vector]:
        for given in (weights, square_weights):
            if given.shape != (self.size,):
                raise ValueError(f"weights of shape {given.shape}: expected ({self.size},)")
        first, second = self._by_row(weights, -1.0), self._by_row(square_weights, 1.0)
        sums = np.zeros(self.center.size), np.zeros(self.center.size)
        rows = np.flatnonzero((first != 0.0) | (second != 0.0)).tolist()
        weighed = zip(first[rows].tolist(), second[rows].tolist(), strict=True)
        for (w, w2), blocks in zip(weighed, self.noise.in_turn(rows, self.threads), strict=True):
            for place, block in blocks:
                if w != 0.0:
                    sums[0][place] += w * block
                if w2 != 0.0:
                    sums[1][place] += w2 * (block * block)
        return sums

    def _by_row(self, weights: Vector, sign: float) -> Vector:
        """Return the weight of each noise row; ``sign`` is that of a pair's second member."""
        return weights[0::2] + sign * weights[1::2] if self.antithetic else weights


@final
class _Latest:
    """The step that was drawn last: the two members of a pair are mostly asked for in turn."""

    def __init__(self) -> None:
        self._latest: tuple[int, Vector] | None = None

    def __reduce__(self) -> tuple[type[_Latest], tuple[()]]:
        return _Latest, ()  # it does not travel

    def step(self, population: SampledPopulation, row: int) -> Vector:
        """Return the step of a row, not to be changed."""
        latest = self._latest
        if latest is None or latest[0] != row:
            latest = self._latest = row, population.step(row)
        return latest[1]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPopulation(Population):
    """Members as they are, [N, P]: of libraries that sample themselves, and of probes.

    Attributes:
        stored: [N, P]. It cannot be extended.
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
        """Return the parameters of one member, [P]."""
        parameters: Vector = self.stored[index].copy()
        return parameters

    def row(self, member: int) -> int:
        """Return the member's own number."""
        return member
