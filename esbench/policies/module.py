"""A user's own ``torch.nn.Module`` as the policy.

``template = "package.file:Class"`` names the class, which is built as ``Class(num_inputs,
num_outputs, **arguments)`` and maps a float32 tensor [1, num_inputs] to [1, num_outputs]. Every
slot has its own copy of the module and computes alone, so its bits do not depend on the other
slots. This is much slower than a built-in template of the same size.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.errors import UsageError, suggestion
from esbench.policies.base import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    ReferredBatch,
    Rows,
    register_policy,
)
from esbench.registry import import_object

if TYPE_CHECKING:
    import torch


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
class ModulePolicy(PreparedPolicy):
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
        module = self._build(seed=0)
        self._shapes = tuple(tuple(p.shape) for p in module.parameters())
        if self.num_params == 0:
            raise UsageError(f"policy {settings.factory} has no parameters to train")
        if _has_virtual_batch_norm(module):
            self.reference_size = settings.reference_size

    @property
    def shapes(self) -> Shapes:
        """The shapes of ``module.parameters()``."""
        return self._shapes

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """The module's own initialisation [P], with torch seeded from ``generator``."""
        module = self._build(seed=int(generator.integers(2**63)))
        return np.concatenate([p.detach().double().numpy().ravel() for p in module.parameters()])

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return ModuleBatch(self._build(seed=0), slots, self.settings.factory)

    def _build(self, seed: int) -> torch.nn.Module:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = self._class(self.num_inputs, self.num_outputs, **self.settings.arguments)
            except TypeError as error:
                raise UsageError(
                    f"policy {self.settings.factory} cannot be built as "
                    f"Class({self.num_inputs}, {self.num_outputs}, **arguments): {error}"
                ) from error
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"policy {self.settings.factory} makes a {type(module).__name__}; "
                "expected a torch.nn.Module"
            )
        return module.eval().requires_grad_(False)


@final
class ModuleBatch(ReferredBatch):
    """One copy of the module per slot."""

    def __init__(self, module: torch.nn.Module, slots: int, name: str) -> None:
        self._initial = module
        self._modules = [module] * slots
        self._name = name
        self._reference: torch.Tensor | None = None

    def refer(self, observations: Rows) -> None:
        """Set the reference batch [R, inputs]."""
        import torch

        self._reference = torch.from_numpy(observations)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a new copy of the module, without state."""
        import torch

        values = torch.from_numpy(parameters.astype(np.float32))
        self._modules[slot] = copy.deepcopy(self._initial)
        torch.nn.utils.vector_to_parameters(values, self._modules[slot].parameters())
        if self._reference is not None:
            self._refer(self._modules[slot], self._reference)

    def _refer(self, module: torch.nn.Module, batch: torch.Tensor) -> None:
        import torch

        from esbench.policies.kernels.torch_layers import refer

        try:
            with torch.inference_mode():
                refer(module, batch)
        except Exception as error:  # a user's code may not accept several rows
            raise UsageError(
                f"policy {self._name} has VirtualBatchNorm layers but rejects the reference batch "
                f"{list(batch.shape)}: {type(error).__name__}: {error}"
            ) from error

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs], slot by slot."""
        import torch

        slots = range(len(observations)) if live is None else live
        with torch.inference_mode():
            rows = torch.from_numpy(observations)
            outputs = [self._modules[slot](rows[slot : slot + 1]) for slot in slots]
            computed: Rows = torch.cat(outputs).numpy()
        if len(slots) == len(observations):
            return computed
        result = np.zeros((len(observations), computed.shape[1]), computed.dtype)
        result[slots] = computed
        return result


def _has_virtual_batch_norm(module: torch.nn.Module) -> bool:
    from esbench.policies.kernels.torch_layers import normalizing_layers

    return bool(normalizing_layers(module))
