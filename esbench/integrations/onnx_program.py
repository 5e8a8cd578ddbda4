"""A program of torch as a model of ONNX, for runtimes without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from esbench.integrations.library import optional
from esbench.policies.policy import Rows

if TYPE_CHECKING:
    import torch

BATCH: Final = "N"  # the name of the axis of observations


def require_onnx() -> None:
    """Raises UsageError, with the command that installs it, if the extra ``onnx`` is missing."""
    for package in ("onnx", "onnxscript"):
        _library(package)


@final
class OnnxProgram:
    """A model, which the reference implementation of ONNX evaluates."""

    def __init__(
        self, program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Convert a program, whose arrays get these names.

        Raises:
            Exception: that of torch for what ONNX cannot express.
        """
        import torch

        made = torch.onnx.export(
            program, input_names=list(inputs), output_names=list(outputs), verbose=False
        )
        self._model: Any = made.model_proto
        graph = self._model.graph
        for value in (*graph.input, *graph.output, *graph.value_info):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param:  # torch numbers the name of the only one
                    axis.dim_param = BATCH
        self._evaluator = _library("onnx.reference").ReferenceEvaluator(self._model)

    def run(self, *arrays: Rows) -> list[Rows]:
        """The outputs for the inputs, in their order."""
        given = dict(zip(self._evaluator.input_names, arrays, strict=True))
        found: list[Rows] = self._evaluator.run(None, given)
        return found

    def content(self, metadata: dict[str, str]) -> bytes:
        """The content of a file."""
        _library("onnx").helper.set_model_props(self._model, metadata)
        content: bytes = self._model.SerializeToString()
        return content


def _library(name: str) -> Any:
    return optional(name, "onnx", "an export to ONNX")
