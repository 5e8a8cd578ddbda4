"""Adam."""

from __future__ import annotations

import math
from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.algorithms.optimizers.base import Optimizer, State
from esbench.algorithms.settings import NonNegative
from esbench.arrays import Vector
from esbench.settings import Settings

Beta = Annotated[float, Field(ge=0, lt=1)]


@final
class AdamSettings(Settings):
    """Settings of Adam; defaults as in torch."""

    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    amsgrad: bool = False


@final
class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), or AMSGrad (Reddi, Kale & Kumar 2018, algorithm 2).

    As in torch, AMSGrad takes the maximum of the second moments before their bias correction, and
    ``weight_decay`` times the centre is subtracted from the gradient. The state has torch's layout:
    the moments of the downhill gradient.
    """

    Settings = AdamSettings

    def __init__(self, learning_rate: float, settings: AdamSettings) -> None:
        self._learning_rate = learning_rate
        self._settings = settings
        self._steps = 0
        self._moments: dict[str, Vector] = {}

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new centre, [P]."""
        settings, (beta1, beta2) = self._settings, self._settings.betas
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if settings.amsgrad else 2]
        if not self._moments:
            self._moments = {name: np.zeros_like(center) for name in names}
        mean, square, *largest = (self._moments[name] for name in names)
        downhill = settings.weight_decay * center - gradient
        self._steps += 1
        mean *= beta1
        mean += (1.0 - beta1) * downhill
        square *= beta2
        square += (1.0 - beta2) * (downhill * downhill)
        for most in largest:
            square = np.maximum(most, square, out=most)
        deviation = np.sqrt(square)
        deviation /= math.sqrt(1.0 - beta2**self._steps)
        deviation += settings.eps
        rate = scale * self._learning_rate / (1.0 - beta1**self._steps)
        return center - rate * (mean / deviation)

    def state_dict(self) -> State:
        """The number of steps and the moments; empty before the first step."""
        moments = {name: moment.copy() for name, moment in self._moments.items()}
        return {"step": self._steps, **moments} if moments else {}

    def load_state_dict(self, state: State) -> None:
        """Restore the number of steps and the moments."""
        self._steps = int(state.get("step", 0))
        self._moments = {name: np.array(state[name]) for name in state if name != "step"}
