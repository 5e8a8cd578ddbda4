"""Which optimizer a name and its settings make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from esbench.algorithms.optimizers.adam import Adam
from esbench.algorithms.optimizers.base import Optimizer
from esbench.algorithms.optimizers.clipup import ClipUp
from esbench.algorithms.optimizers.sgd import SGD
from esbench.algorithms.optimizers.torch_optimizer import TorchOptimizer, torch_optimizers
from esbench.errors import UsageError, suggestion

OWN: Final[dict[str, Callable[..., Optimizer]]] = {"adam": Adam, "clipup": ClipUp, "sgd": SGD}
# The learning rate has its own place; the rest turn the climb round or need a GPU or autograd.
NOT_SETTINGS: Final = frozenset(
    {"params", "lr", "learning_rate", "maximize", "capturable", "differentiable"}
)


def make_optimizer(
    name: str, size: int, learning_rate: float, settings: Mapping[str, Any]
) -> Optimizer:
    """Return the optimizer ``name`` for ``size`` parameters.

    Args:
        name: ``adam``, ``clipup``, ``sgd`` or another class of ``torch.optim``, in any case.
        size: the number of parameters, P.
        learning_rate: its learning rate.
        settings: further arguments of its constructor.

    Raises:
        UsageError: no such optimizer, or it does not take these arguments.
    """
    own = OWN.get(name.lower())
    cls: Any = own or torch_optimizers().get(name.lower())
    if cls is None:
        near = suggestion(name, {*torch_optimizers(), *OWN})
        raise UsageError(f"unknown optimizer {name!r}; {near}")
    _require_known(name, settings, set(inspect.signature(cls).parameters) - NOT_SETTINGS)
    if own is None:
        _require_no_words(name, settings)

    def make(size: int) -> Optimizer:
        if own is not None:
            return own(learning_rate, **settings)
        return TorchOptimizer(cls, size, {"lr": learning_rate, **settings})

    try:
        _try_out(make(1))
        return make(size)
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        raise UsageError(f"optimizer {name} with {dict(settings)}: {error}") from None


def _require_known(name: str, settings: Mapping[str, Any], allowed: set[str]) -> None:
    for key in settings:
        if key in {"lr", "learning_rate"}:
            raise UsageError(
                f"unknown setting {key!r} of {name}; the algorithm has it, as learning_rate"
            )
        if key not in allowed:
            raise UsageError(f"unknown setting {key!r} of {name}; {suggestion(key, allowed)}")


def _require_no_words(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse words, none of which torch's classes take: they fail somewhere, in Python's terms."""
    for key, value in settings.items():
        if any(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
            raise UsageError(
                f"optimizer {name}: {key} = {value!r}: expected a number, a list of numbers, true "
                "or false"
            )


def _try_out(optimizer: Optimizer) -> None:
    """Climb a few steps: torch looks at many settings only there, which would be in training."""
    center = np.zeros(1)
    with np.errstate(all="ignore"):
        for _ in range(3):
            center = optimizer.step(center, np.ones(1))
    if not np.isfinite(center).all():
        raise ValueError("its steps are not finite")
