"""Convolutional networks of all slots at once in PyTorch, for a GPU.

Every worker keeps the weights of its slots on the device. A layer copies all windows of an image
into one matrix (im2col) and multiplies it by the weights of its slot, for ``GROUP`` slots in one
batched product. The number of slots in a product is fixed, because cuBLAS chooses its algorithm by
that number, and the bits of a slot must not depend on the slots beside it.

The arithmetic is float32 without TF32, but in another order than NumPy's. The outputs agree within
``TOLERANCE``, relative to the largest output; actions can differ where two outputs are that close.
So results with ``device = "cuda"`` differ from those on the CPU, and can differ between GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError
from esbench.policies.kernels.convolution import Architecture, split_tensors
from esbench.policies.kernels.feedforward import Activation
from esbench.policies.policy import PolicyBatch, Rows

if TYPE_CHECKING:
    import torch

Device: TypeAlias = Literal["cpu", "cuda"]
TOLERANCE: Final = 2e-5
GROUP: Final = 8  # slots in one product


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


def recorded(compute: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A CUDA graph, which launches all kernels of a function at once, and the tensor it fills."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compute()  # loads the libraries, which must not be recorded
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = compute()
    return graph, outputs


@final
class DeviceBatch(PolicyBatch):
    """Convolutions, then fully connected layers, with the parameters of ``Architecture``."""

    remembers = False

    def __init__(self, slots: int, architecture: Architecture, device: Device) -> None:
        import torch

        self._architecture, self._device = architecture, torch.device(device)
        self._scale = 1.0 / architecture.pixel_max
        rounded = -(-slots // GROUP) * GROUP
        self._rows = torch.zeros((rounded, math.prod(architecture.image)), device=device)
        # W1 [slots, inputs, units], b1 [slots, 1, units], W2, ...
        self._tensors = [
            torch.zeros((rounded, *((1, *shape) if len(shape) == 1 else shape)), device=device)
            for shape in architecture.shapes
        ]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._activate = torch_activation(architecture.activation)
        self._activate_outputs = torch_activation(architecture.output_activation)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        import torch

        parts = split_tensors(parameters.astype(np.float32), self._architecture.shapes)
        for tensor, part in zip(self._tensors, parts, strict=True):
            tensor[slot] = torch.from_numpy(part)

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] of all k slots for observations [k, inputs]."""
        import torch

        count = len(observations)
        shown = observations
        if live is not None:  # the others may show anything
            shown = np.zeros_like(observations)
            shown[list(live)] = observations[list(live)]
        with torch.inference_mode():
            self._rows[:count] = torch.from_numpy(shown)
            groups = [self._group(start) for start in range(0, count, GROUP)]
            outputs: Rows = torch.cat(groups)[:count].cpu().numpy()
        return outputs

    def _group(self, start: int) -> torch.Tensor:
        """Compute the outputs of the group that begins at a slot; the next call overwrites them."""
        end = start + GROUP
        group = partial(
            self._outputs, self._rows[start:end], [tensor[start:end] for tensor in self._tensors]
        )
        if self._device.type == "cpu":
            return group()
        if start not in self._graphs:
            self._graphs[start] = recorded(group)
        graph, outputs = self._graphs[start]
        graph.replay()
        return outputs

    def _outputs(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the outputs of one group for its observations."""
        import torch

        pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
        depth = len(self._architecture.layers)
        images = rows.reshape(GROUP, *self._architecture.image).permute(0, 2, 3, 1) * self._scale
        for layer, (weights, bias) in zip(self._architecture.layers, pairs, strict=False):
            windows = images.unfold(1, layer.window, layer.stride)
            windows = windows.unfold(2, layer.window, layer.stride).permute(0, 1, 2, 4, 5, 3)
            matrix = windows.reshape(GROUP, -1, weights.shape[1])
            values = self._activate(torch.baddbmm(bias, matrix, weights))
            images = values.reshape(*windows.shape[:3], -1)
        # Features in the order row, column, channel, as in ``Architecture.shapes``.
        values = images.reshape(GROUP, 1, -1)
        for number, (weights, bias) in enumerate(pairs[depth:], depth + 1):
            values = torch.baddbmm(bias, values, weights)
            if number < len(pairs):
                values = self._activate(values)
        return self._activate_outputs(values[:, 0])
