"""Batched layers in NumPy: one stacked product a layer, one matrix a slot.

``numpy.matmul`` on a stack calls BLAS once for each slot, so a slot's bits do not depend on the
others; a test holds it to that. Measured on two cores for 32 slots of 17-64-64-6 in float32: 17 us
a forward pass, against 31 us for a single HalfCheetah step of one slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, final

import numpy as np

from esbench.arrays import Shapes, Vector
from esbench.policies.base import PolicyBatch, Rows

Activation: TypeAlias = Literal["tanh", "relu", "identity"]


def _relu(values: Rows, out: Rows) -> Rows:
    return np.maximum(values, np.float32(0.0), out=out)


def _identity(values: Rows, out: Rows) -> Rows:
    return out


ACTIVATIONS: dict[Activation, Callable[[Rows, Rows], Rows]] = {
    "tanh": lambda values, out: np.tanh(values, out=out),
    "relu": _relu,
    "identity": _identity,
}


def layer_shapes(sizes: Sequence[int], bias: bool) -> Shapes:
    """Return the shapes of W1 [in, out], b1 [out], W2, b2, ... of layers of these sizes."""
    layers = (((i, o), (o,)) if bias else ((i, o),) for i, o in pairwise(sizes))
    return tuple(shape for layer in layers for shape in layer)


@final
class FeedForwardBatch(PolicyBatch):
    """Fully connected layers; parameters lie as W1 [in, out] row by row, b1, W2, b2, ..."""

    remembers = False

    def __init__(self, slots: int, sizes: Sequence[int], activation: Activation, bias: bool):
        pairs = list(pairwise(sizes))
        self._weights = [np.zeros((slots, i, o), np.float32) for i, o in pairs]
        self._biases = [np.zeros((slots, 1, o), np.float32) for _, o in pairs] if bias else []
        self._activate = ACTIVATIONS[activation]

    def load(self, slot: int, parameters: Vector) -> None:
        """Put a member's parameters [P] into a slot, rounded to float32."""
        start = 0
        for layer, weights in enumerate(self._weights):
            targets = [weights[slot], *(b[slot] for b in self._biases[layer : layer + 1])]
            for target in targets:
                target[...] = parameters[start : start + target.size].reshape(target.shape)
                start += target.size

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] for observations [k, inputs]."""
        k = len(observations)
        if live is None or 2 * len(live) > k:  # it takes longer to gather weights than to use them
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
                self._activate(values, values)
        return values[:, 0, :]
