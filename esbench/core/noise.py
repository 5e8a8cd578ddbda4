"""Noise as a recipe: rows of random numbers, drawn from a key whenever they are needed.

Row ``i`` comes from Philox with the key and a counter whose high word is ``i``, so rows are
independent streams, 2**128 draws apart. A row is drawn in blocks that fit a core's cache, so that a
sum over rows needs memory for one block. Several threads can draw while one adds the rows in order;
then each helper holds up to two whole rows.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import Matrix, Shapes, Vector

Distribution: TypeAlias = Literal["gaussian", "uniform"]
# One entry per parameter tensor: a vector, or A [m, r] and B^T [r, k] of a matrix [m, k].
Factors: TypeAlias = tuple[Vector | tuple[Matrix, Matrix], ...]

Blocks: TypeAlias = Iterator[tuple[slice, Vector]]

BLOCK: Final = 16_384  # numbers: 128 KiB
MAX_THREADS: Final = 4  # adding the rows cannot keep up with more
WORTH_A_THREAD: Final = 16_384  # draws per row below which helpers save no time


@dataclass(frozen=True, eq=False)
class Noise(ABC):
    """Independent noise vectors [``num_params``] by row number; ``key`` has 128 bits."""

    key: int
    num_params: int
    # Streams that are not in use, kept because creating one is slow.
    _idle: list[_RowStream] = field(default_factory=list, init=False, repr=False)

    def __reduce__(self) -> tuple[type[Noise], tuple[Any, ...]]:
        given = (getattr(self, each.name) for each in fields(self) if each.init)
        return type(self), tuple(given)

    @property
    @abstractmethod
    def draws(self) -> int:
        """The number of random draws per row."""

    @abstractmethod
    def blocks(self, row: int) -> Blocks:
        """Yield a row block by block, each with its place; a block is only valid until the next."""

    @abstractmethod
    def factors(self, row: int) -> Factors | None:
        """A row as low-rank factors, tensor by tensor; None if the noise has full rank."""

    @final
    def row(self, row: int) -> Vector:
        """Noise row ``row``, [P]."""
        values = np.empty(self.num_params)
        for place, block in self.blocks(row):
            values[place] = block
        return values

    @final
    def in_turn(self, rows: Sequence[int], threads: int) -> Iterator[Blocks]:
        """Yield the blocks of one row after the other, drawn by this thread and by helpers.

        At most ``threads`` draw; fewer are used where more would not help.
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
        """A generator at the start of a row, for the time of the block."""
        try:  # another thread may take the last one at any time
            stream = self._idle.pop()
        except IndexError:
            stream = _RowStream(self.key)
        try:
            yield stream.at(row)
        finally:
            self._idle.append(stream)


@final
class _RowStream:
    def __init__(self, key: int) -> None:
        self._philox = np.random.Philox(key=key)
        self._generator = np.random.Generator(self._philox)
        self._start: Any = self._philox.state  # before the first draw

    def at(self, row: int) -> np.random.Generator:
        self._start["state"]["counter"][2] = row
        self._philox.state = self._start
        return self._generator


class FullRankNoise(Noise, ABC):
    """Noise with one independent draw per parameter."""

    @final
    @property
    def draws(self) -> int:
        """P."""
        return self.num_params

    @final
    def factors(self, row: int) -> None:
        """None."""

    @final
    def blocks(self, row: int) -> Blocks:
        """Yield a row block by block; the blocks may share one buffer."""
        buffer = np.empty(min(BLOCK, self.num_params))
        with self.stream(row) as generator:
            for start in range(0, self.num_params, BLOCK):
                stop = min(start + BLOCK, self.num_params)
                yield slice(start, stop), self._draw(generator, buffer[: stop - start])

    @abstractmethod
    def _draw(self, generator: np.random.Generator, buffer: Vector) -> Vector:
        """Numbers of the buffer's size, which it may hold."""


@final
class GaussianNoise(FullRankNoise):
    """Standard normal numbers."""

    def _draw(self, generator: np.random.Generator, buffer: Vector) -> Vector:
        return generator.standard_normal(out=buffer)


@final
class UniformNoise(FullRankNoise):
    """Uniform numbers in [-1, 1)."""

    def _draw(self, generator: np.random.Generator, buffer: Vector) -> Vector:
        return generator.uniform(-1.0, 1.0, buffer.size)


@final
@dataclass(frozen=True, eq=False)
class LowRankNoise(Noise):
    """Low-rank matrices: A B^T / sqrt(r) with standard normal A [m, r] and B [k, r].

    Sarkar et al. 2025, "Evolution Strategies at the Hyperscale", arXiv:2511.16652. Every entry has
    mean 0 and variance 1, entries are uncorrelated, and a matrix takes only r (m + k) draws. A
    tensor with more than two dimensions counts as a matrix of its first dimension by the others; a
    vector gets standard normal noise.

    Attributes:
        shapes: shapes of the parameter tensors, in the order in which they lie in the vector.
        rank: r; a matrix with a side smaller than r has that side's rank.
    """

    shapes: Shapes
    rank: int

    def __post_init__(self) -> None:
        if sum(map(math.prod, self.shapes)) != self.num_params:
            raise ValueError(f"shapes {self.shapes}: expected {self.num_params} numbers in all")

    @property
    def draws(self) -> int:
        """The sizes of all vectors and of both factors of every matrix."""
        tensors = [(math.prod(shape), self._matrix(shape)) for shape in self.shapes]
        return sum(size if m is None else m[2] * (m[0] + m[1]) for size, m in tensors)

    def blocks(self, row: int) -> Blocks:
        """Yield a row, tensor after tensor, a block of whole matrix rows at a time."""
        start = 0
        for drawn in self._drawn(row):
            for values in [drawn] if isinstance(drawn, np.ndarray) else _products(*drawn):
                yield slice(start, start + values.size), values
                start += values.size

    def factors(self, row: int) -> Factors:
        """A row as factors, tensor by tensor."""
        return tuple(self._drawn(row))

    def _drawn(self, row: int) -> Iterator[Vector | tuple[Matrix, Matrix]]:
        with self.stream(row) as generator:
            for shape in self.shapes:
                matrix = self._matrix(shape)
                if matrix is None:
                    yield generator.standard_normal(math.prod(shape))
                    continue
                rows, columns, rank = matrix
                a = generator.standard_normal((rows, rank)) / np.sqrt(rank)
                yield a, generator.standard_normal((rank, columns))

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Rows, columns and rank of a tensor; None for a vector, a scalar or an empty tensor."""
        size = math.prod(shape)
        if len(shape) < 2 or size == 0:
            return None
        rows, columns = shape[0], size // shape[0]
        return rows, columns, min(self.rank, rows, columns)


def _products(a: Matrix, b: Matrix) -> Iterator[Vector]:
    """Yield A B^T [m, k] flattened, some whole rows at a time; ``b`` is B^T."""
    at_once = max(1, BLOCK // b.shape[1])
    for first in range(0, len(a), at_once):
        # Without BLAS, whose bits can depend on the number of threads.
        product: Vector = np.einsum("ir,rj->ij", a[first : first + at_once], b)
        yield product.reshape(-1)


NOISES: Final[dict[Distribution, type[GaussianNoise] | type[UniformNoise]]] = {
    "gaussian": GaussianNoise,
    "uniform": UniformNoise,
}
