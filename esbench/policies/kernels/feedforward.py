"""Batched fully connected layers in NumPy: one stacked product per layer, one matrix per slot.

``numpy.matmul`` on a stack calls BLAS once per slot, so the bits of a slot do not depend on the
other slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import numpy as np

from esbench.core.arrays import Shapes, Vector
from esbench.policies.base import PolicyBatch, Rows
from esbench.policies.kernels.activations import ACTIVATIONS, Activation


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
