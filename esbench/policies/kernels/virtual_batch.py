"""Virtual batch normalisation, folded into the weights of a convolutional network.

Salimans et al. 2016, "Improved techniques for training GANs" (arXiv:1606.03498), section 3.4; used
for ES on Atari games in Salimans et al. 2017 (arXiv:1703.03864), section 2.2. What a unit computes,
x, becomes gamma * (x - mean) / sqrt(variance + epsilon) + beta before its activation, with mean and
variance of the same member's x over a reference batch of observations; of a convolution, over the
places too. The first paper counts the example itself among them. The code of the ES papers does
not (ESAtariPolicy of uber-research/deep-neuroevolution, whose epsilon this is), and nor does this:
so the statistics are constants of a member, and x, which is linear, takes them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import numpy as np

from esbench.arrays import Shapes, Vector
from esbench.policies.base import PolicyBatch, Rows
from esbench.policies.kernels.convolution import (
    ACTIVATIONS,
    Architecture,
    Convolution,
    ConvolutionalBatch,
)

EPSILON: Final = 1e-3


class Factors(NamedTuple):
    """What normalisation does to a layer: ``x * scale + shift``, [units] each."""

    scale: Rows
    shift: Rows


def factors(sums: Rows, gamma: Rows, beta: Rows) -> Factors:
    """Return the factors of a layer that computed ``sums`` [R, ..., units] for R observations."""
    mean = _means(sums)
    squares = sums - mean.astype(np.float32)
    variance = _means(np.square(squares, out=squares))
    scale = gamma / np.sqrt(variance + EPSILON)
    return Factors(scale.astype(np.float32), (beta - mean * scale).astype(np.float32))


def _means(values: Rows) -> Vector:
    """Return the mean of each unit [units] over all else; observations first, for long runs."""
    totals = values.reshape(len(values), -1).sum(axis=0, dtype=np.float64)
    units = values.shape[-1]
    means: Vector = totals.reshape(-1, units).sum(axis=0) / (values.size // units)
    return means


def member_shapes(architecture: Architecture) -> Shapes:
    """Return W, gamma, beta of every layer but the last, and W, b of that; a bias would cancel."""
    *before, weights, bias = architecture.shapes
    pairs = list(zip(before[::2], before[1::2], strict=True))
    normalized = [shape for matrix, units in pairs for shape in (matrix, units, units)]
    return (*normalized, weights, bias)


@final
class VirtualBatch(PolicyBatch):
    """Convolutional networks with normalised layers, as ones without whose outputs are the same.

    Loading another member than the last one takes, with a reference batch of 128 images of 4 x 84 x
    84 and one thread (CPU time, medians of twelve), 19 ms for small_conv, 35 ms for openai_conv and
    85 ms for nature_conv; a step takes 0.13, 0.32 and 0.80 ms, as without normalisation. Of the
    shortest episodes of Pong, 760 steps with 0.44 ms in the emulator, that is 4, 6 and 9 %.
    """

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, pixel_max: float) -> None:
        self._batch = ConvolutionalBatch(slots, architecture, pixel_max)
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
        self._latest: tuple[Rows, Rows] | None = None  # a member, and what was made of it

    def refer(self, observations: Rows) -> None:
        """Take the reference batch [R, inputs]."""
        images = observations.reshape(-1, *self._image).transpose(0, 2, 3, 1)
        self._reference = np.multiply(images, self._scale, order="C")
        self._latest = None

    def load(self, slot: int, parameters: Vector) -> None:
        """Put a member's parameters [P] into a slot; they lie as ``member_shapes`` says."""
        member = parameters.astype(np.float32)
        if self._latest is None or not np.array_equal(self._latest[0], member):
            self._latest = member, self._folded(member)
        self._batch.load(slot, self._latest[1])  # a member's episodes mostly come one after another

    def share(self, slot: int, source: int) -> bool:
        """Let a slot use the parameters that another one has loaded."""
        return self._batch.share(slot, source)

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] for observations [k, inputs], a live slot at a time."""
        return self._batch.forward(observations, live)

    def _folded(self, member: Rows) -> Rows:
        """Return W and b of every layer, one after the other."""
        ends = np.cumsum([np.prod(shape) for shape in self._shapes])[:-1].tolist()
        tensors = [
            part.reshape(shape)
            for part, shape in zip(np.split(member, ends), self._shapes, strict=True)
        ]
        parts: list[Rows] = []
        for weights, (scale, shift) in zip(tensors[:-2:3], self._factors(tensors), strict=True):
            parts += [(weights * scale).reshape(-1), shift]
        return np.concatenate([*parts, tensors[-2].reshape(-1), tensors[-1]])

    def _factors(self, tensors: Sequence[Rows]) -> list[Factors]:
        """Return the factors of each layer, from the first to the last but one."""
        found: list[Factors] = []
        assert self._reference is not None, "refer first"
        values = self._reference
        for number in range(len(tensors) // 3):
            weights, gamma, beta = tensors[3 * number : 3 * number + 3]
            if number < len(self._convolutions):
                values = self._sums(number, values, weights)
            else:
                values = values.reshape(len(values), -1) @ weights
            found.append(factors(values, gamma, beta))
            values *= found[-1].scale
            values += found[-1].shift
            self._activate(values)
        return found

    def _sums(self, number: int, images: Rows, weights: Rows) -> Rows:
        """Return what a convolution computes of images [R, height, width, channels], alike."""
        convolution = self._convolutions[number]
        sums = np.zeros((len(images), *convolution.output.shape), np.float32)
        for image, target in zip(images, sums, strict=True):
            self._inputs[number][...] = image
            convolution.sum(weights)
            target[...] = convolution.output
        return sums
