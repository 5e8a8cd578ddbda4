"""Convolutions and a recurrent layer, for single small images: the network of universe-starter.

model.py of openai/universe-starter-agent (with ELU), also in atgambardella/pytorch-es (with SELU):
four convolutions of 3 x 3 with stride 2 and padding 1, and an LSTM (Hochreiter & Schmidhuber 1997,
with the forget gate of Gers et al. 2000). Their images are 42 x 42 with one frame. A slot keeps the
recurrent state of its member from step to step; ``load`` resets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.policies.base import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    Rows,
    normalized_weights,
    register_policy,
)
from esbench.policies.conv_networks import Count, Layers, require_fitting_windows, require_images
from esbench.policies.kernels.activations import ImageActivation
from esbench.policies.kernels.convolution import (
    ConvolutionStack,
    Layer,
    convolution_shapes,
    split_tensors,
)

GATES: Final = 4  # input, forget, cell and output, in the order of torch.nn.LSTMCell
# Initial bias of the forget gates, as in the BasicLSTMCell of universe-starter.
FORGET_BIAS: Final = 1.0


@final
class ConvLSTMSettings(PolicySettings):
    """Settings of the convolutional network with a recurrent layer."""

    layers: Layers = ((32, 3, 2), (32, 3, 2), (32, 3, 2), (32, 3, 2))
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    padding: Annotated[int, Field(ge=0, le=64)] = 1
    """Zeros beyond each edge of the input of a convolution [pixels]."""

    units: Count = 256
    """Size of the recurrent layer between convolutions and outputs [units]."""

    activation: ImageActivation = "selu"
    """Activation of the convolutions."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """Divisor of the pixels."""


@final
class RecurrentArchitecture(NamedTuple):
    """The structure of a network.

    Attributes:
        image: channels, height and width of the input.
        layers: convolutions, first to last.
        units: size of the recurrent layer.
        outputs: size of the output.
        activation: of the convolutions.
        pixel_max: divisor of the pixels.
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

        The rows of the gates' matrix [features + units, 4 * units] belong to the features, then to
        the previous outputs of the units; its columns are the input, forget, cell and output gates.
        """
        shapes, features = convolution_shapes(self.image, self.layers)
        width = GATES * self.units
        gates = ((features + self.units, width), (width,))
        return (*shapes, *gates, (self.units, self.outputs), (self.outputs,))


@final
@register_policy("conv_lstm")
class ConvLSTM(PreparedPolicy):
    """4 times 32 windows of 3 x 3, an LSTM of 256 (pytorch-es): for single frames of 42 x 42."""

    Settings = ConvLSTMSettings
    takes_images = True
    settings: ConvLSTMSettings

    def prepare(self) -> None:
        """Derive the architecture from the settings."""
        settings = self.settings
        self._architecture = RecurrentArchitecture(
            image=require_images(self.shape),
            layers=tuple(Layer(*layer, settings.padding) for layer in settings.layers),
            units=settings.units,
            outputs=self.num_outputs,
            activation=settings.activation,
            pixel_max=settings.pixel_max,
        )
        require_fitting_windows(self._architecture.image, self._architecture.layers)

    @property
    def shapes(self) -> Shapes:
        """The shapes of weights and biases: one matrix per convolution, one for all gates."""
        return self._architecture.shapes

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalised weights and zero biases, except for the forget gates, [P]."""
        matrices, units = self.shapes[::2], self.settings.units
        weights = normalized_weights(generator, matrices)
        biases = [np.zeros(shape[1]) for shape in matrices]
        biases[-2][units : 2 * units] = FORGET_BIAS
        pairs = zip(weights, biases, strict=True)
        return np.concatenate([part.reshape(-1) for pair in pairs for part in pair])

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return ConvLSTMBatch(slots, self._architecture)


@final
class ConvLSTMBatch(PolicyBatch):
    """Computes slot by slot, each with its own weights and state."""

    def __init__(self, slots: int, architecture: RecurrentArchitecture) -> None:
        self._shapes = architecture.shapes
        self._slots: list[list[Rows]] = [[] for _ in range(slots)]
        self._outputs = np.zeros((slots, architecture.units), np.float32)
        self._cells = np.zeros((slots, architecture.units), np.float32)
        self._size = architecture.outputs
        self._convolve = ConvolutionStack(
            architecture.image,
            architecture.layers,
            architecture.activation,
            architecture.pixel_max,
        )

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot, as float32, and reset its state."""
        if not self._slots[slot]:  # allocated on first use
            self._slots[slot] = [np.zeros(shape, np.float32) for shape in self._shapes]
        sources = split_tensors(parameters, self._shapes)
        for target, source in zip(self._slots[slot], sources, strict=True):
            target[...] = source
        self._outputs[slot] = 0.0
        self._cells[slot] = 0.0

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        outputs = np.zeros((len(observations), self._size), np.float32)
        for slot in range(len(observations)) if live is None else live:
            outputs[slot] = self._forward(observations[slot], slot)
        return outputs

    def _forward(self, row: Rows, slot: int) -> Rows:
        *convolutional, gate_weights, gate_bias, weights, bias = self._slots[slot]
        pairs = zip(convolutional[::2], convolutional[1::2], strict=True)
        features = self._convolve(row, pairs)
        sums = np.concatenate([features, self._outputs[slot]]) @ gate_weights
        sums += gate_bias
        self._cells[slot], self._outputs[slot] = lstm_step(self._cells[slot], sums)
        outputs: Rows = self._outputs[slot] @ weights + bias
        return outputs


def lstm_step(cells: Rows, sums: Rows) -> tuple[Rows, Rows]:
    """Compute the next cells c' [units] and outputs h' [units] of a recurrent layer.

    The equations of ``torch.nn.LSTMCell``: c' = f * c + i * g, h' = o * tanh(c').

    Args:
        cells: c, [units].
        sums: of the gates i, f, g and o, [4 * units].
    """
    entering, kept, new, shown = sums.reshape(GATES, -1)
    following: Rows = _sigmoid(kept) * cells + _sigmoid(entering) * np.tanh(new)
    return following, _sigmoid(shown) * np.tanh(following)


def _sigmoid(values: Rows) -> Rows:
    """Compute 1 / (1 + exp(-x)) without an exponential that could overflow."""
    half = np.float32(0.5)
    squashed: Rows = half + half * np.tanh(half * values)
    return squashed
