"""Writes a trained policy as a program that needs only torch."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gymnasium
import numpy as np

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.environments.simulator_log import silenced
from esbench.experiment.trained_agent import TrainedAgent
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.policies.kernels.device import TOLERANCE
from esbench.policies.policy import Rows
from esbench.store.outputs import require_suffix, write_bytes

if TYPE_CHECKING:
    import torch

DESCRIPTION: Final = "esbench.json"  # beside the program, in the exported file


def export_policy(policy: TrainedPolicy | TrainedAgent, path: Path) -> Json:
    """Write ``policy.module()`` for ``torch.export.load``; returns its description.

    The program maps observations [N, ...] to outputs [N, outputs]. That of a recurrent template
    also takes its state (h, c), which is zero at the start of an episode, and returns (outputs,
    state). N is 1 for a user's own module that takes no more.

    Raises:
        UsageError: it is the policy of an agent, the module cannot be exported, or the file cannot
            be written.
    """
    import torch

    require_suffix(path, ".pt2")
    if isinstance(policy, TrainedAgent):
        raise UsageError(
            f"the policy of {policy.environment.id} is that of an agent; expected one of a search"
        )
    rows, expected = _examples(policy)
    try:
        program, count = _exported(policy, rows, expected)
    except Exception as error:  # a user's module may do anything
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UsageError(
            f"the policy of {policy.environment.id} cannot be exported ({reason}); expected a "
            "module whose outputs depend on its parameters and the observation only"
        ) from error
    state = policy.module().initial_state(1)
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
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={DESCRIPTION: json.dumps(about, indent=2)})
    write_bytes(path, content.getvalue())
    return about


def _examples(policy: TrainedPolicy) -> tuple[torch.Tensor, Rows]:
    """Two observations [2, ...], and the outputs [2, outputs] of two steps that show them."""
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


def _exported(
    policy: TrainedPolicy, rows: torch.Tensor, expected: Rows, count: int = 2
) -> tuple[torch.export.ExportedProgram, int | str]:
    """A program with these outputs for these rows, for "N" observations or only 1 at once.

    Raises:
        Exception: that of torch or of the module; ValueError if the outputs differ.
    """
    import torch

    try:
        module = policy.module().requires_grad_(False)
        state = module.initial_state(count)
        batch = {0: torch.export.Dim("N")} if count > 1 else None
        inputs = (rows[:count],) if state is None else (rows[:count], state)
        shapes = (batch,) if state is None else (batch, (batch, batch))
        with _quiet():
            program = torch.export.export(module, inputs, dynamic_shapes=shapes)
            run = program.module()
        outputs = []
        state = module.initial_state(1)
        for row in rows:  # in turn, which shows a state that the program lacks
            if state is None:
                outputs.append(run(row[None]))
            else:
                found, state = run(row[None], state)
                outputs.append(found)
        steps = torch.cat(outputs)
        for found in [steps] if state is not None or count == 1 else [steps, run(rows)]:
            error = np.abs(found.detach().numpy() - expected).max()
            if not error <= TOLERANCE * max(1.0, np.abs(expected).max()):
                raise ValueError(f"its outputs differ by {error:.2g} from those of the policy")
    except Exception:
        if count == 1:
            raise
        return _exported(policy, rows, expected, count=1)
    return program, "N" if count > 1 else 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what torch logs and prints about a module that it cannot export."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    logging.disable()
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.disable(before)
