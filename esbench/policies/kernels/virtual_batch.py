"""Virtual batch normalisation, folded into the weights of a convolutional network.

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
from typing import Final, NamedTuple, final

import numpy as np

from esbench.arrays import Shapes, Vector
from esbench.policies.base import ReferredBatch, Rows, SharingBatch
from esbench.policies.kernels.activations import ACTIVATIONS
from esbench.policies.kernels.convolution import (
    Architecture,
    ConvBatch,
    Convolution,
    split_tensors,
)

EPSILON: Final = 1e-3


@final
class ScaleAndShift(NamedTuple):
    """The normalisation of a layer: ``x * scale + shift``, [units] each."""

    scale: Rows
    shift: Rows


def scale_and_shift(sums: Rows, gamma: Rows, beta: Rows) -> ScaleAndShift:
    """The normalisation of a layer with ``sums`` [R, ..., units] for R observations."""
    mean = _means(sums)
    squares = sums - mean.astype(np.float32)
    variance = _means(np.square(squares, out=squares))
    scale = gamma / np.sqrt(variance + EPSILON)
    return ScaleAndShift(scale.astype(np.float32), (beta - mean * scale).astype(np.float32))


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
    """Convolutional networks with virtual batch normalisation.

    ``load`` computes the statistics and folds them into the weights of an equivalent network
    without normalisation, so that a step costs the same.
    """

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, pixel_max: float) -> None:
        self._batch = ConvBatch(slots, architecture, pixel_max)
        self._shapes = member_shapes(architecture)
        self._scale = np.float32(1.0 / pixel_max)
        self._activate = ACTIVATIONS[architecture.activation]
        self._image = architecture.image
        self._inputs: list[Rows] = []  # of the convolutions, for one image
        self._convolutions: list[Convolution] = []
        channels = [architecture.image[0], *(layer.channels for layer in architecture.layers)]
        for layer, side, depth in zip(
            architecture.layers, architecture.sides, channels, strict=False
        ):
            self._inputs.append(np.zeros((*side, depth), np.float32))
            self._convolutions.append(Convolution(self._inputs[-1], layer, self._activate))
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
            self._latest = member, self._folded(member)
        self._batch.load(slot, self._latest[1])

    def share(self, slot: int, source: int) -> bool:
        """Let a slot use the parameters of another slot."""
        return self._batch.share(slot, source)

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        return self._batch.forward(observations, live)

    def _folded(self, member: Rows) -> Rows:
        """W and b of every layer of the equivalent network, one after the other."""
        tensors = split_tensors(member, self._shapes)
        parts: list[Rows] = []
        layers = zip(tensors[:-2:3], self._normalization(tensors), strict=True)
        for weights, (scale, shift) in layers:
            parts += [(weights * scale).reshape(-1), shift]
        return np.concatenate([*parts, tensors[-2].reshape(-1), tensors[-1]])

    def _normalization(self, tensors: Sequence[Rows]) -> list[ScaleAndShift]:
        """The normalisation of each layer except the last."""
        found: list[ScaleAndShift] = []
        assert self._reference is not None, "call refer first"
        values = self._reference
        for number in range(len(tensors) // 3):
            weights, gamma, beta = tensors[3 * number : 3 * number + 3]
            if number < len(self._convolutions):
                values = self._sums(number, values, weights)
            else:
                values = values.reshape(len(values), -1) @ weights
            found.append(scale_and_shift(values, gamma, beta))
            values *= found[-1].scale
            values += found[-1].shift
            self._activate(values)
        return found

    def _sums(self, number: int, images: Rows, weights: Rows) -> Rows:
        """The sums of a convolution for images [R, height, width, channels]."""
        convolution = self._convolutions[number]
        sums = np.zeros((len(images), *convolution.output.shape), np.float32)
        for image, target in zip(images, sums, strict=True):
            self._inputs[number][...] = image
            convolution.sum(weights)
            target[...] = convolution.output
        return sums
