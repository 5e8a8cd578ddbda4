"""PEPG as in the package PEPG-ES (github.com/goktug97/PEPG-ES), after Sehnke et al., "Parameter-
exploring policy gradients", Neural Networks 23(4), 2010 (doi:10.1016/j.neunet.2009.12.004).

It differs from ``pgpe`` in three ways. The centre uses Adam with weight decay; the deviations
follow their gradient without a limit; the estimates are divided by the N members instead of the N/2
pairs, so that the gradient of the deviations is half of ``pgpe``'s.

Two differences from the package:

- Its sigma can become zero or negative. Here one update leaves at least 1 % of a deviation; a
  smaller decrease, and every increase, equals the package's.
- It adds Adam's eps to sqrt(v), torch to sqrt(v / (1 - beta2^t)). The relative difference of a step
  is at most eps (1 - sqrt(1 - beta2^t)) / sqrt(v).
"""

from __future__ import annotations

from typing import ClassVar, final

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.pgpe import PGPEFamily
from esbench.algorithms.separable import SeparableSettings
from esbench.algorithms.settings import NonNegative, PerParameter, Positive


@final
class PEPGSettings(SeparableSettings):
    """Settings of PEPG; the defaults are those of the package's examples."""

    always_uses_pairs: ClassVar[bool] = True

    sigma: PerParameter | None = 2.0
    learning_rate: Positive = 0.3
    weight_decay: NonNegative = 0.005

    sigma_learning_rate: NonNegative = 0.2
    """Learning rate of the standard deviation; 0 keeps it constant."""


@final
@register_algorithm("pepg")
class PEPG(PGPEFamily):
    """PEPG: PGPE with Adam and weight decay on the centre, as in the package PEPG-ES."""

    Settings = PEPGSettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004"
    sigma_divisor = 2  # 1/N sum over the N/2 pairs ((r+ + r-)/2 - b) (eps^2 - sigma^2)/sigma
