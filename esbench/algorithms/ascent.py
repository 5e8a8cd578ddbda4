"""The step uphill that algorithms share: weight decay and an optimizer with a decaying rate."""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.algorithms.optimizers.base import State
from esbench.algorithms.optimizers.select import make_optimizer
from esbench.algorithms.settings import AscentSettings
from esbench.arrays import Vector


@final
class Ascent:
    """Follows a gradient estimate as the ``AscentSettings`` say."""

    def __init__(self, settings: AscentSettings, num_params: int) -> None:
        """Create the optimizer.

        Raises:
            UsageError: the optimizer is unknown or does not accept its settings.
        """
        self._settings = settings
        self._optimizer = make_optimizer(
            settings.optimizer, num_params, settings.learning_rate, settings.optimizer_settings
        )

    def step(self, center: Vector, gradient: Vector, generation: int) -> Vector:
        """The new centre, [P].

        Args:
            center: [P].
            gradient: [P], points to higher returns.
            generation: the number of decays of the learning rate.
        """
        settings = self._settings
        scale = settings.learning_rate_decay**generation
        with np.errstate(all="ignore"):  # the trainer reports a divergence, once
            return self._optimizer.step(center, gradient - settings.weight_decay * center, scale)

    def state_dict(self) -> State:
        """The state of the optimizer."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
        self._optimizer.load_state_dict(state)
