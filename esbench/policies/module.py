"""A user's own ``torch.nn.Module`` as the policy.

``template = "package.file:Class"`` names the class, which is built as ``Class(num_inputs,
num_outputs, **arguments)`` and maps a float32 tensor [1, num_inputs] to [1, num_outputs]. For
images it is built as ``Class((C, H, W), num_outputs, **arguments)`` and maps [1, C, H, W]. Every
slot has its own copy of the module and computes alone, so its bits do not depend on the other
slots. This is much slower than a built-in template of the same size.

Parameters that require gradients are trained. The others, and buffers, stay as constructed.
``policy_check.check_own`` tries a module before training.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, final

import numpy as np
from pydantic import Field

from esbench.core.arguments import Arguments, received
from esbench.core.arrays import Shapes, Vector
from esbench.core.errors import UsageError, UserCodeError, error_text, location, require_keywords
from esbench.core.escape import printable
from esbench.core.global_streams import torch_stream
from esbench.core.user_code import import_object
from esbench.policies.policy import (
    Policy,
    PolicySettings,
    PreparedPolicy,
    ReferredBatch,
    Rows,
    TorchPolicy,
    register_policy,
)

if TYPE_CHECKING:
    import torch

    from esbench.policies.kernels.torch_modules import Images


@final
class ModuleSettings(PolicySettings):
    """Settings of a user's own module."""

    factory: str
    """The class, as "package.file:Class"; the workers must be able to import it too."""

    arguments: Arguments = Field(default_factory=dict)
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
        """Import the class and build a module."""
        from torch.nn import Module

        from esbench.policies.kernels.torch_modules import Images, normalizing_layers

        settings, self._name = self.settings, f"policy {self.settings.factory}"
        given = import_object("policy", settings.factory)
        if isinstance(given, type) and issubclass(given, Policy):
            raise UsageError(
                f"policy {settings.factory!r} is a template; expected its name in "
                "register_policy(NAME), which a script or a plugin of 'esbench.policies' calls"
            )
        self._class = import_object("policy", settings.factory, Module, or_function=True)
        require_keywords(self._name, self._class, settings.arguments, positional=2)
        self._images: Images | None = None
        if self.pixels is not None:
            pixels = None if settings.normalize_observations else self.pixels
            if pixels is not None and not np.isfinite(pixels).all():
                raise UsageError(
                    f"{self._name}: the observations are images {self.shape} with infinite bounds, "
                    "which cannot be scaled; expected finite bounds, such as 0 to 255, or "
                    "normalize_observations = true"
                )
            self._images = Images(self.shape, pixels)
        module = self._module = self._build(seed=0)
        self._shapes = tuple(tuple(p.shape) for p in _trained(module))
        if not self._shapes:
            raise UsageError(f"{self._name} has no parameters to train")
        if normalizing_layers(module):
            self.reference_size = settings.reference_size

    @property
    def shapes(self) -> Shapes:
        """The shapes of the trained ones of ``module.parameters()``."""
        return self._shapes

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """The module's own initialization [P], with torch seeded from ``generator``.

        Raises:
            UserCodeError: the constructor draws values that are not trained.
        """
        import torch

        module = self._build(seed=int(generator.integers(2**63)))
        for (name, values), others in zip(_fixed(module), _fixed(self._module), strict=True):
            if not torch.equal(values, others[1]):
                raise UserCodeError(
                    f"{self._name}: {printable(name)!r} is not trained, but random; expected a "
                    "parameter that requires gradients, or a torch.Generator with a seed of its own"
                )
        return np.concatenate([p.detach().double().numpy().ravel() for p in _trained(module)])

    def batch(self, slots: int) -> ModuleBatch:
        """A batch with ``slots`` slots."""
        return ModuleBatch(self._module, slots, self._images)

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """The user's module, behind the layer that makes images of flat observations."""
        import torch

        batch = self.batch(1)
        if reference is not None:
            batch.refer(reference)
        module = batch.loaded(parameters)
        for each in module.parameters():  # so far, views of one array
            each.data = each.data.clone()
        return module if self._images is None else torch.nn.Sequential(self._images, module)

    def _build(self, seed: int) -> torch.nn.Module:
        import torch

        first = self.num_inputs if self._images is None else self._images.size
        with torch_stream():
            torch.manual_seed(seed)
            try:
                arguments = received(self._class, self.settings.arguments)
                module = self._class(first, self.num_outputs, **arguments)
            except Exception as error:  # a user's code may raise anything
                raise UserCodeError(
                    f"{self._name} cannot be built as Class({first}, {self.num_outputs}, "
                    f"**arguments), for observations of shape {list(self.shape)}: "
                    f"{error_text(error)}{location(error)}"
                ) from error
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"{self._name} makes a {type(module).__name__}; expected a torch.nn.Module"
            )
        for name, parameter in module.named_parameters():
            rounded = parameter.requires_grad and parameter.dtype != torch.float32
            lazy = torch.nn.parameter.is_lazy(parameter)
            if lazy or rounded or parameter.device.type != "cpu":
                raise UserCodeError(
                    f"{self._name}: {printable(name)!r} is a {type(parameter).__name__} of "
                    f"{parameter.dtype} on {parameter.device}; expected a Parameter of float32 "
                    "numbers on the cpu after the constructor"
                )
        return module.eval()


def _trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that a search changes."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _fixed(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The names and values of the other parameters and of the buffers."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [
        (name, each.to_dense().nan_to_num()) for name, each in tensors if not each.requires_grad
    ]


@final
class ModuleBatch(ReferredBatch):
    """One copy of the module per slot."""

    def __init__(self, module: torch.nn.Module, slots: int, images: Images | None) -> None:
        self._initial = module
        self._modules = [module] * slots
        self._images = images
        self._reference: torch.Tensor | None = None

    def refer(self, observations: Rows) -> None:
        """Set the reference batch [R, inputs]."""
        self._reference = self._shown(observations)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a new copy of the module, without state."""
        self._modules[slot] = self.loaded(parameters)

    def loaded(self, parameters: Vector) -> torch.nn.Module:
        """A new copy of the module with the parameters [P] of a member."""
        import torch

        from esbench.policies.kernels.torch_modules import refer

        values = torch.from_numpy(parameters.astype(np.float32)).clone()  # aligned, see ``_shown``
        module = copy.deepcopy(self._initial)
        torch.nn.utils.vector_to_parameters(values, _trained(module))
        if self._reference is not None:
            with torch.no_grad():
                refer(module, self._reference)
        return module

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        import torch

        slots = range(len(observations)) if live is None else live
        with torch.inference_mode():
            rows = [self._shown(observations[slot : slot + 1]) for slot in slots]
            outputs = [self._modules[slot](row) for slot, row in zip(slots, rows, strict=True)]
            computed: Rows = torch.cat(outputs).numpy()
        if len(slots) == len(observations):
            return computed
        result = np.zeros((len(observations), computed.shape[1]), computed.dtype)
        result[slots] = computed
        return result

    def _shown(self, observations: Rows) -> torch.Tensor:
        """The observations [k, inputs] as the module takes them."""
        import torch

        rows = torch.from_numpy(observations).clone()  # aligned: MKL's rounding depends on it
        return rows if self._images is None else self._images(rows)
