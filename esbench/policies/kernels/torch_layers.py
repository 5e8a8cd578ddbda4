"""Layers for users' own torch modules; ``esbench.policies`` offers them without importing torch.

The registry does not import this folder, so listing the policies needs no torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import final

import torch

from esbench.policies.kernels.virtual_batch import EPSILON


@final
class VirtualBatchNorm(torch.nn.Module):  # type: ignore[misc]
    """Virtual batch normalization, with the statistics of the same member on a reference batch.

    Computes gamma * (x - mean) / sqrt(variance + eps) + beta, with mean and variance of x over the
    reference batch (sources in ``kernels.virtual_batch``). The policy template ``module`` finds
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
        """Normalize x [N, C] or [N, C, H, W] per channel.

        Raises:
            ValueError: x has another shape.
            RuntimeError: there was no reference batch yet.
        """
        if x.ndim not in (2, 4) or x.shape[1] != self.num_features:
            raise ValueError(
                f"VirtualBatchNorm({self.num_features}) was given {list(x.shape)}; expected "
                f"[N, {self.num_features}] or [N, {self.num_features}, H, W]"
            )
        if self.measuring:
            every = [axis for axis in range(x.ndim) if axis != 1]
            variance, mean = torch.var_mean(x.double(), every, correction=0)
            self.mean, self.variance = mean.to(x.dtype), variance.to(x.dtype)
        if self.mean is None or self.variance is None:
            raise RuntimeError(
                "VirtualBatchNorm has no statistics: set a reference batch with "
                "esbench.policies.kernels.torch_layers.refer(module, batch) first"
            )
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
