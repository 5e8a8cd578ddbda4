"""Any class of ``torch.optim``; torch is imported where one is asked for, not before."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import numpy as np

from esbench.algorithms.optimizers.base import Optimizer, State
from esbench.arrays import Vector

if TYPE_CHECKING:
    import torch


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

    Measured on two cores for 5,702 parameters, mostly for the square root of torch's Adam: a second
    thread was busy for 20 % of the training time, on a core that a worker needed.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
