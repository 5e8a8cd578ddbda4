"""Convolutional networks for images: those of the papers, a small one, and one with a memory.

Initialized as in OpenAI's evolution-strategies-starter. With virtual batch normalization the units
have no bias but a gain, initially 1, and an offset, initially 0.

``conv_lstm`` is the network of universe-starter, for single images of 42 x 42 with one frame:
model.py of openai/universe-starter-agent (with ELU), also in atgambardella/pytorch-es (with SELU):
four convolutions of 3 x 3 with stride 2 and padding 1, and an LSTM (Hochreiter & Schmidhuber 1997,
with the forget gate of Gers et al. 2000). A slot keeps the recurrent state of its member from step
to step; ``load`` resets it.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.core.errors import UsageError
from esbench.policies.kernels.convolution import (
    Architecture,
    ConvBatch,
    ConvolutionStack,
    Layer,
    NormalizedBatch,
    member_shapes,
    split_tensors,
)
from esbench.policies.kernels.device import Device, DeviceBatch, require_device
from esbench.policies.kernels.feedforward import ACTIVATIONS, Activation
from esbench.policies.policy import (
    Deep,
    Policy,
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    Rows,
    TorchPolicy,
    image_shape,
    normalized_weights,
    register_policy,
)

if TYPE_CHECKING:
    import torch

GATES: Final = 4  # input, forget, cell and output, in the order of torch.nn.LSTMCell
# Initial bias of the forget gates, as in the BasicLSTMCell of universe-starter.
FORGET_BIAS: Final = 1.0
Count = Annotated[int, Field(ge=1, le=4096)]
Layers: TypeAlias = Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1), Deep]

Hidden: TypeAlias = Annotated[tuple[Count, ...], Deep]


class ConvSettings(PolicySettings, ABC):
    """Settings of convolutional networks."""

    layers: Layers
    """Convolutions, first to last: [channels, kernel size, stride] each."""

    hidden: Hidden
    """Size of each fully connected layer between convolutions and outputs [units]."""

    activation: Activation = "relu"
    """Activation of every unit except the outputs."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """Divisor of the pixels; 1 if observations are normalized."""

    device: Device = "cpu"
    """Device of the forward passes: cpu, or cuda for an NVIDIA GPU, whose rounding differs."""

    virtual_batch_norm: bool = False
    """Whether to normalize every unit except the outputs by its values on a reference batch."""

    reference_size: Annotated[int, Field(ge=2, le=4096)] = 128
    """Size of the reference batch, from random play at the start of training [observations]."""


@final
class SmallConvSettings(ConvSettings):
    """Settings of the small convolutional network."""

    layers: Layers = ((8, 8, 4), (16, 4, 2))
    hidden: Hidden = (32,)


@final
class OpenAIConvSettings(ConvSettings):
    """Settings of the network of Salimans et al."""

    layers: Layers = ((16, 8, 4), (32, 4, 2))
    hidden: Hidden = (256,)


@final
class NatureConvSettings(ConvSettings):
    """Settings of the network of Mnih et al."""

    layers: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    hidden: Hidden = (512,)


class ConvNetwork(PreparedPolicy, TorchPolicy, ABC):
    """Convolutions without padding, then fully connected layers."""

    takes_images = True
    settings: ConvSettings

    @final
    def prepare(self) -> None:
        """Derive the architecture from the settings."""
        settings = self.settings
        require_device(settings.device)
        if settings.device != "cpu" and settings.virtual_batch_norm:
            raise UsageError(
                f"device = {settings.device!r} with virtual_batch_norm = true: expected only one "
                "of them, because virtual batch normalization needs device = 'cpu'"
            )
        self._architecture = image_architecture(self, settings.layers, settings.hidden)
        if settings.virtual_batch_norm:
            self.reference_size = settings.reference_size

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer; convolutions as matrices.

        With virtual batch normalization, gains and offsets replace all biases except the last.
        """
        if self.settings.virtual_batch_norm:
            return member_shapes(self._architecture)
        return self._architecture.shapes

    @final
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalized weights, zero biases and offsets, unit gains, [P]."""
        parts = []
        *before, outputs = normalized_weights(generator, self._architecture.shapes[::2])
        for weights in before:
            units = weights.shape[1]
            gains = [np.ones(units)] if self.settings.virtual_batch_norm else []
            parts += [weights.reshape(-1), *gains, np.zeros(units)]
        return np.concatenate([*parts, outputs.reshape(-1), np.zeros(outputs.shape[1])])

    @final
    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        if self.settings.device != "cpu":
            return DeviceBatch(slots, self._architecture, self.settings.device)
        kind = NormalizedBatch if self.settings.virtual_batch_norm else ConvBatch
        return kind(slots, self._architecture)

    @final
    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """Convolutions and fully connected layers; virtual batch normalization is folded in."""
        from esbench.policies.kernels.torch_modules import convolutional

        values = parameters.astype(np.float32)
        if reference is not None:
            batch = NormalizedBatch(1, self._architecture)
            batch.refer(reference)
            values = batch.folded(values)
        return convolutional(values, self._architecture)


def image_architecture(
    policy: Policy, layers: Layers, hidden: tuple[int, ...], padding: int = 0
) -> Architecture:
    """The structure of a network; UsageError without images, or for a window that does not fit."""
    image = image_shape(policy, "a convolutional policy")
    settings = policy.settings
    architecture = Architecture(
        image=image,
        layers=tuple(Layer(*layer, padding) for layer in layers),
        hidden=hidden,
        outputs=policy.num_outputs,
        activation=settings.activation,
        output_activation=settings.output_activation,
        pixel_max=1.0 if settings.normalize_observations else settings.pixel_max,
    )
    for (height, width), layer in zip(architecture.sides, architecture.layers, strict=False):
        if min(height, width) + 2 * padding < layer.window:
            raise UsageError(
                f"layers = {list(map(list, layers))}: the window of {layer.window} does not fit "
                f"the {height} x {width} that is left of an image of {image[1]} x "
                f"{image[2]}; expected smaller windows"
            )
    return architecture


@final
@register_policy("small_conv")
class SmallConv(ConvNetwork):
    """8 filters of 8 x 8 and 16 of 4 x 4, 32 units: for fast learning."""

    Settings = SmallConvSettings


@final
@register_policy("openai_conv")
class OpenAIConv(ConvNetwork):
    """16 filters of 8 x 8 and 32 of 4 x 4, 256 units (Salimans et al. 2017, arXiv:1703.03864)."""

    Settings = OpenAIConvSettings


@final
@register_policy("nature_conv")
class NatureConv(ConvNetwork):
    """32 filters of 8 x 8, 64 of 4 x 4, 64 of 3 x 3, 512 units (Mnih et al., Nature 518, 2015)."""

    Settings = NatureConvSettings


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
