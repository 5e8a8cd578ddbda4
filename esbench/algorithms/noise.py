"""Noise as a recipe: rows that are drawn from a key whenever they are asked for.

Row ``i`` comes from Philox with the key and a counter whose high word is ``i``, so rows are
independent streams 2**128 draws apart. They come in blocks that fit a core's cache, so whoever only
sums them needs memory for one block: measured at 1.7 million parameters, drawing a row takes 24 ms
and adding it to two sums 4 ms more. Several threads may draw and one adds, in the rows' order; then
two whole rows a helper are in memory. On two cores (medians of paired runs) two threads take 0.70
of the time of one at 27,000 parameters, 0.64 at 100,000, 0.69 at 1.7 million, and 1.1 at 5,000.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.arrays import Matrix, Shapes, Vector

Distribution: TypeAlias = Literal["gaussian", "uniform"]
# Of each parameter tensor: a vector, or A [m, r] and B^T [r, k] of a matrix [m, k].
Factors: TypeAlias = tuple[Vector | tuple[Matrix, Matrix], ...]

Blocks: TypeAlias = Iterator[tuple[slice, Vector]]

BLOCK: Final = 16_384  # numbers: 128 KiB
# Whoever adds the rows up takes a sixth of the time of drawing them, and draws too: more helpers
# would wait for it.
MAX_THREADS: Final = 4
WORTH_A_THREAD: Final = 16_384  # numbers in a row; with 5,000, two threads take as long as one


@dataclass(frozen=True, eq=False)
class Noise(ABC):
    """Independent noise vectors by row number.

    Attributes:
        key: 128 bits; another key is other noise.
        num_params: the length of a row, P.
    """

    key: int
    num_params: int
    _idle: _Idle = field(default_factory=lambda: _Idle(), init=False, repr=False)

    @property
    @abstractmethod
    def draws(self) -> int:
        """How many random numbers a row takes."""

    @abstractmethod
    def blocks(self, row: int) -> Blocks:
        """Yield a row piece by piece, with its place; a piece is only valid until the next."""

    def factors(self, row: int) -> Factors | None:
        """Return a row as factors of low rank, tensor by tensor; None if it is of full rank."""
        return None

    @final
    def row(self, row: int) -> Vector:
        """Return noise row ``row``, [P]."""
        values = np.empty(self.num_params)
        for place, block in self.blocks(row):
            values[place] = block
        return values

    @final
    def in_turn(self, rows: Sequence[int], threads: int) -> Iterator[Blocks]:
        """Yield the blocks of one row after the other, drawn by this thread and by helpers.

        Args:
            rows: their numbers.
            threads: how many may draw at once; there are fewer if more would not help.
        """
        threads = min(threads, MAX_THREADS)
        if threads == 1 or self.draws < WORTH_A_THREAD:
            yield from map(self.blocks, rows)
            return
        with ThreadPoolExecutor(threads - 1) as helpers:

            def ask(first: int) -> list[Future[Vector]]:
                return [helpers.submit(self.row, row) for row in rows[first + 1 : first + threads]]

            coming = ask(0)
            for first in range(0, len(rows), threads):
                yield self.blocks(rows[first])
                drawn, coming = coming, ask(first + threads)
                for row in drawn:
                    yield iter([(slice(None), row.result())])

    @final
    @contextlib.contextmanager
    def stream(self, row: int) -> Iterator[np.random.Generator]:
        """Lend the generator of a row, at its start."""
        stream = self._idle.take() or _Stream(self.key)
        try:
            yield stream.at(row)
        finally:
            self._idle.append(stream)


@final
class _Stream:
    """A generator that can be put at the start of any row."""

    def __init__(self, key: int) -> None:
        self._philox = np.random.Philox(key=key)
        self._generator = np.random.Generator(self._philox)
        self._start: Any = self._philox.state  # nothing is drawn yet

    def at(self, row: int) -> np.random.Generator:
        """Return the generator, at the start of a row."""
        self._start["state"]["counter"][2] = row
        self._philox.state = self._start
        return self._generator


class _Idle(list[_Stream]):
    """Streams that nobody draws from: a new one takes as long as a thousand normal numbers."""

    def __reduce__(self) -> tuple[type[_Idle], tuple[()]]:
        return _Idle, ()  # they do not travel

    def take(self) -> _Stream | None:
        """Return one, or None; threads may ask at once."""
        with contextlib.suppress(IndexError):
            return self.pop()
        return None


@final
@dataclass(frozen=True, eq=False)
class GaussianNoise(Noise):
    """Standard normal numbers."""

    @property
    def draws(self) -> int:
        """One a parameter."""
        return self.num_params

    def blocks(self, row: int) -> Blocks:
        """Yield a row piece by piece."""
        room = np.empty(min(BLOCK, self.num_params))
        with self.stream(row) as generator:
            for place in _places(self.num_params):
                yield place, generator.standard_normal(out=room[: place.stop - place.start])


@final
@dataclass(frozen=True, eq=False)
class UniformNoise(Noise):
    """Uniform numbers in [-1, 1)."""

    @property
    def draws(self) -> int:
        """One a parameter."""
        return self.num_params

    def blocks(self, row: int) -> Blocks:
        """Yield a row piece by piece."""
        with self.stream(row) as generator:
            for place in _places(self.num_params):
                yield place, generator.uniform(-1.0, 1.0, place.stop - place.start)


@final
@dataclass(frozen=True, eq=False)
class LowRankNoise(Noise):
    """Low-rank matrices: A B^T / sqrt(r) with standard normal A [m, r] and B [k, r].

    Sarkar et al. 2025, "Evolution Strategies at the Hyperscale", arXiv:2511.16652: every entry has
    mean 0 and variance 1, two entries are uncorrelated, a matrix has rank r, and only r (m + k)
    numbers are drawn for it. A tensor of more dimensions counts as a matrix of its first dimension
    by the others; a vector gets standard normal noise.

    Attributes:
        shapes: of the parameter tensors, in the order in which they lie in the vector.
        rank: r; a matrix whose smaller side is below it is perturbed at that side's rank.
    """

    shapes: Shapes
    rank: int

    def __post_init__(self) -> None:
        if sum(map(math.prod, self.shapes)) != self.num_params:
            raise ValueError(f"shapes {self.shapes}: expected {self.num_params} numbers in all")
        if self.rank < 1:
            raise ValueError(f"rank {self.rank}: expected at least 1")

    @property
    def draws(self) -> int:
        """Two thin factors of every matrix."""
        return sum(self._factors(shape) for shape in self.shapes)

    def blocks(self, row: int) -> Blocks:
        """Yield a row, tensor after tensor, a block of whole matrix rows at a time."""
        start = 0
        for drawn in self._drawn(row):
            for values in [drawn] if isinstance(drawn, np.ndarray) else _products(*drawn):
                yield slice(start, start + values.size), values
                start += values.size

    def factors(self, row: int) -> Factors:
        """Return what a row is made of."""
        return tuple(self._drawn(row))

    def _drawn(self, row: int) -> Iterator[Vector | tuple[Matrix, Matrix]]:
        with self.stream(row) as generator:
            for shape in self.shapes:
                size = math.prod(shape)
                if len(shape) < 2 or size == 0:
                    yield generator.standard_normal(size)
                    continue
                rows, columns = shape[0], size // shape[0]
                rank = min(self.rank, rows, columns)
                a = generator.standard_normal((rows, rank)) / np.sqrt(rank)
                yield a, generator.standard_normal((rank, columns))

    def _factors(self, shape: tuple[int, ...]) -> int:
        size = math.prod(shape)
        if len(shape) < 2 or size == 0:
            return size
        rows, columns = shape[0], size // shape[0]
        return min(self.rank, rows, columns) * (rows + columns)


def _products(a: Matrix, b: Matrix) -> Iterator[Vector]:
    """Yield A B^T [m, k] flat, some whole rows at a time; ``b`` is B^T."""
    at_once = max(1, BLOCK // b.shape[1])
    for first in range(0, len(a), at_once):
        # Without BLAS, whose bits can depend on the number of threads.
        product: Vector = np.einsum("ir,rj->ij", a[first : first + at_once], b)
        yield product.reshape(-1)


NOISES: Final[dict[Distribution, type[GaussianNoise] | type[UniformNoise]]] = {
    "gaussian": GaussianNoise,
    "uniform": UniformNoise,
}


def _places(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))
