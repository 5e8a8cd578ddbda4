"""Gradient ascent, plain or with momentum."""

from __future__ import annotations

from typing import final

import numpy as np
from pydantic import model_validator

from esbench.algorithms.optimizers.base import Optimizer, State
from esbench.algorithms.settings import NonNegative
from esbench.arrays import Vector
from esbench.settings import Settings


@final
class SGDSettings(Settings):
    """Settings of SGD; defaults as in torch."""

    momentum: NonNegative = 0.0
    dampening: float = 0.0
    weight_decay: NonNegative = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGDSettings:
        if self.nesterov and not (self.momentum > 0.0 and self.dampening == 0.0):
            raise ValueError("nesterov = true: expected momentum above 0 and dampening 0")
        return self


@final
class SGD(Optimizer):
    """Gradient ascent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    As in torch, the first velocity is the undamped gradient, and the learning rate multiplies the
    velocity, not the gradients that enter it. The state has torch's layout: a downhill velocity.
    """

    Settings = SGDSettings

    def __init__(self, learning_rate: float, settings: SGDSettings) -> None:
        self._learning_rate = learning_rate
        self._settings = settings
        self._velocity: Vector | None = None

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new centre, [P]."""
        settings = self._settings
        step = downhill = settings.weight_decay * center - gradient
        if settings.momentum > 0.0:
            if self._velocity is None:
                self._velocity = downhill
            else:
                new = (1.0 - settings.dampening) * downhill
                self._velocity = settings.momentum * self._velocity + new
            ahead = downhill + settings.momentum * self._velocity
            step = ahead if settings.nesterov else self._velocity
        return center - scale * self._learning_rate * step

    def state_dict(self) -> State:
        """The velocity; empty before the first step and without momentum."""
        return {} if self._velocity is None else {"momentum_buffer": self._velocity.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the velocity."""
        velocity = state.get("momentum_buffer")
        self._velocity = None if velocity is None else np.array(velocity)
