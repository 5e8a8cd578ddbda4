"""Fully connected layers of slots that share weights.

A layer of many weights is bound by memory: 1.6 million of them (3136 x 512) come from memory anew
for every slot, unless several slots use the same ones, be it episodes of one member, or members
whose noise is of low rank, around one centre (Sarkar et al. 2025, arXiv:2511.16652):
x (W + s A B^T) = x W + s (x A) B^T. So the weights are taken piece by piece, a piece stays in the
core's cache, and every slot is multiplied by it on its own. That keeps a slot's bits apart from the
others', which one product of several rows would not: BLAS rounds by the number of rows.

Measured in float32 for 3136 x 512, an observation: 310 us alone, 155 where eight slots share
(pieces of 128 units; of 512, 340), over 700 with weights of their own in eight slots, which fill no
cache. Whole networks at 84 x 84, a slot of eight, medians on a busy machine, with own weights, one
member's, and of rank 1: openai_conv 684, 436 and 417 us; nature_conv 1400, 915 and 889, of which
its convolutions take 330. Those are no better off with shared weights: 0.3 MB of them, used 49 to
400 times an observation, stay in the cache by themselves, and what takes the time is their
arithmetic (7.8 million multiplications, at 60 thousand million operations a second). Loading a
member of rank 1 takes 0.9 ms, a dense one 26.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.policies.base import Rows

Tensor: TypeAlias = npt.NDArray[np.floating[Any]]  # parameters, before they are rounded

WIDE: Final = 2**16  # weights; a matrix of fewer stays in a core's cache by itself
PIECE: Final = 128  # units whose weights are used by all slots before the next ones


@final
@dataclass(frozen=True, eq=False)
class FullLayer:
    """One layer of one slot: y = x W + (x A) B + b.

    Attributes:
        weights: W [inputs, units]; in a wide layer transposed, and perhaps other slots' too.
        bias: b [units].
        factors: A [inputs, r] and B [r, units], or None.
    """

    weights: Rows
    bias: Rows
    factors: tuple[Rows, Rows] | None = None

    @classmethod
    def of(cls, weights: Tensor, bias: Tensor) -> FullLayer:
        """Return a layer of a member's own weights [inputs, units], rounded to float32."""
        wide = is_wide(*weights.shape)
        rounded = wide_weights(weights) if wide else weights.astype(np.float32)
        return cls(rounded, bias.astype(np.float32))


def is_wide(inputs: int, units: int) -> bool:
    """Return whether a layer is computed piece by piece, whoever shares it."""
    return inputs * units >= WIDE


def wide_weights(weights: Tensor) -> Rows:
    """Return the weights [inputs, units] of a wide layer as it keeps them, [units, inputs]."""
    return np.ascontiguousarray(weights.astype(np.float32).T)


def forward(
    values: Rows, slots: Sequence[Sequence[FullLayer]], activate: Callable[[Rows], None]
) -> Rows:
    """Return the outputs [k, outputs] of k slots.

    Args:
        values: their inputs [k, inputs].
        slots: the layers of each, first to last.
        activate: applied in place to what every layer but the last one gives.
    """
    depth = len(slots[0])
    for index in range(depth):
        values = _layer(values, [layers[index] for layers in slots])
        if index < depth - 1:
            activate(values)
    return values


def _layer(values: Rows, layers: Sequence[FullLayer]) -> Rows:
    units = layers[0].bias.size
    sums = np.empty((len(layers), units), np.float32)
    if is_wide(values.shape[1], units):
        for weights, rows in _by_weights(layers):
            sums[rows] = _wide_product(values[rows], weights)
    else:
        for row, layer in enumerate(layers):
            np.matmul(values[row], layer.weights, out=sums[row])
    for row, layer in enumerate(layers):
        if layer.factors is not None:
            a, b = layer.factors
            sums[row] += (values[row] @ a) @ b
        sums[row] += layer.bias
    return sums


def _by_weights(layers: Sequence[FullLayer]) -> list[tuple[Rows, list[int]]]:
    """Return each distinct matrix, with the rows that are multiplied by it."""
    rows: dict[int, tuple[Rows, list[int]]] = {}
    for row, layer in enumerate(layers):
        rows.setdefault(id(layer.weights), (layer.weights, []))[1].append(row)
    return list(rows.values())


def _wide_product(values: Rows, weights: Rows) -> Rows:
    """Return values [k, inputs] times weights [units, inputs] transposed, a row at a time."""
    products = np.empty((len(values), len(weights), 1), np.float32)
    columns = values[:, :, np.newaxis]
    for first in range(0, len(weights), PIECE):
        piece = slice(first, first + PIECE)
        np.matmul(weights[piece], columns, out=products[:, piece])
    return products[:, :, 0]
