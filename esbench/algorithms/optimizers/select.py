"""Optimizers by name, and the step uphill that algorithms make with them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.optimizers import Optimizer
from esbench.algorithms.optimizers.numpy_optimizers import SGD, Adam, ClipUp, NumpyOptimizer
from esbench.algorithms.optimizers.torch_optimizer import (
    OwnOptimizer,
    TorchOptimizer,
    torch_optimizers,
)
from esbench.algorithms.search_settings import AscentSettings
from esbench.core.arrays import Vector, with_arrays, without_arrays
from esbench.core.errors import UsageError, suggestion
from esbench.core.registry import import_object
from esbench.core.settings import parse

OWN: Final[dict[str, type[NumpyOptimizer]]] = {"adam": Adam, "clipup": ClipUp, "sgd": SGD}
# The learning rate is a setting of the algorithm; the others reverse the direction of the step, or
# need a GPU or automatic differentiation.
NOT_SETTINGS: Final = {"params", "lr", "maximize", "capturable", "differentiable"}


@final
class Ascent:
    """Follows a gradient estimate as the ``AscentSettings`` say; ``optimizer`` has the state."""

    def __init__(self, settings: AscentSettings, num_params: int) -> None:
        """Create the optimizer; UsageError if it is unknown or does not accept its settings."""
        self._settings = settings
        self.optimizer = make_optimizer(
            settings.optimizer, num_params, settings.learning_rate, settings.optimizer_settings
        )

    def step(self, center: Vector, gradient: Vector, generation: int) -> Vector:
        """The new center, [P], after ``generation`` decays of the learning rate."""
        settings = self._settings
        scale = settings.learning_rate_decay**generation
        with np.errstate(all="ignore"):  # the trainer reports a divergence, once
            return self.optimizer.step(center, gradient - settings.weight_decay * center, scale)


def make_optimizer(
    name: str, size: int, learning_rate: float, settings: Mapping[str, Any]
) -> Optimizer:
    """The optimizer ``name`` for ``size`` parameters, with further ``settings``.

    Raises:
        UsageError: the optimizer is unknown or does not accept these arguments.
    """
    for key in {"lr", "learning_rate"} & settings.keys():
        raise UsageError(f"optimizer {name}: {key}: set the algorithm's learning_rate instead")
    own = OWN.get(name.lower())
    if own is not None:
        typed = parse(own.Settings, dict(settings), f"optimizer {name}")
    else:
        cls = _torch_class(name, settings)

    def make(size: int) -> Optimizer:
        if own is not None:
            return own(learning_rate, typed)
        kind = OwnOptimizer if ":" in name else TorchOptimizer
        return kind(cls, size, {"lr": learning_rate, **settings})

    try:
        _try_out(tried := make(1))
        if ":" in name:
            _require_restored(tried, make(1))
        return make(size)
    except Exception as error:  # a user's own class may raise anything
        reason = str(error) or type(error).__name__
        raise UsageError(f"optimizer {name} with {dict(settings)}: {reason}") from None


def _own_class(name: str, settings: Mapping[str, Any]) -> Any:
    """A user's class "package.file:Class" and a check of its arguments."""
    cls = import_object("optimizer", name)
    if not callable(getattr(cls, "step", None)):
        raise UsageError(
            f"optimizer {name} has no step; expected a class with the interface of torch.optim"
        )
    parameters = inspect.signature(cls).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for key in settings.keys() - parameters.keys():
            near = suggestion(key, set(parameters) - NOT_SETTINGS)
            raise UsageError(f"optimizer {name}: unknown key {key}; {near}")
    return cls


def _torch_class(name: str, settings: Mapping[str, Any]) -> Any:
    if ":" in name:
        return _own_class(name, settings)
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


def _require_restored(optimizer: Optimizer, other: Optimizer) -> None:
    """Check that another optimizer takes the same steps from a stored state, to the bit."""
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(optimizer.state_dict(), arrays)))
    other.load_state_dict(with_arrays(plain, arrays))
    center = np.zeros(1)
    for gradient in (-0.1, 2.0, -0.3):
        center, again = (each.step(center, np.array([gradient])) for each in (optimizer, other))
        if center != again:
            raise ValueError("its state_dict does not hold what its next step depends on")
