"""Optimizers by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from esbench.algorithms.optimizers.adam import Adam
from esbench.algorithms.optimizers.base import Optimizer
from esbench.algorithms.optimizers.clipup import ClipUp
from esbench.algorithms.optimizers.sgd import SGD
from esbench.algorithms.optimizers.torch_optimizer import TorchOptimizer, torch_optimizers
from esbench.errors import UsageError, suggestion
from esbench.settings import parse

OWN: Final[dict[str, Any]] = {"adam": Adam, "clipup": ClipUp, "sgd": SGD}
# The learning rate is a setting of the algorithm; the others reverse the direction of the step, or
# need a GPU or automatic differentiation.
NOT_SETTINGS: Final = {"params", "lr", "maximize", "capturable", "differentiable"}


def make_optimizer(
    name: str, size: int, learning_rate: float, settings: Mapping[str, Any]
) -> Optimizer:
    """The optimizer ``name`` for ``size`` parameters.

    Args:
        name: ``adam``, ``clipup``, ``sgd`` or another class of ``torch.optim``; upper and lower
            case are equivalent.
        size: the number of parameters, P.
        learning_rate: the learning rate.
        settings: further arguments of the constructor.

    Raises:
        UsageError: the optimizer is unknown or does not accept these arguments.
    """
    for key in {"lr", "learning_rate"} & settings.keys():
        raise UsageError(f"optimizer {name}: {key}: set the algorithm's learning_rate instead")
    own = OWN.get(name.lower())
    if own is not None:
        typed: Any = parse(own.Settings, dict(settings), f"optimizer {name}")
    else:
        cls = _torch_class(name, settings)

    def make(size: int) -> Optimizer:
        if own is None:
            return TorchOptimizer(cls, size, {"lr": learning_rate, **settings})
        made: Optimizer = own(learning_rate, typed)
        return made

    try:
        _try_out(make(1))
        return make(size)
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        raise UsageError(f"optimizer {name} with {dict(settings)}: {error}") from None


def _torch_class(name: str, settings: Mapping[str, Any]) -> Any:
    """The class of ``torch.optim``, which accepts settings with these names."""
    cls = torch_optimizers().get(name.lower())
    if cls is None:
        near = suggestion(name, {*torch_optimizers(), *OWN})
        raise UsageError(f"unknown optimizer {name!r}; {near}")
    allowed = set(inspect.signature(cls).parameters) - NOT_SETTINGS
    for key, value in settings.items():
        if key not in allowed:
            raise UsageError(f"optimizer {name}: unknown key {key}; {suggestion(key, allowed)}")
        # No class accepts text, and torch's own message for it is unclear.
        if any(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
            raise UsageError(
                f"optimizer {name}: {key} = {value!r}: expected a number, a list of numbers, true "
                "or false"
            )
    return cls


def _try_out(optimizer: Optimizer) -> None:
    """Make a few steps, because torch checks many settings only in a step."""
    center = np.zeros(1)
    with np.errstate(all="ignore"):
        for _ in range(3):
            center = optimizer.step(center, np.ones(1))
    if not np.isfinite(center).all():
        raise ValueError("its steps are not finite")
