"""Optimizers that follow a gradient estimate: ClipUp, Adam, SGD and the others of ``torch.optim``.

Adam and SGD are implemented here, not taken from torch, for two reasons:

- A trial that does not use torch starts faster, because ``import torch`` is slow.
- Torch's vectorized loops use fused multiply-add where the processor has it, so their bits depend
  on the processor. The operations here round one by one and give the same bits everywhere, except
  for the powers of Adam's betas.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.search_settings import NonNegative, Positive
from esbench.core.arguments import received
from esbench.core.arrays import State, Vector, norm, with_arrays, without_arrays
from esbench.core.errors import UsageError, require_keywords, unknown
from esbench.core.one_thread import one_torch_thread
from esbench.core.settings import Settings, parse
from esbench.core.user_code import import_object

if TYPE_CHECKING:
    import torch

BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Arguments of torch's classes: the learning rate is a setting of the algorithm; the others reverse
# the direction of the step, or need a GPU or automatic differentiation.
NOT_SETTINGS: Final = {"params", "lr", "maximize", "capturable", "differentiable"}
_SEQUENCE: Final = "[]"  # no key of a table: a list is not hashable


@final
class Ascent:
    """Follows a gradient estimate as the settings of an algorithm say."""

    def __init__(self, settings: Any, num_params: int) -> None:
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


class NumpyRule(Settings, ABC):
    """The settings of an optimizer in NumPy, and its step."""

    @abstractmethod
    def step(
        self, state: State, center: Vector, gradient: Vector, rate: float, scale: float
    ) -> Vector:
        """The new center, [P]; updates the state, which is empty before the first step.

        The learning ``rate`` includes its factor, ``scale``.
        """


@final
class NumpyOptimizer:
    """A rule with a learning rate and a state."""

    def __init__(self, rule: NumpyRule, learning_rate: float) -> None:
        self._rule, self._learning_rate = rule, learning_rate
        self._state: State = {}

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P], from a gradient [P] that points to higher returns.

        ``scale`` is a factor on the learning rate and on every setting in its units.
        """
        return self._rule.step(self._state, center, gradient, scale * self._learning_rate, scale)

    def state_dict(self) -> State:
        """A copy of the state: a table of arrays and numbers."""
        return copy.deepcopy(self._state)

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
        self._state = copy.deepcopy(state)


@final
class Adam(NumpyRule):
    """Adam (Kingma & Ba 2015, algorithm 1), or AMSGrad (Reddi, Kale & Kumar 2018, algorithm 2).

    As in torch, AMSGrad takes the maximum of the second moments before their bias correction, and
    ``weight_decay`` times the center is subtracted from the gradient. The state has torch's layout:
    the moments of the downhill gradient. The defaults are torch's.
    """

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    amsgrad: bool = False

    def step(
        self, state: State, center: Vector, gradient: Vector, rate: float, scale: float
    ) -> Vector:
        """The new center, [P]."""
        beta1, beta2 = self.betas
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if self.amsgrad else 2]
        if not state:
            state |= {"step": 0, **{name: np.zeros_like(center) for name in names}}
        mean, square, *largest = (state[name] for name in names)
        downhill = self.weight_decay * center - gradient
        state["step"] = steps = int(state["step"]) + 1
        mean *= beta1
        mean += (1.0 - beta1) * downhill
        square *= beta2
        square += (1.0 - beta2) * (downhill * downhill)
        for most in largest:
            square = np.maximum(most, square, out=most)
        deviation = np.sqrt(square)
        deviation /= math.sqrt(1.0 - beta2**steps)
        deviation += self.eps
        moved: Vector = center - rate / (1.0 - beta1**steps) * (mean / deviation)
        return moved


@final
class SGD(NumpyRule):
    """Gradient ascent, plain, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    As in torch, the first velocity is the undamped gradient, and the learning rate multiplies the
    velocity, not the gradients that enter it. The state has torch's layout: a downhill velocity.
    The defaults are torch's.
    """

    momentum: NonNegative = 0.0
    dampening: float = 0.0
    weight_decay: NonNegative = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGD:
        if self.nesterov and not (self.momentum > 0.0 and self.dampening == 0.0):
            raise ValueError("nesterov = true: expected momentum above 0 and dampening 0")
        return self

    def step(
        self, state: State, center: Vector, gradient: Vector, rate: float, scale: float
    ) -> Vector:
        """The new center, [P]."""
        step = downhill = self.weight_decay * center - gradient
        if self.momentum > 0.0:
            velocity = downhill
            if state:
                new = (1.0 - self.dampening) * downhill
                velocity = self.momentum * state["momentum_buffer"] + new
            state["momentum_buffer"] = velocity
            step = downhill + self.momentum * velocity if self.nesterov else velocity
        moved: Vector = center - rate * step
        return moved


@final
class ClipUp(NumpyRule):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A gradient of zero adds nothing,
    so the velocity decays. The default of ``max_speed`` is twice the learning rate.
    """

    momentum: BelowOne = 0.9
    max_speed: Positive | None = None

    def step(
        self, state: State, center: Vector, gradient: Vector, rate: float, scale: float
    ) -> Vector:
        """The new center, [P]; ``scale`` also multiplies the maximum speed."""
        velocity: Vector = self.momentum * state.get("velocity", np.zeros_like(center))
        length = norm(gradient)
        if length > 0.0:
            velocity = velocity + rate * (gradient / length)
        speed = norm(velocity)
        most = scale * self.max_speed if self.max_speed else 2 * rate
        if speed > most:
            velocity = velocity * (most / speed)
        state["velocity"] = velocity
        return center + velocity


RULES: Final[dict[str, type[NumpyRule]]] = {"adam": Adam, "clipup": ClipUp, "sgd": SGD}


@final
class TorchOptimizer:
    """A class of ``torch.optim``, or with its interface, on one float64 parameter vector."""

    def __init__(self, cls: Any, size: int, settings: State, *, is_own: bool) -> None:
        """Make the optimizer; ``is_own`` for a class that is given by "package.file:Class"."""
        import torch

        self._parameter = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self._optimizer = (cls if is_own else _without_compiler(cls))([self._parameter], **settings)
        self._learning_rate = settings["lr"]
        self._is_own = is_own

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new center, [P]; torch minimizes, hence the sign.

        ``scale`` has no effect on Rprop after the first step, because it adapts its own step sizes,
        and takes effect one step late in ASGD.
        """
        import torch

        self._parameter.detach().numpy()[:] = center
        self._parameter.grad = torch.from_numpy(-gradient)
        self._optimizer.param_groups[0]["lr"] = scale * self._learning_rate
        with one_torch_thread(), torch.no_grad():
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


Optimizer: TypeAlias = NumpyOptimizer | TorchOptimizer


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
    make = _maker(name, learning_rate, settings)
    try:
        _require_sound(make(1), make(1))
        return make(size)
    except Exception as error:  # a user's own class may raise anything
        reason = str(error) or type(error).__name__
        raise UsageError(f"optimizer {name} with {dict(settings)}: {reason}") from None


def _maker(
    name: str, learning_rate: float, settings: Mapping[str, Any]
) -> Callable[[int], Optimizer]:
    """The function from a number of parameters to an optimizer."""
    if name.lower() in RULES:
        rule = parse(RULES[name.lower()], dict(settings), f"optimizer {name}")
        return lambda size: NumpyOptimizer(rule, learning_rate)
    cls, is_own = torch_optimizers().get(name.lower()), ":" in name
    if is_own:
        cls = import_object("optimizer", name)
        if not (inspect.isclass(cls) and callable(getattr(cls, "step", None))):
            raise UsageError(f"optimizer {name}: expected a class with step, as in torch.optim")
    if cls is None:
        raise unknown("optimizer", name, {*torch_optimizers(), *RULES})
    require_keywords(f"optimizer {name}", cls, settings, others=NOT_SETTINGS)
    given = {"lr": learning_rate, **received(cls, settings)}
    return lambda size: TorchOptimizer(cls, size, given, is_own=is_own)


def _require_sound(optimizer: Optimizer, other: Optimizer) -> None:
    """Check some steps, in which torch checks many settings, and those of a restored copy.

    Raises:
        ValueError: the steps are not finite, or not equal to the bit.
    """
    center, arrays = np.zeros(1), dict[str, Any]()
    with np.errstate(all="ignore"):
        for _ in range(3):
            center = optimizer.step(center, np.ones(1))
    if not np.isfinite(center).all():
        raise ValueError("its steps are not finite")
    plain = json.loads(json.dumps(without_arrays(optimizer.state_dict(), arrays)))
    other.load_state_dict(with_arrays(plain, arrays))
    for gradient in (-0.1, 2.0, -0.3):
        center, again = (each.step(center, np.array([gradient])) for each in (optimizer, other))
        if center != again:
            raise ValueError("its state_dict does not hold what its next step depends on")
