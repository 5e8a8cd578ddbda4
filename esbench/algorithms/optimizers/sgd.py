"""Plain ascent, and ascent with momentum."""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.algorithms.optimizers.base import Optimizer, State, flag, number
from esbench.arrays import Vector


@final
class SGD(Optimizer):
    """Gradient ascent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    As in torch, the first velocity is the gradient, undamped, and the rate multiplies the velocity
    when it is used, not what enters it. The state is torch's: a velocity downhill.
    """

    def __init__(
        self,
        learning_rate: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.learning_rate = number("learning_rate", learning_rate, at_least=0.0)
        self.momentum = number("momentum", momentum, at_least=0.0)
        self.dampening = number("dampening", dampening)
        self.weight_decay = number("weight_decay", weight_decay, at_least=0.0)
        self.nesterov = flag("nesterov", nesterov)
        if nesterov and not (momentum > 0.0 and dampening == 0.0):
            raise ValueError("nesterov = true: expected momentum above 0 and dampening 0")
        self._velocity: Vector | None = None

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P]."""
        step = downhill = self.weight_decay * center - gradient
        if self.momentum > 0.0:
            if self._velocity is None:
                self._velocity = downhill
            else:
                new = (1.0 - self.dampening) * downhill
                self._velocity = self.momentum * self._velocity + new
            ahead = downhill + self.momentum * self._velocity
            step = ahead if self.nesterov else self._velocity
        return center - scale * self.learning_rate * step

    def state_dict(self) -> State:
        """Return the velocity; empty before the first step, and without momentum."""
        return {} if self._velocity is None else {"momentum_buffer": self._velocity.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the velocity."""
        velocity = state.get("momentum_buffer")
        self._velocity = None if velocity is None else np.array(velocity)
