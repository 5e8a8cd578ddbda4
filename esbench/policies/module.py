"""A user's own ``torch.nn.Module`` as the policy.

``template = "package.file:Class"`` names the class, which is built as ``Class(num_inputs,
num_outputs, **arguments)`` and maps a float32 tensor [1, num_inputs] to [1, num_outputs]. For
images it is built as ``Class((C, H, W), num_outputs, **arguments)`` and maps [1, C, H, W]. Every
slot has its own copy of the module and computes alone, so its bits do not depend on the other
slots. This is much slower than a built-in template of the same size.

Parameters that require gradients are trained. The others, and buffers, stay as constructed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.core.errors import (
    TrainingError,
    UsageError,
    UserCodeError,
    error_text,
    location,
    suggestion,
)
from esbench.core.escape import printable
from esbench.core.registry import import_object
from esbench.policies.policy import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    ReferredBatch,
    Rows,
    TorchPolicy,
    register_policy,
)

COPIES: Final = 8  # of a network, compared before training

if TYPE_CHECKING:
    import torch

    from esbench.policies.kernels.torch_modules import Images


@final
class ModuleSettings(PolicySettings):
    """Settings of a user's own module."""

    factory: str
    """The class, as "package.file:Class"; the workers must be able to import it too."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the constructor."""

    reference_size: Annotated[int, Field(ge=2, le=4096)] = 128
    """Size of the reference batch of VirtualBatchNorm layers [observations]."""


@final
@register_policy("module")
class ModulePolicy(PreparedPolicy, TorchPolicy):
    """A torch.nn.Module, by its import name."""

    Settings = ModuleSettings
    takes_images = True
    settings: ModuleSettings

    def prepare(self) -> None:
        """Import the module class and check its arguments."""
        settings = self.settings
        self._class = import_object("policy", settings.factory)
        try:
            parameters = inspect.signature(self._class).parameters
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"policy {settings.factory} is not a torch.nn.Module class ({error})"
            ) from error
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        known = list(parameters)[2:]
        for name in settings.arguments:
            if name in list(parameters)[:2] or (name not in known and not takes_any):
                raise UsageError(
                    f"policy {settings.factory} takes no argument {name!r}; "
                    f"{suggestion(name, known)}"
                )
        from esbench.policies.kernels.torch_modules import Images, normalizing_layers

        self._first: int | tuple[int, ...] = self.num_inputs
        self._images: Images | None = None
        if self.pixels is not None:
            pixels = None if settings.normalize_observations else self.pixels
            if pixels is not None and not np.isfinite(pixels).all():
                raise UsageError(
                    f"policy {settings.factory}: the observations are images {self.shape} with "
                    "infinite bounds, which cannot be scaled; expected finite bounds, such as 0 "
                    "to 255, or normalize_observations = true"
                )
            self._images = Images(self.shape, pixels)
            self._first = self._images.size
        module = self._build(seed=0)
        self._shapes = tuple(tuple(p.shape) for p in _trained(module))
        if self.num_params == 0:
            raise UsageError(f"policy {settings.factory} has no parameters to train")
        if normalizing_layers(module):
            self.reference_size = settings.reference_size
        self._try(module)

    @property
    def shapes(self) -> Shapes:
        """The shapes of the trained ones of ``module.parameters()``."""
        return self._shapes

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """The module's own initialization [P], with torch seeded from ``generator``.

        Raises:
            UserCodeError: the constructor uses other random numbers than torch's, or draws values
                that are not trained.
        """
        seed = int(generator.integers(2**63))
        module = self._build(seed)
        name = f"policy {self.settings.factory}"
        if (key := _difference(module, self._build(seed), fixed_only=False)) is not None:
            raise UserCodeError(
                f"{name}: two modules with the same seed of torch have different {key!r}; expected "
                "no other random numbers than torch's in the constructor"
            )
        if (key := _difference(module, self._build(seed=0), fixed_only=True)) is not None:
            raise UserCodeError(
                f"{name}: {key!r} is not trained, but depends on the seed of torch; expected a "
                "parameter that requires gradients, or a torch.Generator with a seed of its own"
            )
        return _values(module)

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return self._batch(self._build(seed=0), slots)

    def _batch(self, module: torch.nn.Module, slots: int) -> ModuleBatch:
        return ModuleBatch(module, slots, self.num_outputs, self.settings.factory, self._images)

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """The user's module, behind the layer that makes images of flat observations."""
        import torch

        batch = self._batch(self._build(seed=0), 1)
        if reference is not None:
            batch.refer(reference)
        module = batch.loaded(parameters)
        for each in module.parameters():  # so far, views of one array
            each.data = each.data.clone()
        return module if self._images is None else torch.nn.Sequential(self._images, module)

    def _build(self, seed: int) -> torch.nn.Module:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = self._class(self._first, self.num_outputs, **self.settings.arguments)
            except Exception as error:  # a user's code may raise anything
                raise UserCodeError(
                    f"policy {self.settings.factory} cannot be built as "
                    f"Class({self._first}, {self.num_outputs}, **arguments), for observations of "
                    f"shape {list(self.shape)}: {error_text(error)}{location(error)}"
                ) from error
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"policy {self.settings.factory} makes a {type(module).__name__}; "
                "expected a torch.nn.Module"
            )
        _require_values(module, f"policy {self.settings.factory}")
        return module.eval()

    def _try(self, module: torch.nn.Module) -> None:
        """Raises UsageError if the module does not accept an observation or has other outputs.

        So it does if copies of the module return different bits.
        """
        import torch

        row = torch.linspace(-1.0, 1.0, self.num_inputs)
        rows = torch.stack([row, -row])
        seen = f"policy {self.settings.factory} was given"
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            batch = self._batch(module, 1)
            if self.reference_size:
                batch.refer(rows.numpy())
            try:
                copies = [batch.loaded(_values(module)) for _ in range(COPIES)]
            except UsageError:
                raise
            except Exception as error:  # a user's module may not support copies
                raise UserCodeError(
                    f"policy {self.settings.factory} cannot be copied with copy.deepcopy, once per "
                    f"slot: {error_text(error)}"
                ) from error
            shown = batch.shown(rows[:1].numpy())
            seen = f"{seen} {list(shown.shape)} and"
            try:
                outputs = [each(shown.clone()) for each in copies]
            except Exception as error:  # a user's code may raise anything
                raise UserCodeError(
                    f"{seen} raised {error_text(error)}{location(error)}"
                ) from error
        for each in outputs:
            found = list(each.shape) if isinstance(each, torch.Tensor) else type(each).__name__
            if found != [1, self.num_outputs]:
                raise UsageError(f"{seen} returned {found}; expected {[1, self.num_outputs]}")
            if each.dtype != torch.float32:
                kind = str(each.dtype).removeprefix("torch.")
                raise UsageError(f"{seen} returned {kind} numbers; expected float32")
        first, *others = (each.nan_to_num() for each in outputs)
        if not all(torch.equal(first, each) for each in others):
            raise UsageError(
                f"{seen} copies of it returned different outputs, so results would depend on "
                "the worker; expected no random numbers in forward (dropout: torch.nn.Dropout, or "
                "functional.dropout with training=self.training)"
            )


def _trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that a search changes."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _values(module: torch.nn.Module) -> Vector:
    """The values of the trained parameters [P]."""
    return np.concatenate([p.detach().double().numpy().ravel() for p in _trained(module)])


def _difference(first: torch.nn.Module, second: torch.nn.Module, *, fixed_only: bool) -> str | None:
    """The name of a parameter or buffer that differs; None if there is none.

    With ``fixed_only``, trained parameters may differ.
    """
    others = dict([*second.named_parameters(), *second.named_buffers()])
    for name, mine in [*first.named_parameters(), *first.named_buffers()]:
        if fixed_only and mine.requires_grad:
            continue
        other = others.get(name)
        if other is None or mine.shape != other.shape:
            return printable(name)
        if mine.is_meta or other.is_meta:  # without values
            continue
        mine, other = (each.to_dense() if each.is_sparse else each for each in (mine, other))
        if not bool(((mine == other) | ((mine != mine) & (other != other))).all()):  # or both NaN
            return printable(name)
    return None


def _require_values(module: torch.nn.Module, name: str) -> None:
    """Raises UserCodeError if parameters have no values, or values that cannot be trained."""
    import torch

    for key, parameter in module.named_parameters():
        kind = ""
        if torch.nn.parameter.is_lazy(parameter):
            kind = "lazy"
        elif parameter.device.type != "cpu":
            kind = f"on the device {parameter.device}"
        elif parameter.requires_grad and parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
        elif parameter.requires_grad and not bool(parameter.isfinite().all()):
            kind = "not finite"
        if kind:
            raise UserCodeError(
                f"{name}: its parameter {printable(key)!r} is {kind}; expected parameters with "
                "finite float32 values on the cpu after the constructor"
            )


@final
class ModuleBatch(ReferredBatch):
    """One copy of the module per slot."""

    def __init__(
        self,
        module: torch.nn.Module,
        slots: int,
        num_outputs: int,
        name: str,
        images: Images | None,
    ) -> None:
        self._initial = module
        self._modules = [module] * slots
        self._num_outputs = num_outputs
        self._name = name
        self._images = images
        self._reference: torch.Tensor | None = None

    def refer(self, observations: Rows) -> None:
        """Set the reference batch [R, inputs]."""
        self._reference = self.shown(observations)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a new copy of the module, without state."""
        self._modules[slot] = self.loaded(parameters)

    def loaded(self, parameters: Vector) -> torch.nn.Module:
        """A new copy of the module with the parameters [P] of a member."""
        import torch

        from esbench.policies.kernels.torch_modules import refer

        values = torch.from_numpy(parameters.astype(np.float32)).clone()  # aligned, see ``shown``
        module = copy.deepcopy(self._initial)
        torch.nn.utils.vector_to_parameters(values, _trained(module))
        if self._reference is None:
            return module
        try:
            with torch.no_grad():
                refer(module, self._reference)
        except Exception as error:  # a user's code may not accept several rows
            raise UserCodeError(
                f"policy {self._name} has VirtualBatchNorm layers but rejects the reference batch "
                f"{list(self._reference.shape)}: {error_text(error)}"
            ) from error
        return module

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        import torch

        slots = range(len(observations)) if live is None else live
        with torch.inference_mode():
            rows = [self.shown(observations[slot : slot + 1]) for slot in slots]
            outputs = [self._modules[slot](row) for slot, row in zip(slots, rows, strict=True)]
            for each in outputs:
                if each.shape != (1, self._num_outputs):
                    raise TrainingError(
                        f"policy {self._name} returned {list(each.shape)} for one observation; "
                        f"expected {[1, self._num_outputs]}"
                    )
            computed: Rows = torch.cat(outputs).numpy()
        if len(slots) == len(observations):
            return computed
        result = np.zeros((len(observations), computed.shape[1]), computed.dtype)
        result[slots] = computed
        return result

    def shown(self, observations: Rows) -> torch.Tensor:
        """The observations [k, inputs] as the module takes them."""
        import torch

        rows = torch.from_numpy(observations).clone()  # aligned: MKL's rounding depends on it
        return rows if self._images is None else self._images(rows)
