"""Readers of exported policies that know nothing of esbench."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch

READERS: dict[str, Callable[[Path], Callable[..., Any]]] = {
    ".pt2": lambda path: torch.export.load(path).module(),
    ".pt": lambda path: of_torchscript(path),
    ".onnx": lambda path: of_onnx(path),
}


def of_torchscript(path: Path) -> Callable[..., Any]:
    with warnings.catch_warnings(action="ignore"):  # torch recommends torch.export
        loaded: Callable[..., Any] = torch.jit.load(path)
    return loaded


def of_onnx(path: Path) -> Callable[..., Any]:
    """The function of a model in onnxruntime, on tensors."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def compute(rows: torch.Tensor, state: Any = ()) -> Any:
        arrays = [each.numpy() for each in (rows, *state)]
        found = session.run(None, dict(zip(names, arrays, strict=True)))
        outputs, *after = map(torch.from_numpy, found)
        return (outputs, tuple(after)) if after else outputs

    return compute
