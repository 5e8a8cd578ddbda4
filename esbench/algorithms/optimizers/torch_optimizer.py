"""Any class of ``torch.optim``, or with its interface; torch is imported on first use."""

from __future__ import annotations

import contextlib
import inspect
import json
from abc import ABC
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from esbench.algorithms.optimizers import Optimizer, State
from esbench.core.arrays import Vector

if TYPE_CHECKING:
    import torch

INTERFACE: Final = ("step", "param_groups", "state_dict", "load_state_dict")
_SEQUENCE: Final = "[]"  # no key of a table: a list is not hashable


class TorchInterface(Optimizer, ABC):
    """A class with torch's interface on one float64 parameter vector."""

    def __init__(self, cls: Any, size: int, settings: State) -> None:
        import torch

        self._parameter = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self._optimizer = cls([self._parameter], **settings)
        self._learning_rate = settings["lr"]

    @final
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]; torch minimizes, hence the sign.

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


@final
class TorchOptimizer(TorchInterface):
    """A ``torch.optim`` class."""

    def __init__(self, cls: type[torch.optim.Optimizer], size: int, settings: State) -> None:
        super().__init__(_without_compiler(cls), size, settings)

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


@final
class OwnOptimizer(TorchInterface):
    """A user's own class, whose state is what its ``state_dict`` says."""

    def __init__(self, cls: Any, size: int, settings: State) -> None:
        super().__init__(cls, size, settings)
        if missing := [name for name in INTERFACE if not hasattr(self._optimizer, name)]:
            raise ValueError(f"it has no {missing[0]!r}; expected the interface of torch.optim")

    def state_dict(self) -> State:
        """The state of the class as arrays, numbers and tables."""
        state: State = _storable(self._optimizer.state_dict())
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore the state."""
        import torch

        restored, optimizer = _restored(state), self._optimizer
        if type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict:
            optimizer.load_state_dict(restored)
            return
        # Torch's own method would cast every tensor to the type of the parameter.
        optimizer.state[self._parameter] = restored["state"].get(0, {})
        optimizer.param_groups[0].update(restored["param_groups"][0], params=[self._parameter])


def _storable(value: Any) -> Any:
    """Tensors as arrays, keys as JSON text and sequences as tables, so that all can be stored."""
    import torch

    match value:
        case torch.Tensor():
            return value.numpy(force=True).copy()
        case dict():
            return {json.dumps(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return {_SEQUENCE: {str(place): _storable(item) for place, item in enumerate(value)}}
        case bool() | int() | float() | str() | None:
            return value
    raise TypeError(f"its state_dict has a {type(value).__name__}; expected tensors and numbers")


def _restored(value: Any) -> Any:
    """The inverse of ``_storable``; tuples are lists."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if not isinstance(value, dict):
        return value
    if set(value) == {_SEQUENCE}:
        return [_restored(item) for item in value[_SEQUENCE].values()]
    return {json.loads(key): _restored(item) for key, item in value.items()}


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
        and name not in {"Optimizer", "LBFGS", "Muon", "SparseAdam"}
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
