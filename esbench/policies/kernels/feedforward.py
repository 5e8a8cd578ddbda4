"""Activations, and fully connected layers in NumPy.

``FeedForwardBatch`` computes one stacked product per layer. ``numpy.matmul`` on a stack calls BLAS
once per slot, so the bits of a slot do not depend on the other slots.

``full_layers`` is for slots that can share weights. Memory limits the speed of a large layer: the
weights of 3136 x 512 units do not fit into the cache. Slots share weights if they play episodes of
one member, or members with low-rank noise around one center (Sarkar et al. 2025,
arXiv:2511.16652): x (W + s A B^T) = x W + s (x A) B^T. The weights are processed in pieces that
stay in the cache while each slot is multiplied by them on its own. One product for several rows
would be faster still, but BLAS rounds differently for different numbers of rows, so the bits of a
slot would depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Shapes, Vector
from esbench.policies.policy import PolicyBatch, Rows

Activation: TypeAlias = Literal["tanh", "relu", "elu", "selu", "gelu", "sigmoid", "identity"]
HALF: Final = np.float32(0.5)
SQRT_HALF: Final = np.float32(0.5**0.5)
SELU_SCALE: Final = np.float32(1.0507009873554805)
SELU_ALPHA: Final = np.float32(1.6732632423543772)


def _identity(values: Rows) -> None:
    pass


def _tanh(values: Rows) -> None:
    np.tanh(values, out=values)


def _relu(values: Rows) -> None:
    np.maximum(values, np.float32(0.0), out=values)


def _elu(values: Rows) -> None:
    """Clevert et al. 2016, "Fast and accurate deep network learning by ELUs", with alpha = 1."""
    negative = np.expm1(np.minimum(values, np.float32(0.0)))
    np.maximum(values, np.float32(0.0), out=values)
    values += negative


def _selu(values: Rows) -> None:
    """Klambauer et al. 2017, "Self-normalizing neural networks", eq. 2."""
    negative = np.expm1(np.minimum(values, np.float32(0.0)))
    np.maximum(values, np.float32(0.0), out=values)
    values += SELU_ALPHA * negative
    values *= SELU_SCALE


def _gelu(values: Rows) -> None:
    """Hendrycks & Gimpel 2016, "Gaussian error linear units": x Phi(x), not its approximation."""
    from scipy.special import erf  # on first use, because importing SciPy takes time

    chances = erf(values * SQRT_HALF)
    chances += np.float32(1.0)
    chances *= HALF
    values *= chances


def _sigmoid(values: Rows) -> None:
    """Compute 1 / (1 + exp(-x)) without an exponential that could overflow."""
    values *= HALF
    np.tanh(values, out=values)
    values *= HALF
    values += HALF


ACTIVATIONS: Final[dict[Activation, Callable[[Rows], None]]] = {
    "identity": _identity,
    "tanh": _tanh,
    "relu": _relu,
    "elu": _elu,
    "selu": _selu,
    "gelu": _gelu,
    "sigmoid": _sigmoid,
}


def layer_shapes(sizes: Sequence[int], bias: bool) -> Shapes:
    """The shapes of W1 [in, out], b1 [out], W2, b2, ... of layers of these sizes."""
    layers = (((i, o), (o,)) if bias else ((i, o),) for i, o in pairwise(sizes))
    return tuple(shape for layer in layers for shape in layer)


@final
class FeedForwardBatch(PolicyBatch):
    """Fully connected layers; the parameters are W1 [in, out] row by row, b1, W2, b2, ..."""

    remembers = False

    def __init__(
        self,
        slots: int,
        sizes: Sequence[int],
        activation: Activation,
        output_activation: Activation,
        bias: bool,
    ) -> None:
        pairs = list(pairwise(sizes))
        self._weights = [np.zeros((slots, i, o), np.float32) for i, o in pairs]
        self._biases = [np.zeros((slots, 1, o), np.float32) for _, o in pairs] if bias else []
        self._activate = ACTIVATIONS[activation]
        self._activate_outputs = ACTIVATIONS[output_activation]

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        start = 0
        for layer, weights in enumerate(self._weights):
            targets = [weights[slot], *(b[slot] for b in self._biases[layer : layer + 1])]
            for target in targets:
                target[...] = parameters[start : start + target.size].reshape(target.shape)
                start += target.size

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs]."""
        k = len(observations)
        if live is None or 2 * len(live) > k:  # gathering weights would take longer
            return self._forward(observations, slice(k))
        outputs = np.zeros((k, self._weights[-1].shape[2]), np.float32)
        slots = list(live) if len(live) > 1 else slice(live[0], live[0] + 1)
        outputs[slots] = self._forward(observations[slots], slots)
        return outputs

    def _forward(self, observations: Rows, slots: slice | list[int]) -> Rows:
        values = observations[:, None, :]
        last = len(self._weights) - 1
        for layer, weights in enumerate(self._weights):
            values = np.matmul(values, weights[slots])
            if self._biases:
                values += self._biases[layer][slots]
            if layer < last:
                self._activate(values)
        self._activate_outputs(values)
        return values[:, 0, :]


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


def full_layers(
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
