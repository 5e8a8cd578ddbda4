"""Layers for people's own torch modules; ``esbench.policies`` offers them without importing torch.

A file of its own outside that package, whose files are all imported to list the policies.
"""

from __future__ import annotations

import copy
from typing import final

import torch

from esbench.policies.kernels.virtual_batch import EPSILON


@final
class VirtualBatchNorm(torch.nn.Module):  # type: ignore[misc]
    """Virtual batch normalisation: by the values that the same member's layer has for a reference.

    gamma * (x - mean) / sqrt(variance + eps) + beta, where mean and variance are of x over a
    reference batch (``kernels.virtual_batch`` has the sources). The policy template
    ``module`` finds the layers of a module, gathers the batch and shows it to every member once,
    all rows at a time: [R, num_inputs] where a step shows [1, num_inputs].

    Attributes:
        weight: gamma, [num_features], starts at 1; bias: beta, starts at 0. Both are trained.
        mean, variance: [num_features]; None before the batch was shown.
        measuring: whether the next x is of the reference batch.
    """

    def __init__(self, num_features: int, eps: float = EPSILON) -> None:
        """Normalise ``num_features`` channels."""
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.mean: torch.Tensor | None = None
        self.variance: torch.Tensor | None = None
        self.measuring = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [N, C] or [N, C, H, W], normalised channel by channel.

        Raises:
            ValueError: x has another shape.
            RuntimeError: no reference batch was shown before.
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
                "VirtualBatchNorm has no statistics: show the module a reference batch with "
                "esbench.policies.layers.refer(module, batch) first"
            )
        return torch.nn.functional.batch_norm(
            x, self.mean, self.variance, self.weight, self.bias, eps=self.eps
        )


def normalizing_layers(module: torch.nn.Module) -> list[VirtualBatchNorm]:
    """Return the layers of a module that take a reference batch."""
    return [layer for layer in module.modules() if isinstance(layer, VirtualBatchNorm)]


def refer(module: torch.nn.Module, batch: torch.Tensor) -> None:
    """Show a module the reference batch [R, inputs]; only its layers' statistics change.

    Raises:
        Exception: whatever the module raises that cannot take R rows at a time.
    """
    shown = copy.deepcopy(module)  # which may remember what it is shown
    for layer in normalizing_layers(shown):
        layer.measuring = True
    shown(batch)
    pairs = zip(normalizing_layers(module), normalizing_layers(shown), strict=True)
    for layer, measured in pairs:
        layer.mean, layer.variance = measured.mean, measured.variance
