"""Virtual batch normalization, folded into the weights of a convolutional network.

Salimans et al. 2016, "Improved techniques for training GANs" (arXiv:1606.03498), section 3.4; used
for ES on Atari games in Salimans et al. 2017 (arXiv:1703.03864), section 2.2. The input x of a
unit's activation becomes gamma * (x - mean) / sqrt(variance + epsilon) + beta, with mean and
variance of the same member's x over a reference batch of observations (and over all positions of a
convolution). The first paper includes the current example in the batch. The code of the ES papers
(ESAtariPolicy of uber-research/deep-neuroevolution, with the same epsilon) does not, and neither
does this: so the statistics are constants of a member, and the linear layer absorbs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from esbench.core.arrays import Shapes, Vector
from esbench.policies.kernels.convolution import (
    Architecture,
    ConvBatch,
    Convolution,
    ConvolutionStack,
    split_tensors,
)
from esbench.policies.kernels.feedforward import ACTIVATIONS
from esbench.policies.policy import ReferredBatch, Rows, SharingBatch

EPSILON: Final = 1e-3


def scale_and_shift(sums: Rows, gamma: Rows, beta: Rows) -> tuple[Rows, Rows]:
    """The normalization ``x * scale + shift``, [units] each, of a layer's ``sums`` [R, ..., units].

    R is the size of the reference batch.
    """
    mean = _means(sums)
    squares = sums - mean.astype(np.float32)
    variance = _means(np.square(squares, out=squares))
    scale = gamma / np.sqrt(variance + EPSILON)
    return scale.astype(np.float32), (beta - mean * scale).astype(np.float32)


def _means(values: Rows) -> Vector:
    """The mean of each unit [units]; summed over observations first, along contiguous rows."""
    totals = values.reshape(len(values), -1).sum(axis=0, dtype=np.float64)
    units = values.shape[-1]
    means: Vector = totals.reshape(-1, units).sum(axis=0) / (values.size // units)
    return means


def member_shapes(architecture: Architecture) -> Shapes:
    """W, gamma, beta of every layer except the last, then its W and b; other biases cancel."""
    *before, weights, bias = architecture.shapes
    pairs = list(zip(before[::2], before[1::2], strict=True))
    normalized = [shape for matrix, units in pairs for shape in (matrix, units, units)]
    return (*normalized, weights, bias)


@final
class NormalizedBatch(ReferredBatch, SharingBatch):
    """Convolutional networks with virtual batch normalization.

    ``load`` computes the statistics and folds them into the weights of an equivalent network
    without normalization, so that a step costs the same.
    """

    remembers = False

    def __init__(self, slots: int, architecture: Architecture) -> None:
        self._batch = ConvBatch(slots, architecture)
        self._shapes = member_shapes(architecture)
        self._scale = np.float32(1.0 / architecture.pixel_max)
        self._activate = ACTIVATIONS[architecture.activation]
        self._image = architecture.image
        self._convolutions = ConvolutionStack(architecture).convolutions
        self._reference: Rows | None = None
        self._latest: tuple[Rows, Rows] | None = None  # a member, and its folded parameters

    def refer(self, observations: Rows) -> None:
        """Set the reference batch [R, inputs]."""
        images = observations.reshape(-1, *self._image).transpose(0, 2, 3, 1)
        self._reference = np.multiply(images, self._scale, order="C")
        self._latest = None

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member, with shapes ``member_shapes``, into a slot."""
        member = parameters.astype(np.float32)  # often the same as in the previous call
        if self._latest is None or not np.array_equal(self._latest[0], member):
            self._latest = member, self.folded(member)
        self._batch.load(slot, self._latest[1])

    def share(self, slot: int, source: int) -> None:
        """Let a slot use the parameters of another slot."""
        self._batch.share(slot, source)

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        return self._batch.forward(observations, live)

    def folded(self, member: Rows) -> Rows:
        """W and b of each layer of the equivalent network, from parameters of ``member_shapes``."""
        assert self._reference is not None, "call refer first"
        *tensors, last_weights, last_bias = split_tensors(member, self._shapes)
        values = self._reference
        parts: list[Rows] = []
        for number in range(len(tensors) // 3):
            weights, gamma, beta = tensors[3 * number : 3 * number + 3]
            if number < len(self._convolutions):
                values = _sums(self._convolutions[number], values, weights)
            else:
                values = values.reshape(len(values), -1) @ weights
            scale, shift = scale_and_shift(values, gamma, beta)
            parts += [(weights * scale).reshape(-1), shift]
            values *= scale
            values += shift
            self._activate(values)
        return np.concatenate([*parts, last_weights.reshape(-1), last_bias])


def _sums(convolution: Convolution, images: Rows, weights: Rows) -> Rows:
    """The sums of a convolution for images [R, height, width, channels]."""
    sums = np.zeros((len(images), *convolution.output.shape), np.float32)
    for image, target in zip(images, sums, strict=True):
        convolution.image[...] = image
        convolution.sum(weights)
        target[...] = convolution.output
    return sums
