"""Optimizers that follow a gradient estimate: ClipUp, Adam, SGD and the others of ``torch.optim``.

Adam and SGD are implemented here, not taken from torch, for two reasons:

- A trial that does not use torch starts faster, because ``import torch`` is slow.
- Torch's vectorized loops use fused multiply-add where the processor has it, so their bits depend
  on the processor. The operations here round one by one and give the same bits everywhere, except
  for the powers of Adam's betas.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Protocol, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.search_settings import NonNegative, Positive
from esbench.core.arrays import State, Vector, with_arrays, without_arrays
from esbench.core.errors import UsageError, suggestion
from esbench.core.registry import import_object
from esbench.core.settings import Settings, parse

if TYPE_CHECKING:
    import torch

BelowOne = Annotated[float, Field(ge=0, lt=1)]
# The learning rate is a setting of the algorithm; the others reverse the direction of the step, or
# need a GPU or automatic differentiation.
NOT_SETTINGS: Final = {"params", "lr", "maximize", "capturable", "differentiable"}
INTERFACE: Final = ("step", "param_groups", "state_dict", "load_state_dict")
_SEQUENCE: Final = "[]"  # no key of a table: a list is not hashable


class AscentSettings(Protocol):
    """The settings of an algorithm that follows a gradient estimate with an optimizer."""

    learning_rate: float
    learning_rate_decay: float
    optimizer: str
    optimizer_settings: dict[str, Any]
    weight_decay: float


@final
class Ascent:
    """Follows a gradient estimate as the settings of an algorithm say."""

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


class Optimizer(ABC):
    """Turns gradient estimates into steps uphill."""

    @abstractmethod
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P], from a gradient [P] that points to higher returns.

        ``scale`` is a factor on the learning rate and on every setting in its units.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """The state: a table of arrays, numbers and tables."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""


class NumpyOptimizer(Optimizer, ABC):
    """An optimizer whose state is a table of arrays and numbers, empty before the first step."""

    Settings: ClassVar[Any]

    def __init__(self, learning_rate: float, settings: Any) -> None:
        self._learning_rate = learning_rate
        self._settings = settings
        self._state: State = {}

    @final
    def state_dict(self) -> State:
        """A copy of the state."""
        return copy.deepcopy(self._state)

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
        self._state = copy.deepcopy(state)


@final
class AdamSettings(Settings):
    """Settings of Adam; defaults as in torch."""

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    amsgrad: bool = False


@final
class Adam(NumpyOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), or AMSGrad (Reddi, Kale & Kumar 2018, algorithm 2).

    As in torch, AMSGrad takes the maximum of the second moments before their bias correction, and
    ``weight_decay`` times the center is subtracted from the gradient. The state has torch's layout:
    the moments of the downhill gradient.
    """

    Settings = AdamSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]."""
        settings, state = self._settings, self._state
        beta1, beta2 = settings.betas
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if settings.amsgrad else 2]
        if not state:
            state |= {"step": 0, **{name: np.zeros_like(center) for name in names}}
        mean, square, *largest = (state[name] for name in names)
        downhill = settings.weight_decay * center - gradient
        state["step"] = steps = int(state["step"]) + 1
        mean *= beta1
        mean += (1.0 - beta1) * downhill
        square *= beta2
        square += (1.0 - beta2) * (downhill * downhill)
        for most in largest:
            square = np.maximum(most, square, out=most)
        deviation = np.sqrt(square)
        deviation /= math.sqrt(1.0 - beta2**steps)
        deviation += settings.eps
        rate = scale * self._learning_rate / (1.0 - beta1**steps)
        moved: Vector = center - rate * (mean / deviation)
        return moved


@final
class SGDSettings(Settings):
    """Settings of SGD; defaults as in torch."""

    momentum: NonNegative = 0.0
    dampening: float = 0.0
    weight_decay: NonNegative = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGDSettings:
        if self.nesterov and not (self.momentum > 0.0 and self.dampening == 0.0):
            raise ValueError("nesterov = true: expected momentum above 0 and dampening 0")
        return self


@final
class SGD(NumpyOptimizer):
    """Gradient ascent, plain, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    As in torch, the first velocity is the undamped gradient, and the learning rate multiplies the
    velocity, not the gradients that enter it. The state has torch's layout: a downhill velocity.
    """

    Settings = SGDSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]."""
        settings = self._settings
        step = downhill = settings.weight_decay * center - gradient
        if settings.momentum > 0.0:
            velocity = downhill
            if self._state:
                new = (1.0 - settings.dampening) * downhill
                velocity = settings.momentum * self._state["momentum_buffer"] + new
            self._state = {"momentum_buffer": velocity}
            step = downhill + settings.momentum * velocity if settings.nesterov else velocity
        moved: Vector = center - scale * self._learning_rate * step
        return moved


@final
class ClipUpSettings(Settings):
    """Settings of ClipUp; the default of ``max_speed`` is twice the learning rate."""

    momentum: BelowOne = 0.9
    max_speed: Positive | None = None


@final
class ClipUp(NumpyOptimizer):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A gradient of zero adds nothing,
    so the velocity decays.
    """

    Settings = ClipUpSettings

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]; ``scale`` also multiplies the maximum speed."""
        velocity: Vector = self._state.get("velocity", np.zeros_like(center))
        velocity = self._settings.momentum * velocity
        length = _norm(gradient)
        if length > 0.0:
            velocity = velocity + scale * self._learning_rate * (gradient / length)
        speed = _norm(velocity)
        most = scale * (self._settings.max_speed or 2 * self._learning_rate)
        if speed > most:
            velocity = velocity * (most / speed)
        self._state = {"velocity": velocity}
        return center + velocity


def _norm(vector: Vector) -> float:
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))


NUMPY_OPTIMIZERS: Final[dict[str, type[NumpyOptimizer]]] = {
    "adam": Adam,
    "clipup": ClipUp,
    "sgd": SGD,
}


@final
class TorchOptimizer(Optimizer):
    """A class of ``torch.optim``, or with its interface, on one float64 parameter vector."""

    def __init__(self, cls: Any, size: int, settings: State, *, is_own: bool) -> None:
        """Make the optimizer; ``is_own`` for a class that is given by "package.file:Class"."""
        import torch

        self._parameter = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self._optimizer = (cls if is_own else _without_compiler(cls))([self._parameter], **settings)
        self._learning_rate = settings["lr"]
        self._is_own = is_own
        if missing := [name for name in INTERFACE if not hasattr(self._optimizer, name)]:
            raise ValueError(f"it has no {missing[0]!r}; expected the interface of torch.optim")

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

    def state_dict(self) -> State:
        """The buffers of torch's class (moments, step counts), or all that an own one stores."""
        if self._is_own:
            state: State = _storable(self._optimizer.state_dict())
            return state
        buffers = self._optimizer.state.get(self._parameter, {})
        return {name: _storable(value) for name, value in buffers.items()}

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""
        import torch

        optimizer = self._optimizer
        if not self._is_own:
            buffers = {name: _restored(value) for name, value in state.items()}
            optimizer.state[self._parameter] = buffers
            return
        restored = _restored(state)
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


def _without_compiler(cls: Any) -> Any:
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


def make_optimizer(
    name: str, size: int, learning_rate: float, settings: Mapping[str, Any]
) -> Optimizer:
    """The optimizer ``name`` for ``size`` parameters, with further ``settings``.

    Raises:
        UsageError: the optimizer is unknown or does not accept these arguments.
    """
    for key in {"lr", "learning_rate"} & settings.keys():
        raise UsageError(f"optimizer {name}: {key}: set the algorithm's learning_rate instead")
    numpy_class, is_own = NUMPY_OPTIMIZERS.get(name.lower()), ":" in name
    if numpy_class is not None:
        typed = parse(numpy_class.Settings, dict(settings), f"optimizer {name}")
    else:
        cls = _torch_class(name, settings)

    def make(size: int) -> Optimizer:
        if numpy_class is not None:
            return numpy_class(learning_rate, typed)
        return TorchOptimizer(cls, size, {"lr": learning_rate, **settings}, is_own=is_own)

    try:
        _try_out(tried := make(1))
        if is_own:
            _require_restored(tried, make(1))
        return make(size)
    except Exception as error:  # a user's own class may raise anything
        reason = str(error) or type(error).__name__
        raise UsageError(f"optimizer {name} with {dict(settings)}: {reason}") from None


def _torch_class(name: str, settings: Mapping[str, Any]) -> Any:
    """A class of ``torch.optim`` or a user's "package.file:Class", and a check of its arguments."""
    cls: Any = import_object("optimizer", name) if ":" in name else None
    if cls is None and (cls := torch_optimizers().get(name.lower())) is None:
        near = suggestion(name, {*torch_optimizers(), *NUMPY_OPTIMIZERS})
        raise UsageError(f"unknown optimizer {name!r}; {near}")
    if not callable(getattr(cls, "step", None)):
        raise UsageError(
            f"optimizer {name} has no step; expected a class with the interface of torch.optim"
        )
    parameters = inspect.signature(cls).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for key in settings.keys() - (allowed := parameters.keys() - NOT_SETTINGS):
            raise UsageError(f"optimizer {name}: unknown key {key}; {suggestion(key, allowed)}")
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
