"""A trained policy as a file that another program reads without esbench.

The module of the policy becomes a program of ``torch.export``, a model of ONNX or TorchScript. What
was made plays two steps before it is written: its outputs are those of the policy.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.environments.simulator_log import silenced
from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy
from esbench.integrations.onnx_program import BATCH, OnnxProgram, require_onnx
from esbench.policies.kernels.device import TOLERANCE
from esbench.policies.policy import Rows
from esbench.store.outputs import write_bytes

if TYPE_CHECKING:
    import torch

DESCRIPTION: Final = "esbench.json"  # beside the program, in the file
OBSERVATIONS: Final = "observations"
OUTPUTS: Final = "outputs"
STATE: Final = ("h", "c")  # of a recurrent network
NEXT: Final = "next_"

Exportable: TypeAlias = TrainedPolicy | TrainedAgent


@final
class Program(NamedTuple):
    """What a format makes of a module: a function to check, and the content of the file."""

    run: Callable[..., Any]  # of an observation, or of an observation and the state
    write: Callable[[str], bytes]  # with a description


MakeProgram: TypeAlias = "Callable[[torch.nn.Module, tuple[Any, ...], bool], Program]"
"""Makes a program of a module and example inputs, for any number of observations or for one."""


def export_policy(policy: Exportable, path: Path) -> Json:
    """Write ``policy.module()`` in the format of the suffix; returns its description.

    The program maps observations [N, ...] to outputs [N, outputs], that of an agent to actions.
    That of a recurrent template also takes its state (h, c), which is zero at the start of an
    episode, and returns (outputs, state). N is 1 for a user's own module that takes no more.

    Raises:
        UsageError: there is no module, it cannot be exported, a package is missing, or the file
            cannot be written.
    """
    make = require_format(path)
    rows, expected = _examples(policy)
    state = policy.module().initial_state(1)
    try:
        program, count = _checked(policy, rows, expected, make)
    except Exception as error:  # a user's module may do anything
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UsageError(
            f"the policy of {policy.environment.id} cannot be exported to {path.suffix} "
            f"({reason or type(error).__name__}); expected a module whose outputs depend on its "
            "parameters and the observation only"
        ) from error
    about = {
        "environment": policy.environment.id,
        "kwargs": policy.environment.kwargs,
        "wrappers": [each.model_dump(mode="json") for each in policy.environment.wrappers],
        "generation": policy.generation,
        "observation_space": str(policy.observation_space),
        "action_space": str(policy.action_space),
        "inputs": [count, *rows.shape[1:]],
        "dtype": str(rows.dtype).removeprefix("torch."),
        "state": None if state is None else [[count, *part.shape[1:]] for part in state],
        "outputs": [count, *expected.shape[1:]],
    }
    with _quiet():
        content = program.write(json.dumps(about, indent=2))
    write_bytes(path, content)
    return about


def require_format(path: Path) -> MakeProgram:
    """What makes a file with this suffix; UsageError for another one, or a missing package."""
    if (found := FORMATS.get(path.suffix)) is None:
        *others, last = (f"{suffix} ({name})" for suffix, (name, _) in FORMATS.items())
        known = f"{', '.join(others)} or {last}"
        raise UsageError(f"cannot export to {path}: expected a file ending in {known}")
    if path.suffix == ".onnx":
        require_onnx()
    return found[1]


def _examples(policy: Exportable) -> tuple[torch.Tensor, Rows]:
    """Two observations [2, ...], and the outputs [2, ...] of two steps that show them."""
    import torch

    space, rows, outputs = policy.observation_space, [], []
    policy.reset()
    with silenced(), contextlib.closing(policy.make_environment()) as env:
        for seed in range(2):
            observation, _ = env.reset(seed=seed)
            outputs.append(policy.outputs(observation))
            flat = np.asarray(gymnasium.spaces.flatten(space, observation))
            rows.append(
                flat.reshape(space.shape) if isinstance(space, gymnasium.spaces.Box) else flat
            )
    policy.reset()
    return torch.from_numpy(np.array(rows)), np.array(outputs)


def _checked(
    policy: Exportable, rows: torch.Tensor, expected: Rows, make: MakeProgram, count: int = 2
) -> tuple[Program, int | str]:
    """A program with these outputs for these rows, for "N" observations or only 1 at once.

    Raises:
        Exception: that of torch or of the module; ValueError if the outputs differ.
    """
    try:
        module = policy.module().requires_grad_(False)
        state = module.initial_state(count)
        inputs = (rows[:count],) if state is None else (rows[:count], state)
        with _quiet():
            program = make(module, inputs, count > 1)
            outputs = []
            state = module.initial_state(1)
            for row in rows:  # in turn, which shows a state that the program lacks
                if state is None:
                    outputs.append(program.run(row[None]))
                else:
                    found, state = program.run(row[None], state)
                    outputs.append(found)
            together = [] if state is not None or count == 1 else [program.run(rows)]
        for found in [np.concatenate(outputs), *map(np.asarray, together)]:
            error = np.abs(found - expected).max()
            if not error <= TOLERANCE * max(1.0, np.abs(expected).max()):
                raise ValueError(f"its outputs differ by {error:.2g} from those of the policy")
    except Exception:
        if count == 1:
            raise
        return _checked(policy, rows, expected, make, count=1)
    return program, BATCH if count > 1 else 1


def _of_torch(
    module: torch.nn.Module, inputs: tuple[Any, ...], several: bool
) -> torch.export.ExportedProgram:
    import torch

    batch = {0: torch.export.Dim(BATCH)} if several else None
    shapes = (batch,) if len(inputs) == 1 else (batch, (batch, batch))
    return torch.export.export(module, inputs, dynamic_shapes=shapes)


def _exported(module: torch.nn.Module, inputs: tuple[Any, ...], several: bool) -> Program:
    """A program that ``torch.export.load`` reads."""
    import torch

    program = _of_torch(module, inputs, several)

    def write(about: str) -> bytes:
        content = io.BytesIO()
        torch.export.save(program, content, extra_files={DESCRIPTION: about})
        return content.getvalue()

    def run(*given: Any) -> Any:  # a copy, since a step may change the buffers of what is written
        return copy.deepcopy(program).module()(*given)

    return Program(run, write)


def _scripted(module: torch.nn.Module, inputs: tuple[Any, ...], _: bool) -> Program:
    """TorchScript, which ``torch.jit.load`` reads, also in C++."""
    import torch

    own = {name: buffer.clone() for name, buffer in module.named_buffers()}
    program = torch.jit.trace(module, inputs, check_trace=False)

    def write(about: str) -> bytes:
        content = io.BytesIO()
        for name, buffer in program.named_buffers():
            buffer.copy_(own[name])  # a step may have changed it
        torch.jit.save(program, content, _extra_files={DESCRIPTION: about})
        return content.getvalue()

    return Program(program, write)


def _in_onnx(module: torch.nn.Module, inputs: tuple[Any, ...], several: bool) -> Program:
    """ONNX, which many runtimes read; the state has an input for each part."""
    names = STATE if len(inputs) > 1 else ()
    program = OnnxProgram(
        _of_torch(module, inputs, several),
        [OBSERVATIONS, *names],
        [OUTPUTS, *(f"{NEXT}{name}" for name in names)],
    )

    def run(observations: torch.Tensor, state: Sequence[Any] = ()) -> Any:
        outputs, *after = program.run(*map(np.asarray, (observations, *state)))
        return (outputs, after) if after else outputs

    return Program(run, lambda about: program.content({DESCRIPTION: about}))


FORMATS: Final[dict[str, tuple[str, MakeProgram]]] = {
    ".pt2": ("torch.export", _exported),
    ".onnx": ("ONNX", _in_onnx),
    ".pt": ("TorchScript", _scripted),
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what torch logs, warns of and prints about a module that it cannot export."""
    from torch.distributions import Distribution

    before, nowhere = logging.root.manager.disable, io.StringIO()
    checks = Distribution._validate_args
    logging.disable()
    Distribution.set_default_validate_args(False)  # a program cannot branch on values
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            yield
    finally:
        logging.disable(before)
        Distribution.set_default_validate_args(checks)
