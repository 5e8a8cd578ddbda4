"""Any class of ``torch.optim``; torch is imported on first use."""

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
        """The new centre, [P]; torch minimises, hence the sign.

        ``scale`` has no effect on Rprop after the first step, because it adapts its own step sizes,
        and takes effect one step late in ASGD.
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
        """The buffers of the optimizer (moments, step counts) as arrays."""
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
    """The usable classes of ``torch.optim`` by lower-case name.

    LBFGS re-evaluates a closure, Muon takes only matrices and SparseAdam only sparse gradients.
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
    """The class with two of its methods stripped of torch's decorators.

    The decorators import torch's compiler, which is not used here and is slow to import. They also
    disable gradients in ``step``, which the caller must do instead.
    """
    plain = {name: inspect.unwrap(getattr(cls, name)) for name in ("add_param_group", "step")}
    return type(cls.__name__, (cls,), plain)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to this thread, because idle torch threads spin on cores that workers need."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
