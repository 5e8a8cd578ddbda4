"""The policy templates, found by the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esbench.policies.kernels.torch_modules import VirtualBatchNorm

__all__ = ["VirtualBatchNorm"]


def __getattr__(name: str) -> Any:
    if name == "VirtualBatchNorm":  # on first use, because importing torch takes seconds
        from esbench.policies.kernels.torch_modules import VirtualBatchNorm

        return VirtualBatchNorm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
