"""The state of an agent of Stable-Baselines3 as arrays, and the random streams it draws from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from esbench.core.arrays import State
from esbench.integrations.library import LazyModule

torch: Any = LazyModule("torch")


def plain(value: Any, size: int | None = None) -> Any:
    """Tensors as arrays, and keys as text; of arrays the first ``size`` rows."""
    if isinstance(value, Mapping):
        return {str(key): plain(each, size) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if torch.is_tensor(value):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, np.ndarray):
        return value[:size].copy() if size is not None else value.copy()
    return value


def fill(target: Any, rows: Any) -> None:
    """Copy the first rows of a replay buffer's array, or of one for each key of a Dict."""
    if isinstance(rows, dict):
        for key, values in rows.items():
            fill(target[key], values)
    else:
        target[: len(rows)] = rows


def process_streams() -> State:
    """The states of the process's random streams that the library draws from."""
    return {
        "torch_stream": torch.get_rng_state().numpy(),
        "numpy_stream": plain(np.random.get_state(legacy=False)),  # noqa: NPY002
    }


def set_process_streams(streams: State) -> None:
    """Restore what ``process_streams`` returned."""
    torch.set_rng_state(torch.from_numpy(streams["torch_stream"]))
    np.random.set_state(streams["numpy_stream"])  # noqa: NPY002, the library draws from it


def as_tensors(value: Any) -> Any:
    """The inverse of ``plain`` for a ``state_dict`` of torch, whose integer keys are numbers."""
    if isinstance(value, dict):
        return {int(k) if k.isdecimal() else k: as_tensors(each) for k, each in value.items()}
    if isinstance(value, list):
        return [as_tensors(each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
