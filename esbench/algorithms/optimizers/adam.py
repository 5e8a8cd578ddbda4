"""Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from esbench.algorithms.optimizers.base import Optimizer, State, flag, number
from esbench.arrays import Vector


@final
class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), or AMSGrad (Reddi, Kale & Kumar 2018, algorithm 2).

    As in torch, AMSGrad's maximum is of the second moments before their bias is corrected, and
    ``weight_decay`` takes so much of the centre from the gradient. The state is torch's: moments of
    the gradient downhill.
    """

    def __init__(
        self,
        learning_rate: float,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        if not (isinstance(betas, list | tuple) and len(betas) == 2):
            raise ValueError(f"betas = {betas!r}: expected two numbers")
        self.learning_rate = number("learning_rate", learning_rate, at_least=0.0)
        self.betas = tuple(number("betas", beta, at_least=0.0, below=1.0) for beta in betas)
        self.eps = number("eps", eps, at_least=0.0)
        self.weight_decay = number("weight_decay", weight_decay, at_least=0.0)
        self.amsgrad = flag("amsgrad", amsgrad)
        self._steps = 0
        self._moments: dict[str, Vector] = {}

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P]."""
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if self.amsgrad else 2]
        if not self._moments:
            self._moments = {name: np.zeros_like(center) for name in names}
        mean, square, *largest = (self._moments[name] for name in names)
        beta1, beta2 = self.betas
        downhill = self.weight_decay * center - gradient
        self._steps += 1
        mean *= beta1
        mean += (1.0 - beta1) * downhill
        square *= beta2
        square += (1.0 - beta2) * (downhill * downhill)
        for most in largest:
            square = np.maximum(most, square, out=most)
        deviation = np.sqrt(square)
        deviation /= math.sqrt(1.0 - beta2**self._steps)
        deviation += self.eps
        rate = scale * self.learning_rate / (1.0 - beta1**self._steps)
        return center - rate * (mean / deviation)

    def state_dict(self) -> State:
        """Return the number of steps and the moments; empty before the first step."""
        moments = {name: moment.copy() for name, moment in self._moments.items()}
        return {"step": self._steps, **moments} if moments else {}

    def load_state_dict(self, state: State) -> None:
        """Restore the number of steps and the moments."""
        self._steps = int(state.get("step", 0))
        self._moments = {name: np.array(state[name]) for name in state if name != "step"}
