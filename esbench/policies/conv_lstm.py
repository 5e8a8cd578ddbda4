"""Convolutions and a recurrent layer, for single small images: the network of universe-starter.

model.py of openai/universe-starter-agent (with ELU), which came to atgambardella/pytorch-es (with
SELU) by way of pytorch-a3c: four convolutions of 3 x 3 with stride 2 and padding 1, and an LSTM
(Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000). Their images are 42 x 42
with one frame. A slot remembers its member's state from step to step; ``load`` puts it to rest.

A slot's step takes 0.6 ms for one image of 42 x 42 and 6 outputs (587,686 parameters) and 1.8 ms
for 4 x 84 x 84 (1,473,286); CPU time, medians of 300 steps of eight slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.policies.base import Policy, PolicyBatch, PolicySettings, Rows, register_policy
from esbench.policies.convolutional import (
    OUTPUT_LENGTH,
    Count,
    normalized_columns,
    require_fitting_windows,
    require_images,
)
from esbench.policies.kernels.convolution import (
    ACTIVATIONS,
    Convolution,
    ImageActivation,
    Layer,
    convolution_shapes,
)

GATES: Final = 4  # input, forget, cell and output, in the order of torch.nn.LSTMCell
# Where the forget gates' biases start: universe-starter's BasicLSTMCell adds it to biases that
# start at 0 (pytorch-es: PyTorch's uniform biases within 1/16 of 0, of all gates alike).
FORGET_BIAS: Final = 1.0


class ConvLSTMSettings(PolicySettings):
    """Settings of the convolutional network with a recurrent layer."""

    layers: Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)] = (
        (32, 3, 2),
        (32, 3, 2),
        (32, 3, 2),
        (32, 3, 2),
    )
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    padding: Annotated[int, Field(ge=0, le=64)] = 1
    """Zeros beyond each edge of what a convolution is shown [pixels]."""

    units: Count = 256
    """Size of the recurrent layer between convolutions and outputs [units]."""

    activation: ImageActivation = "selu"
    """What the convolutions apply to their sums."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """What pixels are divided by."""


class _Network(NamedTuple):
    """What a network is made of.

    Attributes:
        image: channels, height and width of what it is shown.
        layers: convolutions, first to last.
        units: of the recurrent layer.
        outputs: of the last one.
        activation: of the convolutions.
        pixel_max: what pixels are divided by.
    """

    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    units: int
    outputs: int
    activation: ImageActivation
    pixel_max: float

    @property
    def shapes(self) -> Shapes:
        """W and b of each convolution, of the gates and of the outputs.

        The gates' matrix [features + units, 4 * units] takes the features first and then the units'
        last outputs; its columns are the input, forget, cell and output gates.
        """
        shapes, features = convolution_shapes(self.image, self.layers)
        width = GATES * self.units
        gates = ((features + self.units, width), (width,))
        return (*shapes, *gates, (self.units, self.outputs), (self.outputs,))


@final
@register_policy("conv_lstm")
class ConvLSTM(Policy):
    """4 times 32 windows of 3 x 3, an LSTM of 256 (pytorch-es): for single frames of 42 x 42."""

    Settings = ConvLSTMSettings
    takes_images = True
    settings: ConvLSTMSettings

    def __init__(
        self,
        settings: ConvLSTMSettings,
        num_inputs: int,
        num_outputs: int,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Describe the network.

        Raises:
            UsageError: an observation is no image, or smaller than a window.
        """
        super().__init__(settings, num_inputs, num_outputs, shape)
        self._network = _Network(
            image=require_images(self.shape),
            layers=tuple(Layer(*layer, settings.padding) for layer in settings.layers),
            units=settings.units,
            outputs=num_outputs,
            activation=settings.activation,
            pixel_max=settings.pixel_max,
        )
        require_fitting_windows(self._network.image, self._network.layers)

    @property
    def shapes(self) -> Shapes:
        """The shapes of weights and biases: convolutions as matrices, the gates as one."""
        return self._network.shapes

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return normalised columns [P], biases zero but the forget gates'."""
        matrices, units = self.shapes[::2], self.settings.units
        weights = [normalized_columns(generator, *shape) for shape in matrices]
        biases = [np.zeros(shape[1]) for shape in matrices]
        weights[-1] *= OUTPUT_LENGTH
        biases[-2][units : 2 * units] = FORGET_BIAS
        pairs = zip(weights, biases, strict=True)
        return np.concatenate([part.reshape(-1) for pair in pairs for part in pair])

    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        return ConvLSTMBatch(slots, self._network)


@final
class ConvLSTMBatch(PolicyBatch):
    """A slot after the other, each with its own weights and state; parameters lie as ``shapes``."""

    def __init__(self, slots: int, network: _Network) -> None:
        self._shapes = network.shapes
        self._slots: list[list[Rows]] = [[] for _ in range(slots)]
        self._outputs = np.zeros((slots, network.units), np.float32)
        self._cells = np.zeros((slots, network.units), np.float32)
        self._scale = np.float32(1.0 / network.pixel_max)
        self._size = network.outputs
        channels, height, width = self._image = network.image
        self._input = np.zeros((height, width, channels), np.float32)
        self._convolutions: list[Convolution] = []
        image = self._input
        for layer in network.layers:
            activate = ACTIVATIONS[network.activation]
            self._convolutions.append(Convolution(image, layer, activate))
            image = self._convolutions[-1].output
        self._features = image.reshape(-1)

    def load(self, slot: int, parameters: Vector) -> None:
        """Put a member's parameters [P] into a slot, rounded to float32, and its state to rest."""
        if not self._slots[slot]:  # a slot that is never used costs no memory
            self._slots[slot] = [np.zeros(shape, np.float32) for shape in self._shapes]
        start = 0
        for target in self._slots[slot]:
            target[...] = parameters[start : start + target.size].reshape(target.shape)
            start += target.size
        self._outputs[slot] = 0.0
        self._cells[slot] = 0.0

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] for observations [k, inputs], a live slot at a time."""
        outputs = np.zeros((len(observations), self._size), np.float32)
        for slot in range(len(observations)) if live is None else live:
            outputs[slot] = self._forward(observations[slot], slot)
        return outputs

    def _forward(self, row: Rows, slot: int) -> Rows:
        *convolutional, gate_weights, gate_bias, weights, bias = self._slots[slot]
        image = row.reshape(self._image).transpose(1, 2, 0)
        np.multiply(image, self._scale, out=self._input)
        pairs = zip(convolutional[::2], convolutional[1::2], strict=True)
        for convolution, (kernel, offset) in zip(self._convolutions, pairs, strict=True):
            convolution(kernel, offset)
        sums = np.concatenate([self._features, self._outputs[slot]]) @ gate_weights
        sums += gate_bias
        self._cells[slot], self._outputs[slot] = lstm_step(self._cells[slot], sums)
        outputs: Rows = self._outputs[slot] @ weights + bias
        return outputs


def lstm_step(cells: Rows, sums: Rows) -> tuple[Rows, Rows]:
    """Return the next cells c' [units] and outputs h' [units] of a recurrent layer.

    The equations of ``torch.nn.LSTMCell``: c' = f * c + i * g, h' = o * tanh(c').

    Args:
        cells: c, [units].
        sums: of the gates i, f, g and o, [4 * units].
    """
    entering, kept, new, shown = sums.reshape(GATES, -1)
    following: Rows = _sigmoid(kept) * cells + _sigmoid(entering) * np.tanh(new)
    return following, _sigmoid(shown) * np.tanh(following)


def _sigmoid(values: Rows) -> Rows:
    """Return 1 / (1 + exp(-x)) without an exponential that could overflow."""
    half = np.float32(0.5)
    squashed: Rows = half + half * np.tanh(half * values)
    return squashed
