"""Convolutional networks in NumPy: one slot after the other, full layers with weights in common.

Every slot computes alone, so its bits cannot depend on the others. Images lie channel by channel in
a row; here the channels come last, so that a window is a few runs of memory and its copy (of all
windows into one matrix: im2col) costs a third. Nothing is allocated in a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from esbench.algorithms.population import LowRankMember
from esbench.arrays import Shapes, Vector
from esbench.policies.base import PolicyBatch, Rows
from esbench.policies.kernels import full_layers
from esbench.policies.kernels.full_layers import FullLayer, Tensor, is_wide, wide_weights

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
@dataclass(frozen=True, eq=False)
class _Network:
    """The parameters of one member, in whatever slots it plays.

    Attributes:
        convolutions: weights and bias of each.
        full: the layers after them.
    """

    convolutions: list[tuple[Rows, Rows]]
    full: list[FullLayer]


@final
@dataclass(frozen=True, eq=False)
class _Center:
    """What all members around a centre have in common.

    Attributes:
        parameters: [P], the centre.
        wide: weights of its wide layers, by number of the layer; as ``FullLayer`` keeps them.
    """

    parameters: Vector
    wide: dict[int, Rows]


@final
class ConvolutionalBatch(PolicyBatch):
    """Convolutions, then fully connected layers; parameters lie as ``Architecture.shapes`` says."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, pixel_max: float) -> None:
        self._shapes = architecture.shapes
        self._slots: list[_Network | None] = [None] * slots
        self._center: _Center | None = None
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
        depth = len(self._convolutions)
        layers = list(enumerate(self._shapes[::2]))
        self._wide = [number for number, shape in layers[depth:] if is_wide(*shape)]

    def load(self, slot: int, parameters: Tensor) -> None:
        """Put a member's parameters [P] into a slot, rounded to float32."""
        self._slots[slot] = None  # its memory is free for what follows
        self._slots[slot] = self._network(self._split(parameters), {})

    @property
    def takes_low_rank(self) -> bool:
        """Whether there is a wide layer, whose weights are worth sharing."""
        return bool(self._wide)

    def load_low_rank(self, slot: int, member: LowRankMember) -> None:
        """Put a member into a slot; its wide layers are the centre's, and what it adds to them."""
        self._slots[slot] = None
        parts = self._split(member.center)
        if self._center is None or self._center.parameters is not member.center:
            weights = {number: wide_weights(parts[2 * number]) for number in self._wide}
            self._center = _Center(member.center, weights)
        wide: dict[int, tuple[Rows, tuple[Rows, Rows]]] = {}
        for index, factors in enumerate(member.factors):
            if isinstance(factors, np.ndarray):
                parts[index] = parts[index] + member.scale * factors
            elif index // 2 in self._wide:
                a, b = factors
                added = (member.scale * a).astype(np.float32), b.astype(np.float32)
                wide[index // 2] = self._center.wide[index // 2], added
            else:
                product = np.einsum("ir,rj->ij", *factors)  # not BLAS: as in a whole row of noise
                parts[index] = parts[index] + member.scale * product.reshape(parts[index].shape)
        self._slots[slot] = self._network(parts, wide)

    def _split(self, parameters: Tensor) -> list[Tensor]:
        """Return each tensor of parameters [P], a view."""
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])
        parts = np.split(parameters, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _network(
        self, parts: Sequence[Tensor], wide: Mapping[int, tuple[Rows, tuple[Rows, Rows]]]
    ) -> _Network:
        """Return layers of tensors, but of weights in common and what is added in ``wide``."""
        convolutions, full = [], []
        for number, (weights, bias) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            if number < len(self._convolutions):
                convolutions.append((weights.astype(np.float32), bias.astype(np.float32)))
            elif number in wide:
                shared, added = wide[number]
                full.append(FullLayer(shared, bias.astype(np.float32), added))
            else:
                full.append(FullLayer.of(weights, bias))
        return _Network(convolutions, full)

    def share(self, slot: int, source: int) -> bool:
        """Let a slot use the parameters that another one has loaded."""
        self._slots[slot] = self._slots[source]
        return True

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] for observations [k, inputs], zeros of slots not live."""
        rows = range(len(observations)) if live is None else live
        networks = [network for slot in rows if (network := self._slots[slot]) is not None]
        features = np.empty((len(rows), self._features.size), np.float32)
        for row, slot, network in zip(features, rows, networks, strict=True):
            row[:] = self._convolve(observations[slot], network)
        values = full_layers.forward(
            features, [network.full for network in networks], self._activate
        )
        if live is None:
            return values
        outputs = np.zeros((len(observations), self._outputs), np.float32)
        outputs[rows] = values
        return outputs

    def _convolve(self, row: Rows, network: _Network) -> Rows:
        image = row.reshape(self._image).transpose(1, 2, 0)
        np.multiply(image, self._scale, out=self._input)
        for convolution, (weights, bias) in zip(
            self._convolutions, network.convolutions, strict=True
        ):
            convolution(weights, bias)
        return self._features
