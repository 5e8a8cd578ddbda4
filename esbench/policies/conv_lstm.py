"""Convolutions and a recurrent layer, for single small images: the network of universe-starter.

model.py of openai/universe-starter-agent (with ELU), also in atgambardella/pytorch-es (with SELU):
four convolutions of 3 x 3 with stride 2 and padding 1, and an LSTM (Hochreiter & Schmidhuber 1997,
with the forget gate of Gers et al. 2000). Their images are 42 x 42 with one frame. A slot keeps the
recurrent state of its member from step to step; ``load`` resets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.policies.conv_networks import Count, Layers, image_architecture
from esbench.policies.kernels.convolution import Architecture, ConvolutionStack, split_tensors
from esbench.policies.kernels.feedforward import ACTIVATIONS, Activation
from esbench.policies.policy import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    Rows,
    TorchPolicy,
    normalized_weights,
    register_policy,
)

if TYPE_CHECKING:
    import torch

GATES: Final = 4  # input, forget, cell and output, in the order of torch.nn.LSTMCell
# Initial bias of the forget gates, as in the BasicLSTMCell of universe-starter.
FORGET_BIAS: Final = 1.0


@final
class ConvLSTMSettings(PolicySettings):
    """Settings of the convolutional network with a recurrent layer."""

    layers: Layers = ((32, 3, 2), (32, 3, 2), (32, 3, 2), (32, 3, 2))
    """Convolutions, first to last: [channels, kernel size, stride] each."""

    padding: Annotated[int, Field(ge=0, le=64)] = 1
    """Zeros beyond each edge of the input of a convolution [pixels]."""

    units: Count = 256
    """Size of the recurrent layer between convolutions and outputs [units]."""

    activation: Activation = "selu"
    """Activation of the convolutions."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """Divisor of the pixels; 1 if observations are normalized."""


@final
@register_policy("conv_lstm")
class ConvLSTM(PreparedPolicy, TorchPolicy):
    """4 times 32 filters of 3 x 3, an LSTM of 256 (pytorch-es): for single frames of 42 x 42."""

    Settings = ConvLSTMSettings
    takes_images = True
    settings: ConvLSTMSettings

    def prepare(self) -> None:
        """Derive the architecture from the settings."""
        layers, units, padding = self.settings.layers, self.settings.units, self.settings.padding
        self._architecture = image_architecture(self, layers, (units,), padding)

    @property
    def shapes(self) -> Shapes:
        """W and b of each convolution, of the gates and of the outputs.

        The rows of the gates' matrix [features + units, 4 * units] belong to the features, then to
        the previous outputs of the units; its columns are the input, forget, cell and output gates.
        """
        architecture, units = self._architecture, self.settings.units
        sizes = (architecture.features + units, GATES * units), (units, self.num_outputs)
        ends = tuple(shape for inputs, width in sizes for shape in ((inputs, width), (width,)))
        return architecture.convolution_shapes + ends

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalized weights and zero biases, except for the forget gates, [P]."""
        matrices, units = self.shapes[::2], self.settings.units
        weights = normalized_weights(generator, matrices)
        biases = [np.zeros(shape[1]) for shape in matrices]
        biases[-2][units : 2 * units] = FORGET_BIAS
        pairs = zip(weights, biases, strict=True)
        return np.concatenate([part.reshape(-1) for pair in pairs for part in pair])

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return ConvLSTMBatch(slots, self._architecture, self.shapes)

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """Convolutions, a ``torch.nn.LSTMCell`` with the state (h, c), and a linear layer."""
        from esbench.policies.kernels.torch_modules import Recurrent

        return Recurrent(parameters, self._architecture, self.shapes)


@final
class ConvLSTMBatch(PolicyBatch):
    """Computes slot by slot, each with its own weights and state."""

    def __init__(self, slots: int, architecture: Architecture, shapes: Shapes) -> None:
        self._shapes = shapes
        self._slots: list[list[Rows]] = [[] for _ in range(slots)]
        (units,) = architecture.hidden
        self._outputs = np.zeros((slots, units), np.float32)
        self._cells = np.zeros((slots, units), np.float32)
        self._size = architecture.outputs
        self._convolve = ConvolutionStack(architecture)
        self._activate_outputs = ACTIVATIONS[architecture.output_activation]

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
        self._activate_outputs(outputs)
        return outputs


def lstm_step(cells: Rows, sums: Rows) -> tuple[Rows, Rows]:
    """Compute the next cells c' and outputs h' of a recurrent layer from its cells c, [units] each.

    Overwrites ``sums``. The equations of ``torch.nn.LSTMCell``: c' = f * c + i * g,
    h' = o * tanh(c'). ``sums`` [4 * units] are those of the gates i, f, g and o.
    """
    entering, kept, new, shown = sums.reshape(GATES, -1)
    for gate in (entering, kept, shown):
        ACTIVATIONS["sigmoid"](gate)
    following: Rows = kept * cells + entering * np.tanh(new)
    return following, shown * np.tanh(following)
