"""A population as a recipe that makes any member, and the plan of its evaluation.

No matrix of all members is needed. Every process that holds the recipe makes the same members, bit
for bit.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Matrix, Vector
from esbench.core.noise import Factors, Noise

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
    """A member as the shared center [P] and the factors of its noise; the scale is +-sigma."""

    center: Vector
    scale: float
    factors: Factors


@dataclass(frozen=True, eq=False, kw_only=True)
class Population(ABC):
    """A recipe for ``size`` members, N.

    ``asked`` names the algorithm that has asked for it, its seed, its generation and whether it is
    a probe; None if none has.
    """

    size: int
    asked: tuple[str, int, int, bool] | None = None

    def __len__(self) -> int:
        return self.size

    @abstractmethod
    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""

    @abstractmethod
    def low_rank(self, index: int) -> LowRankMember | None:
        """A member as center and factors; None if its noise has full rank."""

    @abstractmethod
    def row(self, member: int) -> int:
        """The number of a member's noise, which the two members of a pair share."""

    @final
    def members(self, indices: Sequence[int] | None = None) -> Matrix:
        """The parameters of the members ``indices`` (all by default), [m, P]."""
        chosen = range(self.size) if indices is None else indices
        return np.array([self.member(index) for index in chosen])

    @final
    def extended(self, size: int) -> Self:
        """The same recipe with ``size`` members; members of the same index are equal."""
        return replace(self, size=size)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPopulation(Population):
    """Members around a center [P]: center + sigma * noise; sigma is a number, [P] or [P, P].

    If ``antithetic``, members 2i and 2i + 1 are center plus and minus the same noise.
    """

    center: Vector
    sigma: float | Vector | Matrix
    noise: Noise
    antithetic: bool = True

    def __post_init__(self) -> None:
        if self.size < 1 or (self.antithetic and self.size % 2):
            expected = "a positive even number of members" if self.antithetic else "a positive size"
            raise ValueError(f"population size {self.size}: expected {expected}")

    @property
    def num_rows(self) -> int:
        """The number of distinct noise vectors: one per pair or one per member."""
        return self.size // 2 if self.antithetic else self.size

    def row(self, member: int) -> int:
        """The number of a member's noise, which the two members of a pair share."""
        return member // 2 if self.antithetic else member

    def sign(self, member: int) -> int:
        """-1 for the second member of an antithetic pair, +1 for all others."""
        return -1 if self.antithetic and member % 2 else 1

    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""
        step = _latest_step(self, self.row(index))
        return self.center + step if self.sign(index) > 0 else self.center - step

    def low_rank(self, index: int) -> LowRankMember | None:
        """A member as center and factors; None if its noise has full rank."""
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
        return self._sums(weights, squares=False)[0]

    def weighted_moments(self, weights: Vector) -> tuple[Vector, Vector]:
        """``weighted_noise`` and the sum of weights_i * z_i**2, [P]; noise is drawn only once."""
        return self._sums(weights, squares=True)

    def _sums(self, weights: Vector, squares: bool) -> tuple[Vector, Vector]:
        if weights.shape != (self.size,):
            raise ValueError(f"weights of shape {weights.shape}: expected ({self.size},)")
        first, second = weights, weights
        if self.antithetic:
            first, second = weights[0::2] - weights[1::2], weights[0::2] + weights[1::2]
        if not squares:
            second = np.zeros_like(first)
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


@lru_cache(maxsize=1)  # because the two members of a pair usually follow each other
def _latest_step(population: SampledPopulation, row: int) -> Vector:
    return population.step(row)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPopulation(Population):
    """Members as a matrix [N, P], for libraries that sample themselves; it cannot be extended."""

    stored: Matrix

    def __post_init__(self) -> None:
        if self.size != len(self.stored):
            raise ValueError(f"population size {self.size}: expected {len(self.stored)}, as stored")

    def member(self, index: int) -> Vector:
        """The parameters of one member as a new array, [P]."""
        parameters: Vector = self.stored[index].copy()
        return parameters

    def row(self, member: int) -> int:
        """The number of the member."""
        return member

    def low_rank(self, index: int) -> None:
        """None: the noise is not known."""


@final
@dataclass(frozen=True)
class Growth:
    """The growth of a population within one generation, by its initial size each time.

    It ends with these environment steps and episodes, or with ``size_max`` members.
    """

    num_interactions: int = 0
    min_episodes: int = 0
    size_max: int | None = None

    def next_size(
        self, size: int, step: int, lengths: npt.NDArray[np.int64], latest: npt.NDArray[np.int64]
    ) -> int:
        """The size to which the population grows now; ``size`` if the generation is complete.

        It began with ``step`` members and has ``size`` now. ``lengths`` [size, episodes] are the
        steps of all episodes, ``latest`` those of the members that were added last.
        """
        # Members that fail before their first step would never make an interaction.
        needs_steps = lengths.sum() < self.num_interactions and latest.any()
        if not needs_steps and lengths.size >= self.min_episodes:
            return size
        grown = size + step
        return grown if self.size_max is None else max(size, min(grown, self.size_max))


@final
@dataclass(frozen=True)
class EvaluationPlan:
    """How the trainer evaluates the population that ``ask`` returns next, and the center.

    This is the extension point for algorithms that need more than one evaluation per generation:
    they replace their attribute ``plan``. The default plan suits all others.

    Attributes:
        probe: whether the members are only evaluated between two generations. The steps count as
            training steps, the observations are not counted, and telling the returns does not
            end the generation. All members play the same episodes, without action noise.
        episodes: episodes per member; None for the environment's number.
        lineage: the observation statistics that the members use and, unless they are a probe,
            update. An algorithm that searches from several centers has one lineage per center.
        center_lineage: the observation statistics that ``center`` uses.
        center_is_member: whether a new center is a member of the latest population. It keeps the
            observation statistics that it has played with, as those of ``center_lineage``.
        growth: how the population grows within a generation.
    """

    probe: bool = False
    episodes: int | None = None
    lineage: int = 0
    center_lineage: int = 0
    center_is_member: bool = False
    growth: Growth = Growth()
