"""Fully connected layers of slots that can share weights.

Memory limits the speed of a large layer: the weights of 3136 x 512 units do not fit into the cache.
Slots share weights if they play episodes of one member, or members with low-rank noise around one
center (Sarkar et al. 2025, arXiv:2511.16652): x (W + s A B^T) = x W + s (x A) B^T. The weights are
processed in pieces that stay in the cache while each slot is multiplied by them on its own. One
product for several rows would be faster still, but BLAS rounds differently for different numbers of
rows, so the bits of a slot would depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.policies.base import Rows

Tensor: TypeAlias = npt.NDArray[np.floating[Any]]  # parameters before rounding to float32

WIDE: Final = 2**16  # weights; smaller matrices fit into the cache
PIECE: Final = 128  # units per piece


@final
@dataclass(frozen=True, eq=False)
class FullLayer:
    """One layer of one slot: y = x W + (x A) B + b."""

    weights: Rows  # W [inputs, units]; transposed in a wide layer, where slots can share it
    bias: Rows  # b [units]
    factors: tuple[Rows, Rows] | None = None  # A [inputs, r] and B [r, units]

    @classmethod
    def of(cls, weights: Tensor, bias: Tensor) -> FullLayer:
        """A layer with weights [inputs, units] of its own, rounded to float32."""
        wide = is_wide(*weights.shape)
        rounded = wide_weights(weights) if wide else weights.astype(np.float32)
        return cls(rounded, bias.astype(np.float32))


def is_wide(inputs: int, units: int) -> bool:
    """Whether a layer is computed in pieces, shared or not."""
    return inputs * units >= WIDE


def wide_weights(weights: Tensor) -> Rows:
    """The weights [inputs, units] of a wide layer in its storage order, [units, inputs]."""
    return np.ascontiguousarray(weights.astype(np.float32).T)


def forward(
    values: Rows, slots: Sequence[Sequence[FullLayer]], activate: Callable[[Rows], None]
) -> Rows:
    """Compute the outputs [k, outputs] of the layers of k slots for ``values`` [k, inputs].

    ``activate`` is applied in place to the sums of every layer except the last.
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
    """Each distinct matrix with the rows that are multiplied by it."""
    rows: dict[int, tuple[Rows, list[int]]] = {}
    for row, layer in enumerate(layers):
        rows.setdefault(id(layer.weights), (layer.weights, []))[1].append(row)
    return list(rows.values())


def _wide_product(values: Rows, weights: Rows) -> Rows:
    """Multiply values [k, inputs] by weights [units, inputs] transposed, row by row."""
    products = np.empty((len(values), len(weights), 1), np.float32)
    columns = values[:, :, np.newaxis]
    for first in range(0, len(weights), PIECE):
        piece = slice(first, first + PIECE)
        np.matmul(weights[piece], columns, out=products[:, piece])
    return products[:, :, 0]
