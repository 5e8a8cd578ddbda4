"""Activations, applied in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import numpy as np

from esbench.policies.base import Rows

Activation: TypeAlias = Literal["tanh", "relu", "elu", "selu", "gelu", "sigmoid", "identity"]
HALF: Final = np.float32(0.5)
SQRT_HALF: Final = np.float32(0.5**0.5)
SELU_SCALE: Final = np.float32(1.0507009873554805)
SELU_ALPHA: Final = np.float32(1.6732632423543772)


def _identity(values: Rows) -> None:
    pass


def _tanh(values: Rows) -> None:
    np.tanh(values, out=values)


def _relu(values: Rows) -> None:
    np.maximum(values, np.float32(0.0), out=values)


def _elu(values: Rows) -> None:
    """Clevert et al. 2016, "Fast and accurate deep network learning by ELUs", with alpha = 1."""
    negative = np.expm1(np.minimum(values, np.float32(0.0)))
    np.maximum(values, np.float32(0.0), out=values)
    values += negative


def _selu(values: Rows) -> None:
    """Klambauer et al. 2017, "Self-normalizing neural networks", eq. 2."""
    negative = np.expm1(np.minimum(values, np.float32(0.0)))
    np.maximum(values, np.float32(0.0), out=values)
    values += SELU_ALPHA * negative
    values *= SELU_SCALE


def _gelu(values: Rows) -> None:
    """Hendrycks & Gimpel 2016, "Gaussian error linear units": x Phi(x), not its approximation."""
    from scipy.special import erf  # on first use, because importing SciPy takes time

    chances = erf(values * SQRT_HALF)
    chances += np.float32(1.0)
    chances *= HALF
    values *= chances


def _sigmoid(values: Rows) -> None:
    """Compute 1 / (1 + exp(-x)) without an exponential that could overflow."""
    values *= HALF
    np.tanh(values, out=values)
    values *= HALF
    values += HALF


ACTIVATIONS: Final[dict[Activation, Callable[[Rows], None]]] = {
    "identity": _identity,
    "tanh": _tanh,
    "relu": _relu,
    "elu": _elu,
    "selu": _selu,
    "gelu": _gelu,
    "sigmoid": _sigmoid,
}
