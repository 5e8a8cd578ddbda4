"""Linear policy, starting at zero (Mania, Guy & Recht 2018, arXiv:1803.07055)."""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.policies.base import Policy, PolicyBatch, PolicySettings
from esbench.policies.feedforward import FeedForwardBatch, count_params
from esbench.population import Vector
from esbench.registry import register_policy


class LinearSettings(PolicySettings):
    """Settings of the linear policy.

    Attributes:
        bias: add a constant to every output.
    """

    bias: bool = False


@final
@register_policy("linear")
class Linear(Policy):
    """One matrix from observations to outputs."""

    Settings = LinearSettings
    settings: LinearSettings

    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return count_params(self._sizes, self.settings.bias)

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.num_inputs, self.num_outputs

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return zeros [P]."""
        return np.zeros(self.num_params)

    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        return FeedForwardBatch(slots, self._sizes, "identity", self.settings.bias)
