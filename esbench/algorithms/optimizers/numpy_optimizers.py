"""Adam, SGD and ClipUp. The arrays of the first step determine the number of parameters."""

from __future__ import annotations

import copy
import math
from abc import ABC
from typing import Annotated, Any, ClassVar, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.optimizers import Optimizer, State
from esbench.algorithms.search_settings import NonNegative, Positive
from esbench.core.arrays import Vector
from esbench.core.settings import Settings

BelowOne = Annotated[float, Field(ge=0, lt=1)]


class NumpyOptimizer(Optimizer, ABC):
    """An optimizer whose state is a table of arrays and numbers, empty before the first step."""

    Settings: ClassVar[Any]

    def __init__(self, learning_rate: float, settings: Any) -> None:
        self._learning_rate = learning_rate
        self._settings = settings
        self._state: State = {}

    @final
    def state_dict(self) -> State:
        """A copy of the state."""
        return copy.deepcopy(self._state)

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
        self._state = copy.deepcopy(state)


@final
class AdamSettings(Settings):
    """Settings of Adam; defaults as in torch."""

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    amsgrad: bool = False


@final
class Adam(NumpyOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), or AMSGrad (Reddi, Kale & Kumar 2018, algorithm 2).

    As in torch, AMSGrad takes the maximum of the second moments before their bias correction, and
    ``weight_decay`` times the center is subtracted from the gradient. The state has torch's layout:
    the moments of the downhill gradient.
    """

    Settings = AdamSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]."""
        settings, state = self._settings, self._state
        beta1, beta2 = settings.betas
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if settings.amsgrad else 2]
        if not state:
            state |= {"step": 0, **{name: np.zeros_like(center) for name in names}}
        mean, square, *largest = (state[name] for name in names)
        downhill = settings.weight_decay * center - gradient
        state["step"] = steps = int(state["step"]) + 1
        mean *= beta1
        mean += (1.0 - beta1) * downhill
        square *= beta2
        square += (1.0 - beta2) * (downhill * downhill)
        for most in largest:
            square = np.maximum(most, square, out=most)
        deviation = np.sqrt(square)
        deviation /= math.sqrt(1.0 - beta2**steps)
        deviation += settings.eps
        rate = scale * self._learning_rate / (1.0 - beta1**steps)
        moved: Vector = center - rate * (mean / deviation)
        return moved


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
class SGD(NumpyOptimizer):
    """Gradient ascent, plain, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    As in torch, the first velocity is the undamped gradient, and the learning rate multiplies the
    velocity, not the gradients that enter it. The state has torch's layout: a downhill velocity.
    """

    Settings = SGDSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]."""
        settings = self._settings
        step = downhill = settings.weight_decay * center - gradient
        if settings.momentum > 0.0:
            velocity = downhill
            if self._state:
                new = (1.0 - settings.dampening) * downhill
                velocity = settings.momentum * self._state["momentum_buffer"] + new
            self._state = {"momentum_buffer": velocity}
            step = downhill + settings.momentum * velocity if settings.nesterov else velocity
        moved: Vector = center - scale * self._learning_rate * step
        return moved


@final
class ClipUpSettings(Settings):
    """Settings of ClipUp; the default of ``max_speed`` is twice the learning rate."""

    momentum: BelowOne = 0.9
    max_speed: Positive | None = None


@final
class ClipUp(NumpyOptimizer):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A gradient of zero adds nothing,
    so the velocity decays.
    """

    Settings = ClipUpSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]; ``scale`` also multiplies the maximum speed."""
        velocity: Vector = self._state.get("velocity", np.zeros_like(center))
        velocity = self._settings.momentum * velocity
        length = _norm(gradient)
        if length > 0.0:
            velocity = velocity + scale * self._learning_rate * (gradient / length)
        speed = _norm(velocity)
        most = scale * (self._settings.max_speed or 2 * self._learning_rate)
        if speed > most:
            velocity = velocity * (most / speed)
        self._state = {"velocity": velocity}
        return center + velocity


def _norm(vector: Vector) -> float:
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))
