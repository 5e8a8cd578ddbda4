"""Convolutional networks in NumPy: slot by slot, with shared weights in the full layers.

Every slot computes alone, so its bits do not depend on the others. Observations store images
channel by channel; here the channels come last, which makes copying all windows into one matrix
(im2col) much faster. A step allocates no memory for the convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from esbench.core.arrays import Shapes, Vector
from esbench.core.population import LowRankMember
from esbench.policies.kernels.feedforward import (
    ACTIVATIONS,
    Activation,
    FullLayer,
    Tensor,
    full_layers,
    is_wide,
    layer_shapes,
    wide_weights,
)
from esbench.policies.policy import LowRankBatch, ReferredBatch, Rows, SharingBatch

F = TypeVar("F", bound=np.floating[Any])


@final
class Layer(NamedTuple):
    """A convolution with square windows, and ``padding`` zeros beyond each edge."""

    channels: int
    window: int
    stride: int
    padding: int = 0

    def side(self, before: int) -> int:
        """Height or width of the output for an input of that height or width."""
        return (before + 2 * self.padding - self.window) // self.stride + 1


@final
class Architecture(NamedTuple):
    """The structure of a network."""

    image: tuple[int, int, int]  # channels, height and width
    layers: tuple[Layer, ...]
    hidden: tuple[int, ...]  # units of the fully connected layers
    outputs: int
    activation: Activation  # of all units except the outputs
    output_activation: Activation
    pixel_max: float  # divisor of the pixels

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Height and width of the image and of the output of each convolution."""
        found = [self.image[1:]]
        for layer in self.layers:
            height, width = found[-1]
            found.append((layer.side(height), layer.side(width)))
        return found

    @property
    def channels(self) -> list[int]:
        """The channels of the image and of the output of each convolution."""
        return [self.image[0], *(layer.channels for layer in self.layers)]

    @property
    def features(self) -> int:
        """The size of the output of the last convolution."""
        return math.prod(self.sides[-1]) * self.channels[-1]

    @property
    def convolution_shapes(self) -> Shapes:
        """W1 [window * window * channels before, channels], b1, W2, ... of the convolutions.

        The rows of a matrix are ordered by window row, window column and channel.
        """
        layers = zip(self.layers, self.channels, strict=False)
        pairs = [((layer.window**2 * before, layer.channels), layer) for layer, before in layers]
        return tuple(shape for matrix, layer in pairs for shape in (matrix, (layer.channels,)))

    @property
    def shapes(self) -> Shapes:
        """Those of the convolutions, and W, b of the fully connected layers.

        The rows of the first full layer are ordered by image row, image column and channel.
        """
        sizes = (self.features, *self.hidden, self.outputs)
        return self.convolution_shapes + layer_shapes(sizes, bias=True)


@final
class Convolution:
    """A convolution over a fixed block of memory, which all slots use in turn.

    ``image`` is its input and ``output`` the result of the last call, [height, width, channels].
    """

    def __init__(self, image: Rows, layer: Layer, activate: Callable[[Rows], None]) -> None:
        height, width, before = image.shape
        channels, window, stride, edge = layer
        rows, columns = layer.side(height), layer.side(width)
        self.image = self._inside = image
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
        if self._inside is not self.image:
            self._inside[...] = self.image
        self._copies[...] = self._windows
        np.matmul(self._matrix, weights, out=self._rows)


@final
class ConvolutionStack:
    """All convolutions of a network, from pixels to features; each writes the next one's input."""

    def __init__(self, architecture: Architecture) -> None:
        channels, height, width = self._image = architecture.image
        self._scale = np.float32(1.0 / architecture.pixel_max)
        self._input = output = np.zeros((height, width, channels), np.float32)
        self.convolutions: list[Convolution] = []
        for layer in architecture.layers:
            convolution = Convolution(output, layer, ACTIVATIONS[architecture.activation])
            self.convolutions.append(convolution)
            output = convolution.output
        self._features = output.reshape(-1)

    def __call__(self, row: Rows, parameters: Iterable[tuple[Rows, Rows]]) -> Rows:
        """Compute features of an observation [inputs]; the next call overwrites them.

        ``parameters`` are the weights and the bias of each convolution.
        """
        image = row.reshape(self._image).transpose(1, 2, 0)
        np.multiply(image, self._scale, out=self._input)
        for convolution, (weights, bias) in zip(self.convolutions, parameters, strict=True):
            convolution(weights, bias)
        return self._features


def split_tensors(parameters: npt.NDArray[F], shapes: Shapes) -> list[npt.NDArray[F]]:
    """The tensors of parameters [P], as views."""
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    slices = zip([0, *ends], ends, shapes, strict=False)
    return [parameters[start:end].reshape(shape) for start, end, shape in slices]


@final
class _MemberLayers(NamedTuple):
    convolutions: list[tuple[Rows, Rows]]  # W and b of each
    full: list[FullLayer]


@final
class ConvBatch(SharingBatch, LowRankBatch):
    """Convolutions, then fully connected layers, with the parameters of ``Architecture``."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture) -> None:
        self._shapes = architecture.shapes
        self._slots: list[_MemberLayers | None] = [None] * slots
        self._activate = ACTIVATIONS[architecture.activation]
        self._activate_outputs = ACTIVATIONS[architecture.output_activation]
        self._convolve = ConvolutionStack(architecture)
        self._depth = depth = len(architecture.layers)
        self._features, self._outputs = architecture.features, architecture.outputs
        layers = list(enumerate(self._shapes[::2]))
        self._wide = [number for number, shape in layers[depth:] if is_wide(*shape)]
        self.takes_low_rank = bool(self._wide)  # sharing the weights of a wide layer is faster
        # Members around one center share the weights of its wide layers, stored by layer number.
        self._center: Vector | None = None
        self._shared: dict[int, Rows] = {}

    def load(self, slot: int, parameters: Tensor) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        self._slots[slot] = None  # free its memory first
        self._slots[slot] = self._network(split_tensors(parameters, self._shapes), {})

    def load_low_rank(self, slot: int, member: LowRankMember) -> None:
        """Load a member into a slot; its wide layers are those of the center plus factors."""
        self._slots[slot] = None
        parts = split_tensors(member.center, self._shapes)
        if self._center is not member.center:
            self._center = member.center
            self._shared = {number: wide_weights(parts[2 * number]) for number in self._wide}
        wide: dict[int, tuple[Rows, tuple[Rows, Rows]]] = {}
        for index, factors in enumerate(member.factors):
            if isinstance(factors, np.ndarray):
                parts[index] = parts[index] + member.scale * factors
            elif index // 2 in self._wide:
                a, b = factors
                added = (member.scale * a).astype(np.float32), b.astype(np.float32)
                wide[index // 2] = self._shared[index // 2], added
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

    def share(self, slot: int, source: int) -> None:
        """Let a slot use the parameters of another slot."""
        self._slots[slot] = self._slots[source]

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs]; zeros for slots not live."""
        rows = range(len(observations)) if live is None else live
        networks = [network for slot in rows if (network := self._slots[slot]) is not None]
        features = np.empty((len(rows), self._features), np.float32)
        for row, slot, network in zip(features, rows, networks, strict=True):
            row[:] = self._convolve(observations[slot], network.convolutions)
        values = full_layers(features, [network.full for network in networks], self._activate)
        self._activate_outputs(values)
        if live is None:
            return values
        outputs = np.zeros((len(observations), self._outputs), np.float32)
        outputs[rows] = values
        return outputs


EPSILON: Final = 1e-3  # of virtual batch normalization


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
    """Convolutional networks with virtual batch normalization, folded into their weights.

    Salimans et al. 2016, "Improved techniques for training GANs" (arXiv:1606.03498), section 3.4;
    used for ES on Atari games in Salimans et al. 2017 (arXiv:1703.03864), section 2.2. The input x
    of a unit's activation becomes gamma * (x - mean) / sqrt(variance + epsilon) + beta, with mean
    and variance of the same member's x over a reference batch of observations (and over all
    positions of a convolution). The first paper includes the current example in the batch. The code
    of the ES papers (ESAtariPolicy of uber-research/deep-neuroevolution, with the same epsilon)
    does not, and neither does this: so the statistics are constants of a member, and ``load`` folds
    them into the weights of an equivalent network without normalization. A step costs the same.
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
