"""Convolutional networks in NumPy: slot by slot, with shared weights in the full layers.

Every slot computes alone, so its bits do not depend on the others. Observations store images
channel by channel; here the channels come last, which makes copying all windows into one matrix
(im2col) much faster. A step allocates no memory for the convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from esbench.algorithms.population import LowRankMember
from esbench.arrays import Shapes, Vector
from esbench.policies.base import LowRankBatch, Rows, SharingBatch
from esbench.policies.kernels import full_layers
from esbench.policies.kernels.activations import ACTIVATIONS, ImageActivation
from esbench.policies.kernels.full_layers import FullLayer, Tensor, is_wide, wide_weights

F = TypeVar("F", bound=np.floating[Any])


@final
class Layer(NamedTuple):
    """A convolution.

    Attributes:
        channels: number of output channels.
        window: side of the square window.
        stride: distance between two windows.
        padding: zeros beyond each edge.
    """

    channels: int
    window: int
    stride: int
    padding: int = 0

    def side(self, before: int) -> int:
        """Height or width of the output for an input of that height or width."""
        return (before + 2 * self.padding - self.window) // self.stride + 1


@final
class Architecture(NamedTuple):
    """The structure of a network.

    Attributes:
        image: channels, height and width of the input.
        layers: convolutions, first to last.
        hidden: units of the fully connected layers.
        outputs: size of the output.
        activation: of all units except the outputs.
    """

    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    hidden: tuple[int, ...]
    outputs: int
    activation: ImageActivation

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Height and width of the image and of the output of each convolution."""
        return sides(self.image, self.layers)

    @property
    def shapes(self) -> Shapes:
        """W1 [window * window * channels before, channels], b1, ..., and W, b of full layers.

        The rows of a convolution's matrix are ordered by window row, window column and channel,
        those of the first full layer by image row, image column and channel.
        """
        shapes, features = convolution_shapes(self.image, self.layers)
        for inputs, units in pairwise((features, *self.hidden, self.outputs)):
            shapes += ((inputs, units), (units,))
        return shapes


def sides(image: tuple[int, int, int], layers: Sequence[Layer]) -> list[tuple[int, int]]:
    """Height and width of an image [channels, height, width], and of each layer's output."""
    found = [image[1:]]
    for layer in layers:
        height, width = found[-1]
        found.append((layer.side(height), layer.side(width)))
    return found


def convolution_shapes(
    image: tuple[int, int, int], layers: Sequence[Layer]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """W1 [window * window * channels before, channels], b1, ..., and the number of features."""
    before, shapes = image[0], []
    for layer in layers:
        shapes += [(layer.window * layer.window * before, layer.channels), (layer.channels,)]
        before = layer.channels
    height, width = sides(image, layers)[-1]
    return tuple(shapes), height * width * before


@final
class Convolution:
    """A convolution over a fixed block of memory, which all slots use in turn.

    Attributes:
        output: of the last call, [height, width, channels].
    """

    def __init__(self, image: Rows, layer: Layer, activate: Callable[[Rows], None]) -> None:
        """Use the memory of ``image`` [height, width, channels] as input of every call."""
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
        """Write the output for the current image to ``output``."""
        self.sum(weights)
        self._rows += bias
        self._activate(self._rows)

    def sum(self, weights: Rows) -> None:
        """Write the sums of the windows to ``output``, without bias and activation."""
        if self._inside is not self._image:
            self._inside[...] = self._image
        self._copies[...] = self._windows
        np.matmul(self._matrix, weights, out=self._rows)


@final
class ConvolutionStack:
    """All convolutions of a network, from pixels to features."""

    def __init__(
        self,
        image: tuple[int, int, int],
        layers: Sequence[Layer],
        activation: ImageActivation,
        pixel_max: float,
    ) -> None:
        channels, height, width = self._image = image
        self._scale = np.float32(1.0 / pixel_max)
        self._input = np.zeros((height, width, channels), np.float32)
        self._convolutions: list[Convolution] = []
        output = self._input
        for layer in layers:
            self._convolutions.append(Convolution(output, layer, ACTIVATIONS[activation]))
            output = self._convolutions[-1].output
        self._features = output.reshape(-1)

    def __call__(self, row: Rows, parameters: Iterable[tuple[Rows, Rows]]) -> Rows:
        """Compute features of one observation; the next call overwrites them.

        Args:
            row: the observation, [inputs].
            parameters: weights and bias of each convolution.
        """
        image = row.reshape(self._image).transpose(1, 2, 0)
        np.multiply(image, self._scale, out=self._input)
        for convolution, (weights, bias) in zip(self._convolutions, parameters, strict=True):
            convolution(weights, bias)
        return self._features


def split_tensors(parameters: npt.NDArray[F], shapes: Shapes) -> list[npt.NDArray[F]]:
    """The tensors of parameters [P], as views."""
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    slices = zip([0, *ends], ends, shapes, strict=False)
    return [parameters[start:end].reshape(shape) for start, end, shape in slices]


@final
@dataclass(frozen=True, eq=False)
class _MemberLayers:
    """The parameters of one member, shared by its slots.

    Attributes:
        convolutions: weights and bias of each.
        full: the fully connected layers.
    """

    convolutions: list[tuple[Rows, Rows]]
    full: list[FullLayer]


@final
@dataclass(frozen=True, eq=False)
class _Center:
    """The weights that all members around a centre share.

    Attributes:
        parameters: of the centre, [P].
        wide: weights of its wide layers by layer number, stored as in ``FullLayer``.
    """

    parameters: Vector
    wide: dict[int, Rows]


@final
class ConvBatch(SharingBatch, LowRankBatch):
    """Convolutions, then fully connected layers, with the parameters of ``Architecture``."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, pixel_max: float) -> None:
        self._shapes = architecture.shapes
        self._slots: list[_MemberLayers | None] = [None] * slots
        self._center: _Center | None = None
        self._activate = ACTIVATIONS[architecture.activation]
        self._convolve = ConvolutionStack(
            architecture.image, architecture.layers, architecture.activation, pixel_max
        )
        self._depth = depth = len(architecture.layers)
        self._features, self._outputs = self._shapes[2 * depth][0], architecture.outputs
        layers = list(enumerate(self._shapes[::2]))
        self._wide = [number for number, shape in layers[depth:] if is_wide(*shape)]

    def load(self, slot: int, parameters: Tensor) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        self._slots[slot] = None  # free its memory first
        self._slots[slot] = self._network(split_tensors(parameters, self._shapes), {})

    @property
    def takes_low_rank(self) -> bool:
        """Whether there is a wide layer, for which sharing weights is faster."""
        return bool(self._wide)

    def load_low_rank(self, slot: int, member: LowRankMember) -> None:
        """Load a member into a slot; its wide layers are those of the centre plus factors."""
        self._slots[slot] = None
        parts = split_tensors(member.center, self._shapes)
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
                product = np.einsum("ir,rj->ij", *factors)  # not BLAS: as in a full row of noise
                parts[index] = parts[index] + member.scale * product.reshape(parts[index].shape)
        self._slots[slot] = self._network(parts, wide)

    def _network(
        self, parts: Sequence[Tensor], wide: Mapping[int, tuple[Rows, tuple[Rows, Rows]]]
    ) -> _MemberLayers:
        """Build layers from tensors; those in ``wide`` have shared weights and factors."""
        convolutions, full = [], []
        for number, (weights, bias) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            if number < self._depth:
                convolutions.append((weights.astype(np.float32), bias.astype(np.float32)))
            elif number in wide:
                shared, added = wide[number]
                full.append(FullLayer(shared, bias.astype(np.float32), added))
            else:
                full.append(FullLayer.of(weights, bias))
        return _MemberLayers(convolutions, full)

    def share(self, slot: int, source: int) -> bool:
        """Let a slot use the parameters of another slot."""
        self._slots[slot] = self._slots[source]
        return True

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs]; zeros for slots not live."""
        rows = range(len(observations)) if live is None else live
        networks = [network for slot in rows if (network := self._slots[slot]) is not None]
        features = np.empty((len(rows), self._features), np.float32)
        for row, slot, network in zip(features, rows, networks, strict=True):
            row[:] = self._convolve(observations[slot], network.convolutions)
        values = full_layers.forward(
            features, [network.full for network in networks], self._activate
        )
        if live is None:
            return values
        outputs = np.zeros((len(observations), self._outputs), np.float32)
        outputs[rows] = values
        return outputs
