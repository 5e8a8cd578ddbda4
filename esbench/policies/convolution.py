"""Convolutional networks in NumPy: a slot after the other, each with its own weights.

Every slot computes alone, so its bits cannot depend on the others. Images lie channel by channel in
a row; here the channels come last, so that a window is a few runs of memory and its copy (of all
windows into one matrix: im2col) costs a third. Nothing is allocated in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from esbench.noise import Shapes, Vector
from esbench.policies.base import PolicyBatch, Rows

ImageActivation: TypeAlias = Literal["relu", "elu", "selu", "tanh"]
SELU_SCALE = np.float32(1.0507009873554805)
SELU_ALPHA = np.float32(1.6732632423543772)


class Layer(NamedTuple):
    """A convolution.

    Attributes:
        channels: how many it makes.
        window: side of its square window.
        stride: step between two windows.
        padding: zeros beyond each edge.
    """

    channels: int
    window: int
    stride: int
    padding: int = 0

    def side(self, before: int) -> int:
        """Return the height or width of what it makes of an image with that height or width."""
        return (before + 2 * self.padding - self.window) // self.stride + 1


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


def _tanh(values: Rows) -> None:
    np.tanh(values, out=values)


ACTIVATIONS: dict[ImageActivation, Callable[[Rows], None]] = {
    "relu": _relu,
    "elu": _elu,
    "selu": _selu,
    "tanh": _tanh,
}


@final
class Architecture(NamedTuple):
    """What a network is made of.

    Attributes:
        image: channels, height and width of what it is shown.
        layers: convolutions, first to last.
        hidden: units of the fully connected layers.
        outputs: of the last one.
        activation: of all but the outputs.
    """

    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    hidden: tuple[int, ...]
    outputs: int
    activation: ImageActivation

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Height and width of the image and of what each convolution makes of it."""
        return sides(self.image, self.layers)

    @property
    def shapes(self) -> Shapes:
        """W1 [window * window * channels before, channels], b1, ..., and W, b of full layers.

        The rows of a convolution's matrix are ordered by row of the window, column and channel, and
        those of the first full one by row and column of the image, and channel.
        """
        shapes, features = convolution_shapes(self.image, self.layers)
        for inputs, units in pairwise((features, *self.hidden, self.outputs)):
            shapes += ((inputs, units), (units,))
        return shapes


def sides(image: tuple[int, int, int], layers: Sequence[Layer]) -> list[tuple[int, int]]:
    """Return height and width of an image [channels, height, width], and after each layer."""
    found = [image[1:]]
    for layer in layers:
        height, width = found[-1]
        found.append((layer.side(height), layer.side(width)))
    return found


def convolution_shapes(
    image: tuple[int, int, int], layers: Sequence[Layer]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return W1 [window * window * channels before, channels], b1, ..., and the numbers made."""
    before, shapes = image[0], []
    for layer in layers:
        shapes += [(layer.window * layer.window * before, layer.channels), (layer.channels,)]
        before = layer.channels
    height, width = sides(image, layers)[-1]
    return tuple(shapes), height * width * before


@final
class Convolution:
    """One convolution of one slot after the other, over a fixed piece of memory.

    Attributes:
        output: [height, width, channels], of the last one that was computed.
    """

    def __init__(self, image: Rows, layer: Layer, activate: Callable[[Rows], None]) -> None:
        """Look at ``image`` [height, width, channels], whatever it will hold."""
        height, width, before = image.shape
        channels, window, stride, edge = layer
        rows, columns = layer.side(height), layer.side(width)
        self._image = self._inside = image
        if edge:
            image = np.zeros((height + 2 * edge, width + 2 * edge, before), np.float32)
            self._inside = image[edge:-edge, edge:-edge]
        down, right, each = image.strides
        run = (rows, columns, window, window * before)
        self._windows = as_strided(image, run, (down * stride, right * stride, down, each))
        self._copies = np.zeros(run, np.float32)
        self._matrix = self._copies.reshape(rows * columns, window * window * before)
        self.output = np.zeros((rows, columns, channels), np.float32)
        self._rows = self.output.reshape(rows * columns, channels)
        self._activate = activate

    def __call__(self, weights: Rows, bias: Rows) -> None:
        """Leave what it makes of the image in ``output``."""
        self.sum(weights)
        self._rows += bias
        self._activate(self._rows)

    def sum(self, weights: Rows) -> None:
        """Leave the sums of the windows in ``output``, without bias and activation."""
        if self._inside is not self._image:
            self._inside[...] = self._image
        self._copies[...] = self._windows
        np.matmul(self._matrix, weights, out=self._rows)


@final
class ConvolutionalBatch(PolicyBatch):
    """Convolutions, then fully connected layers; parameters lie as ``Architecture.shapes`` says."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, pixel_max: float) -> None:
        self._shapes = architecture.shapes
        self._slots: list[list[Rows]] = [[] for _ in range(slots)]
        self._scale = np.float32(1.0 / pixel_max)
        self._activate = ACTIVATIONS[architecture.activation]
        channels, height, width = self._image = architecture.image
        self._input = np.zeros((height, width, channels), np.float32)
        self._convolutions: list[Convolution] = []
        image = self._input
        for layer in architecture.layers:
            self._convolutions.append(Convolution(image, layer, self._activate))
            image = self._convolutions[-1].output
        self._features = image.reshape(-1)
        self._outputs = architecture.outputs

    def load(self, slot: int, parameters: Vector | Rows) -> None:
        """Put a member's parameters [P] into a slot, rounded to float32."""
        if not self._slots[slot]:  # a slot that is never used costs no memory
            self._slots[slot] = [np.zeros(shape, np.float32) for shape in self._shapes]
        start = 0
        for target in self._slots[slot]:
            target[...] = parameters[start : start + target.size].reshape(target.shape)
            start += target.size

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] for observations [k, inputs], a live slot at a time."""
        outputs = np.zeros((len(observations), self._outputs), np.float32)
        for slot in range(len(observations)) if live is None else live:
            outputs[slot] = self._forward(observations[slot], self._slots[slot])
        return outputs

    def _forward(self, row: Rows, parameters: Sequence[Rows]) -> Rows:
        image = row.reshape(self._image).transpose(1, 2, 0)
        np.multiply(image, self._scale, out=self._input)
        pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
        for convolution, (weights, bias) in zip(self._convolutions, pairs, strict=False):
            convolution(weights, bias)
        values = self._features
        for weights, bias in pairs[len(self._convolutions) : -1]:
            values = values @ weights
            values += bias
            self._activate(values)
        weights, bias = pairs[-1]
        return values @ weights + bias
