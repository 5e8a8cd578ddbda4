"""A policy's flat parameters, taken apart for PyTorch."""

from __future__ import annotations

from typing import final

import numpy as np
import torch


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
