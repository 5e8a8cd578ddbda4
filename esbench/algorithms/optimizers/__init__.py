"""Optimizers that follow a gradient estimate: ClipUp, Adam, SGD and the others of ``torch.optim``.

Adam and SGD are implemented here, not taken from torch, for two reasons:

- A trial that does not use torch starts faster, because ``import torch`` is slow.
- Torch's vectorized loops use fused multiply-add where the processor has it, so their bits depend
  on the processor. The operations here round one by one and give the same bits everywhere, except
  for the powers of Adam's betas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from esbench.core.arrays import Vector

State = dict[str, Any]


class Optimizer(ABC):
    """Turns gradient estimates into steps uphill."""

    @abstractmethod
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P], from a gradient [P] that points to higher returns.

        ``scale`` is a factor on the learning rate and on every setting in its units.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """The state: a table of arrays, numbers and tables."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
