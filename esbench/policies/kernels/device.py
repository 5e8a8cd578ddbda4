"""Convolutional networks of all slots at once in PyTorch, for a GPU.

Every worker keeps the weights of its slots on the device and computes all slots in one pass:
grouped convolutions with one group per slot, and stacked products for the full layers. The
arithmetic is float32 without TF32, but in another order than NumPy's. The outputs agree within
``TOLERANCE``, relative to the largest output; actions can differ where two outputs are that close.
So results with ``device = "cuda"`` differ from those on the CPU, and can differ between GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import numpy as np

from esbench.arrays import Vector
from esbench.errors import UsageError
from esbench.policies.base import PolicyBatch, Rows
from esbench.policies.kernels.activations import Activation
from esbench.policies.kernels.convolution import Architecture

if TYPE_CHECKING:
    import torch

Device: TypeAlias = Literal["cpu", "cuda"]
TOLERANCE: Final = 2e-5


def require_device(device: Device) -> None:
    """Raises UsageError for "cuda" if PyTorch sees no GPU."""
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"is built for CUDA {built} but sees no GPU" if built else "is built for the CPU only"
        raise UsageError(
            f"device = {device!r}: PyTorch {torch.__version__} {why}; expected a machine with an "
            "NVIDIA GPU and its PyTorch, or device = 'cpu'"
        )


def torch_activation(name: Activation) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of PyTorch with the name of an activation."""
    import torch

    if name == "identity":
        return lambda values: values
    found: Callable[[torch.Tensor], torch.Tensor] = getattr(torch.nn.functional, name)
    return found


@final
class DeviceBatch(PolicyBatch):
    """Convolutions, then fully connected layers, with the parameters of ``Architecture``."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, device: Device) -> None:
        import torch

        self._architecture, self._device = architecture, torch.device(device)
        self._scale = 1.0 / architecture.pixel_max
        depth = len(architecture.layers)
        self._weights: list[torch.Tensor] = []
        self._biases: list[torch.Tensor] = []
        pairs = zip(architecture.shapes[::2], architecture.shapes[1::2], strict=True)
        for number, ((inputs, units), bias) in enumerate(pairs):
            shape: tuple[int, ...] = inputs, units
            if number < depth:
                window = architecture.layers[number].window
                shape = units, inputs // window**2, window, window
            self._weights.append(torch.zeros((slots, *shape), device=device))
            self._biases.append(torch.zeros((slots, *bias), device=device))
        self._activate = torch_activation(architecture.activation)
        self._activate_outputs = torch_activation(architecture.output_activation)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        import torch

        rounded = torch.from_numpy(parameters.astype(np.float32)).to(self._device)
        start = 0
        for number, (weights, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            size = math.prod(weights.shape[1:])
            given = rounded[start : start + size]
            if number < len(self._architecture.layers):
                units, before, window, _ = weights.shape[1:]
                given = given.reshape(window, window, before, units).permute(3, 2, 0, 1)
            weights[slot] = given.reshape(weights.shape[1:])
            bias[slot] = rounded[start + size : start + size + bias.shape[1]]
            start += size + bias.shape[1]

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] of all k slots for observations [k, inputs]."""
        import torch

        count = len(observations)
        shown = observations
        if live is not None:  # the others may show anything
            shown = np.zeros_like(observations)
            shown[list(live)] = observations[list(live)]
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            rows = torch.from_numpy(shown).to(self._device)
            values = rows.reshape(1, -1, *self._architecture.image[1:]) * self._scale
            for number, layer in enumerate(self._architecture.layers):
                values = torch.nn.functional.conv2d(
                    values,
                    self._weights[number][:count].flatten(0, 1),
                    self._biases[number][:count].flatten(),
                    stride=layer.stride,
                    groups=count,
                )
                values = self._activate(values)
            # Features in the order row, column, channel, as in ``Architecture.shapes``.
            images = values.reshape(count, -1, *values.shape[2:])
            values = images.permute(0, 2, 3, 1).reshape(count, 1, -1)
            last = len(self._weights) - 1
            for number in range(len(self._architecture.layers), last + 1):
                bias = self._biases[number][:count].unsqueeze(1)
                values = torch.baddbmm(bias, values, self._weights[number][:count])
                if number < last:
                    values = self._activate(values)
            outputs: Rows = self._activate_outputs(values[:, 0]).cpu().numpy()
        return outputs
