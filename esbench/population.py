"""A population as a recipe: the centre, the scale and a noise key, never a matrix.

Whoever holds the recipe, in whichever process, rebuilds any members bit for bit: row ``i`` of the
noise is drawn from Philox with the generation's key and a counter whose high word is ``i``, so rows
are independent streams 2**128 draws apart and cost nothing until they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Distribution: TypeAlias = Literal["gaussian", "uniform"]


@dataclass(frozen=True, eq=False)
class Population:
    """``size`` members around ``center``: center + sigma * noise.

    Attributes:
        center: [P], the unperturbed parameters.
        sigma: the deviation, a number or [P].
        key: the 128-bit noise key of the generation.
        size: the number of members; even if ``antithetic``.
        antithetic: members 2i and 2i+1 are a pair, center + and - the same noise.
        distribution: standard normal noise, or uniform noise on [-1, 1).
    """

    center: Vector
    sigma: float | Vector
    key: int
    size: int
    antithetic: bool = True
    distribution: Distribution = "gaussian"

    def __post_init__(self) -> None:
        if self.size < 1 or (self.antithetic and self.size % 2):
            expected = "a positive even number of members" if self.antithetic else "a positive size"
            raise ValueError(f"population size {self.size}: expected {expected}")

    def __len__(self) -> int:
        return self.size

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

    def noise(self, row: int) -> Vector:
        """Return noise row ``row``, [P], in units of sigma."""
        bits = np.random.Philox(key=self.key, counter=[0, 0, row, 0])
        generator = np.random.Generator(bits)
        if self.distribution == "uniform":
            return generator.uniform(-1.0, 1.0, self.center.size)
        return generator.standard_normal(self.center.size)

    def member(self, index: int) -> Vector:
        """Return the parameters of one member, [P]."""
        return self.center + self.sign(index) * self.sigma * self.noise(self.row(index))

    def members(self, indices: Sequence[int] | None = None) -> Matrix:
        """Return the parameters of ``indices`` (all members by default), [m, P]."""
        chosen = range(self.size) if indices is None else indices
        rows = [self.member(index) for index in chosen]
        return np.array(rows).reshape(len(rows), self.center.size)

    def weighted_noise(self, weights: Vector) -> Vector:
        """Return sum_i weights_i * sign_i * noise_i over the members, [P].

        One row of noise exists at a time and rows are added in order, without BLAS, so the memory
        is O(P) and the bits do not depend on the number of threads.
        """
        if weights.shape != (self.size,):
            raise ValueError(f"weights of shape {weights.shape}: expected ({self.size},)")
        per_row = weights[0::2] - weights[1::2] if self.antithetic else weights
        total = np.zeros_like(self.center)
        for row, weight in enumerate(per_row.tolist()):
            if weight != 0.0:
                total += weight * self.noise(row)
        return total

    def extended(self, size: int) -> Population:
        """Return the same recipe with ``size`` members; the members both have are equal."""
        return replace(self, size=size)
