"""The networks of the policy templates in torch, and layers for users' own modules.

The arithmetic is float32, but in another order than NumPy's. The outputs agree within ``TOLERANCE``
of ``kernels.device``, relative to the largest output, or to 1 if that is smaller. The registry does
not import this folder, so listing the policies needs no torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch

from esbench.core.arrays import Shapes, Vector
from esbench.policies.kernels.convolution import EPSILON, Architecture, Layer, split_tensors
from esbench.policies.kernels.feedforward import Activation, Tensor
from esbench.policies.kernels.soft_argmax import FARTHEST, Detector, Frames, ordered, pixel_centers
from esbench.policies.normalization import Normalizer
from esbench.policies.policy import Rows

RecurrentState: TypeAlias = tuple[torch.Tensor, torch.Tensor]

MODULES: Final[dict[Activation, type[torch.nn.Module]]] = {
    "identity": torch.nn.Identity,
    "tanh": torch.nn.Tanh,
    "relu": torch.nn.ReLU,
    "elu": torch.nn.ELU,
    "selu": torch.nn.SELU,
    "gelu": torch.nn.GELU,
    "sigmoid": torch.nn.Sigmoid,
}


@final
class PolicyModule(torch.nn.Module):  # type: ignore[misc]
    """Observations [N, ...] to outputs [N, outputs], with the observation normalization inside.

    Attributes:
        network: the layers after the normalization.
        shape: that of an observation.
        mean, scale: [inputs], in float64; None without normalization.
    """

    def __init__(
        self, network: torch.nn.Module, shape: Sequence[int], normalizer: Normalizer | None
    ) -> None:
        super().__init__()
        self.network = network
        self.shape = tuple(shape)
        mean, scale, self.clip = None, None, 0.0
        if normalizer is not None:
            mean, scale = torch.tensor(normalizer.mean), torch.tensor(normalizer.scale)
            self.clip = normalizer.clip
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def initial_state(self, count: int) -> RecurrentState | None:
        """The state of a recurrent network at the start of ``count`` episodes, else None."""
        if not isinstance(self.network, Recurrent):
            return None
        zeros = torch.zeros(count, self.network.cell.hidden_size)
        return zeros, zeros.clone()

    def forward(self, observations: torch.Tensor, state: RecurrentState | None = None) -> Any:
        """Compute the outputs; a recurrent network returns (outputs, state).

        Raises:
            ValueError: the observations have neither the shape [N, *shape] nor [N, inputs].
        """
        shape = observations.shape[1:]  # tensors while tracing
        if not torch.jit.is_tracing() and shape not in {self.shape, (math.prod(self.shape),)}:
            raise ValueError(
                f"observations of shape {tuple(observations.shape)}: expected "
                f"({', '.join(map(str, ('N', *self.shape)))})"
            )
        rows = observations.reshape(observations.shape[0], math.prod(self.shape))
        if self.mean is not None:
            rows = ((rows.double() - self.mean) * self.scale).clamp(-self.clip, self.clip)
        return self.network(rows.float(), *([] if state is None else [state]))


@final
class Constant(torch.nn.Module):  # type: ignore[misc]
    """The same outputs for every input."""

    def __init__(self, outputs: Vector) -> None:
        super().__init__()
        self.outputs = _parameter(outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Repeat the outputs for each of N rows."""
        return self.outputs.expand(rows.shape[0], -1)


@final
class Scale(torch.nn.Module):  # type: ignore[misc]
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the product."""
        return values * self.factor


@final
class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """Convolutions, an LSTM cell and a linear layer, with the parameters of ``ConvLSTM``."""

    def __init__(self, parameters: Vector, architecture: Architecture, shapes: Shapes) -> None:
        super().__init__()
        *convolutions, gates, gate_bias, weights, bias = _split(parameters, shapes)
        features, (units,) = architecture.features, architecture.hidden
        self.features = torch.nn.Sequential(*_convolutions(convolutions, architecture))
        self.cell = torch.nn.utils.skip_init(torch.nn.LSTMCell, features, units)
        self.cell.weight_ih = _parameter(_channels_first(gates[:features], architecture).T)
        self.cell.weight_hh = _parameter(gates[features:].T)
        self.cell.bias_ih, self.cell.bias_hh = _parameter(gate_bias), _parameter(0 * gate_bias)
        last = MODULES[architecture.output_activation]()
        self.output = torch.nn.Sequential(_linear(weights, bias), last)

    def forward(
        self, rows: torch.Tensor, state: RecurrentState | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Compute outputs [N, outputs] and the next state (h, c), [N, units] each."""
        hidden, cells = self.cell(self.features(rows), state)
        return self.output(hidden), (hidden, cells)


@final
class SoftArgmax(torch.nn.Module):  # type: ignore[misc]
    """The keypoints of ``SoftArgmaxBatch``, their differences between frames, a linear layer."""

    def __init__(self, detector: Detector, frames: Frames, outputs: int | None) -> None:
        super().__init__()
        window, keypoints = frames.window, len(detector.filters)
        self._frames = frames
        made = torch.nn.utils.skip_init(
            torch.nn.Conv2d, 1, keypoints, window, padding=window // 2, bias=False
        )
        made.weight = _parameter(detector.filters.reshape(keypoints, 1, window, window))
        self.convolution = made
        self.priors = _parameter(detector.priors)
        self.linear = _linear(detector.weights, detector.bias)
        grid = torch.tensor(pixel_centers(frames.size), dtype=torch.float32)
        self.register_buffer("grid", grid, persistent=False)
        factors, offsets = (None, None) if outputs is None else map(torch.tensor, ordered(outputs))
        self.register_buffer("factors", factors, persistent=False)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Compute outputs [N, outputs]."""
        count, height, width = self._frames.shape
        top, bottom, left, right = self._frames.crop
        images = rows.reshape(-1, 1, height, width)
        images = images[:, :, top : height - bottom, left : width - right]
        logits = self.convolution(images).flatten(2) + self.priors
        places = (logits.softmax(2) @ self.grid).unflatten(0, (-1, count))
        steps = (places[:, 1:] - places[:, :-1]).clamp(-FARTHEST, FARTHEST)
        features = torch.cat([places[:, -1].flatten(1), steps.flatten(1)], dim=1)
        values = self.linear(features)
        return values if self.factors is None else values * self.factors + self.offsets


def feed_forward(
    parameters: Vector, shapes: Shapes, activation: Activation, last: Activation
) -> torch.nn.Sequential:
    """Fully connected layers with the parameters of ``FeedForwardBatch``."""
    return torch.nn.Sequential(*_full(_split(parameters, shapes), activation), MODULES[last]())


def convolutional(parameters: Tensor, architecture: Architecture) -> torch.nn.Sequential:
    """Convolutions, then fully connected layers, with the parameters of ``Architecture``."""
    tensors, depth = _split(parameters, architecture.shapes), 2 * len(architecture.layers)
    tensors[depth] = _channels_first(tensors[depth], architecture)
    return torch.nn.Sequential(
        *_convolutions(tensors[:depth], architecture),
        *_full(tensors[depth:], architecture.activation),
        MODULES[architecture.output_activation](),
    )


def _full(tensors: list[Rows], activation: Activation) -> list[torch.nn.Module]:
    """Layers of W1 [in, out], b1, W2, ..., or W1, W2, ...; none after the last activation."""
    layers: list[torch.nn.Module] = []
    for tensor in tensors:
        if tensor.ndim == 1:
            layers[-2].bias = _parameter(tensor)
        else:
            layers += [_linear(tensor), MODULES[activation]()]
    return layers[:-1]


def _linear(weights: Rows, bias: Rows | None = None) -> torch.nn.Linear:
    """A layer with weights [inputs, units]."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, *weights.shape, bias=False)
    layer.weight = _parameter(weights.T)
    layer.bias = None if bias is None else _parameter(bias)
    return layer


def _convolutions(tensors: list[Rows], architecture: Architecture) -> list[torch.nn.Module]:
    """Layers from flat pixels to flat features, ordered by channel, row and column."""
    layers = [Scale(1.0 / architecture.pixel_max), torch.nn.Unflatten(1, architecture.image)]
    pairs = zip(architecture.layers, architecture.channels, strict=False)
    for (layer, before), weights, bias in zip(pairs, tensors[::2], tensors[1::2], strict=True):
        layers += [_convolution(layer, before, weights, bias), MODULES[architecture.activation]()]
    return [*layers, torch.nn.Flatten()]


def _convolution(layer: Layer, before: int, weights: Rows, bias: Rows) -> torch.nn.Conv2d:
    window = layer.window
    made = torch.nn.utils.skip_init(torch.nn.Conv2d, before, *layer)
    windows = weights.reshape(window, window, before, layer.channels)
    made.weight, made.bias = _parameter(windows.transpose(3, 2, 0, 1)), _parameter(bias)
    return made


def _channels_first(weights: Rows, architecture: Architecture) -> Rows:
    """The rows [features, units] ordered by channel, row and column, as torch flattens images."""
    height, width = architecture.sides[-1]
    images = weights.reshape(height, width, -1, weights.shape[1])
    return images.transpose(2, 0, 1, 3).reshape(weights.shape)


def _split(parameters: Tensor, shapes: Shapes) -> list[Rows]:
    return split_tensors(parameters.astype(np.float32), shapes)


def _parameter(values: Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(values, np.float32, order="C")))


@final
class VirtualBatchNorm(torch.nn.Module):  # type: ignore[misc]
    """Virtual batch normalization, with the statistics of the same member on a reference batch.

    Computes gamma * (x - mean) / sqrt(variance + eps) + beta, with mean and variance of x over the
    reference batch (sources in ``kernels.convolution``). The policy template ``module`` finds
    these layers, gathers the batch and passes it to every member once: an input of shape
    [R, num_inputs] instead of the [1, num_inputs] of a step.

    Attributes:
        weight, bias: gamma and beta, [num_features], initially 1 and 0; trained.
        mean, variance: [num_features]; None before the reference batch.
        measuring: whether the next input is the reference batch.
    """

    def __init__(self, num_features: int, eps: float = EPSILON) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.mean: torch.Tensor | None
        self.variance: torch.Tensor | None
        self.register_buffer("mean", None)
        self.register_buffer("variance", None)
        self.measuring = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize x [N, C] or [N, C, H, W] per channel; torch refuses x before a batch."""
        if self.measuring:
            every = [axis for axis in range(x.ndim) if axis != 1]
            variance, mean = torch.var_mean(x.double(), every, correction=0)
            self.mean, self.variance = mean.to(x.dtype), variance.to(x.dtype)
        return torch.nn.functional.batch_norm(
            x, self.mean, self.variance, self.weight, self.bias, eps=self.eps
        )


@final
class Images(torch.nn.Module):  # type: ignore[misc]
    """Turns flat observations [N, inputs] into images [N, C, H, W].

    ``shape`` is that of an observation: [H, W], [..., H, W, C] or [..., C, H, W]. The channels are
    the smaller of these two axes. Axes before, such as stacked frames, become channels too.

    Attributes:
        size: (C, H, W).
    """

    def __init__(self, shape: Sequence[int], pixels: tuple[float, float] | None) -> None:
        """Scale from the lowest and highest pixel to [0, 1]; None for no scaling."""
        super().__init__()
        *_, first, middle, last = self._shape = tuple(shape) if len(shape) > 2 else (1, *shape)
        self._last = last < first  # the channels
        height, width = (first, middle) if self._last else (middle, last)
        self.size = math.prod(shape) // (height * width), height, width
        self._pixels = pixels

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Compute the images."""
        images = rows.reshape(rows.shape[0], -1, *self._shape[-3:])
        if self._last:
            images = images.permute(0, 1, 4, 2, 3)
        # A layout of their own, because a convolution's bits depend on it.
        images = images.reshape(rows.shape[0], *self.size).contiguous()
        if self._pixels is None:
            return images
        low, high = self._pixels
        return (images - low) / (high - low)


def normalizing_layers(module: torch.nn.Module) -> list[VirtualBatchNorm]:
    """The layers of a module that use a reference batch."""
    return [layer for layer in module.modules() if isinstance(layer, VirtualBatchNorm)]


def refer(module: torch.nn.Module, batch: torch.Tensor) -> None:
    """Pass the reference batch [R, inputs] to a module; only the layers' statistics change.

    A module that does not accept R rows at a time may raise anything.
    """
    shown = copy.deepcopy(module)  # a copy, because a module may have a state
    for layer in normalizing_layers(shown):
        layer.measuring = True
    shown(batch)
    pairs = zip(normalizing_layers(module), normalizing_layers(shown), strict=True)
    for layer, measured in pairs:
        layer.mean, layer.variance = measured.mean, measured.variance
