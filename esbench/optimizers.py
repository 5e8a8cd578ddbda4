"""Optimizers that climb a gradient estimate: ClipUp, and any ``torch.optim`` class by name."""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np

from esbench.errors import UsageError, suggestion
from esbench.population import Vector

if TYPE_CHECKING:
    import torch

State = dict[str, Any]

# The learning rate has its own place; the rest turn the climb round or need a GPU or autograd.
NOT_SETTINGS = {"params", "lr", "learning_rate", "maximize", "capturable", "differentiable"}


class Optimizer(ABC):
    """Turns gradients into steps uphill."""

    @abstractmethod
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P].

        Args:
            center: [P].
            gradient: [P], points to higher returns.
            scale: factor on the learning rate, and on what is given in its units.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Return the state as a table of arrays, numbers and tables."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""


@final
class ClipUp(Optimizer):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A zero gradient adds nothing and
    the velocity decays. ``max_speed`` defaults to twice the learning rate.
    """

    def __init__(
        self, learning_rate: float, momentum: float = 0.9, max_speed: float | None = None
    ) -> None:
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum = {momentum}: expected at least 0 and below 1")
        if max_speed is not None and not max_speed > 0.0:
            raise ValueError(f"max_speed = {max_speed}: expected more than 0")
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.max_speed = 2 * learning_rate if max_speed is None else max_speed
        self._velocity: Vector | None = None

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P]; ``scale`` multiplies the largest speed too."""
        velocity = np.zeros_like(center) if self._velocity is None else self._velocity
        velocity = self.momentum * velocity
        length = _norm(gradient)
        if length > 0.0:
            velocity = velocity + scale * self.learning_rate * (gradient / length)
        speed = _norm(velocity)
        if speed > scale * self.max_speed:
            velocity = velocity * (scale * self.max_speed / speed)
        self._velocity = velocity
        return center + velocity

    def state_dict(self) -> State:
        """Return the velocity; empty before the first step."""
        return {} if self._velocity is None else {"velocity": self._velocity.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the velocity."""
        velocity = state.get("velocity")
        self._velocity = None if velocity is None else np.array(velocity)


@final
class TorchOptimizer(Optimizer):
    """A ``torch.optim`` class on one float64 parameter vector."""

    def __init__(self, cls: type[torch.optim.Optimizer], size: int, settings: State) -> None:
        import torch

        self._parameter = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self._optimizer = _without_compiler(cls)([self._parameter], **settings)
        self._learning_rate = settings["lr"]

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P]; torch minimises, hence the sign.

        ``scale`` is nothing to Rprop, which adapts its own steps after the first, and reaches ASGD
        a step late.
        """
        import torch

        self._parameter.detach().numpy()[:] = center
        self._parameter.grad = torch.from_numpy(-gradient)
        self._optimizer.param_groups[0]["lr"] = scale * self._learning_rate
        with _one_thread(), torch.no_grad():
            self._optimizer.step()
        updated: Vector = self._parameter.detach().numpy().copy()
        return updated

    def state_dict(self) -> State:
        """Return the optimizer's buffers (moments, step counts) as arrays."""
        import torch

        buffers = self._optimizer.state.get(self._parameter, {})
        return {
            name: value.numpy(force=True).copy() if isinstance(value, torch.Tensor) else value
            for name, value in buffers.items()
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the buffers."""
        import torch

        self._optimizer.state[self._parameter] = {
            name: torch.tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in state.items()
        }


def make_optimizer(
    name: str, size: int, learning_rate: float, settings: Mapping[str, Any]
) -> Optimizer:
    """Return the optimizer ``name`` for ``size`` parameters.

    Args:
        name: ``clipup`` or a class of ``torch.optim`` (``adam``, ``sgd``, ...), in any case.
        size: the number of parameters, P.
        learning_rate: its learning rate.
        settings: further arguments of its constructor.

    Raises:
        UsageError: no such optimizer, or it does not take these arguments.
    """
    cls: Any
    if name.lower() == "clipup":
        cls = ClipUp
    else:
        classes = torch_optimizers()
        if name.lower() not in classes:
            raise UsageError(
                f"unknown optimizer {name!r}; {suggestion(name, [*classes, 'clipup'])}"
            )
        cls = classes[name.lower()]
    allowed = set(inspect.signature(cls).parameters) - NOT_SETTINGS
    for key in settings:
        if key not in allowed:
            raise UsageError(f"unknown setting {key!r} of {name}; {suggestion(key, allowed)}")

    def make(size: int) -> Optimizer:
        if cls is ClipUp:
            return ClipUp(learning_rate, **settings)
        return TorchOptimizer(cls, size, {"lr": learning_rate, **settings})

    try:
        _try_out(make(1))
        return make(size)
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        raise UsageError(f"optimizer {name} with {dict(settings)}: {error}") from None


def _try_out(optimizer: Optimizer) -> None:
    """Climb a few steps: torch looks at many settings only there, which would be in training."""
    center = np.zeros(1)
    for _ in range(3):
        center = optimizer.step(center, np.ones(1))
    if not np.isfinite(center).all():
        raise ValueError("its steps are not finite")


def torch_optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    """Return the usable classes of ``torch.optim`` by lower-case name.

    LBFGS needs a closure to re-evaluate and SparseAdam sparse gradients; neither exists here.
    """
    import torch

    return {
        name.lower(): cls
        for name, cls in vars(torch.optim).items()
        if inspect.isclass(cls)
        and issubclass(cls, torch.optim.Optimizer)
        and cls is not torch.optim.Optimizer
        and name not in {"LBFGS", "Muon", "SparseAdam"}
    }


def _without_compiler(cls: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return the class with two methods as they are written, below torch's decorators.

    The decorators import torch's compiler, which nobody uses here and which takes as long to import
    as torch does. Besides, they switch gradients off in ``step``: do so around it.
    """
    plain = {name: inspect.unwrap(getattr(cls, name)) for name in ("add_param_group", "step")}
    return type(cls.__name__, (cls,), plain)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to this thread: those it starts go on spinning beside the workers.

    Measured on two cores for 5,702 parameters, mostly for Adam's square root: a second thread was
    busy for 20 % of the training time, on a core that a worker needed.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _norm(vector: Vector) -> float:
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))
