"""Policies, and their flat parameters: those of members, and taken apart for PyTorch."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch

from esbench.core.settings import parse
from esbench.policies.policy import POLICIES, Policy, PolicyBatch

# Sizes of feedforward networks, from the inputs to the outputs.
LAYERS = [(17, 64, 64, 6), (3, 5, 2), (348, 64, 64, 17), (1, 1), (11, 3), (7, 13, 1)]


def make_policy(
    template: str,
    shape: tuple[int, ...],
    outputs: int,
    pixels: tuple[float, float] | None = None,
    **settings: Any,
) -> Policy:
    """Return a policy for observations of a shape."""
    cls = POLICIES.get(template)
    return cls(parse(cls.Settings, settings, "test"), int(np.prod(shape)), outputs, shape, pixels)


def members(policy: Policy, count: int, spread: float = 0.05) -> np.ndarray:
    """Return parameters [count, P] in the range of trained networks."""
    generator = np.random.default_rng(1)
    start = policy.initial_parameters(generator)
    return start + spread * generator.standard_normal((count, policy.num_params))


def loaded(policy: Policy, parameters: np.ndarray) -> PolicyBatch:
    """Return a batch with a slot for each row of parameters [count, P]."""
    batch = policy.batch(len(parameters))
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    return batch


@final
class FlatParameters:
    """Parameters of one policy, [P], as float64 tensors of what float32 holds of them."""

    def __init__(self, parameters: np.ndarray) -> None:
        self._rest = torch.from_numpy(parameters.astype(np.float32).astype(np.float64))

    def __call__(self, *shape: int) -> torch.Tensor:
        """Take the next ones, in this shape."""
        size = int(np.prod(shape))
        taken, self._rest = self._rest[:size].reshape(shape), self._rest[size:]
        return taken

    @property
    def left(self) -> int:
        """How many have not been taken."""
        return self._rest.numel()
