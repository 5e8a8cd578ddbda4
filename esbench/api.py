"""The Python surface: names to algorithms and trainers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.errors import UsageError
from esbench.grids.environment_files import environment_names
from esbench.grids.expand import expand
from esbench.grids.grid_file import parse_grid
from esbench.policies.base import POLICIES
from esbench.settings import Table, parse

if TYPE_CHECKING:
    import torch

    from esbench.training.trainer import Trainer


def list_algorithms() -> list[str]:
    """The names of the registered algorithms, plugins included."""
    return ALGORITHMS.names()


def list_environments() -> list[str]:
    """The names of the benchmark environments; any Gymnasium environment works too."""
    return environment_names()


def list_policies() -> list[str]:
    """The names of the registered policy templates, plugins included."""
    return POLICIES.names()


def make_algorithm(
    name: str,
    *,
    num_params: int,
    seed: int = 0,
    center_init: npt.ArrayLike = 0.0,
    shapes: Sequence[Sequence[int]] | None = None,
    **settings: Any,
) -> Algorithm[Any]:
    """Make an algorithm that searches the maximum of any function of ``num_params`` numbers.

    Args:
        name: one of ``list_algorithms()``.
        num_params: the number of parameters, P.
        seed: the seed of its noise.
        center_init: where the search starts: a number, or [P].
        shapes: the shapes of the tensors that lie one after the other in the vector, for
            algorithms that perturb matrices; default one vector.
        settings: settings of the algorithm (see ``esbench list --settings NAME``).

    Raises:
        UsageError: an unknown name or setting, or a wrong value.
    """
    if num_params < 1:
        raise UsageError(f"num_params = {num_params}: expected at least 1")
    cls: type[Algorithm[Any]] = ALGORITHMS.get(name)
    typed = parse(cls.Settings, settings, f"make_algorithm({name!r})")
    start = np.asarray(center_init, dtype=np.float64)
    if start.shape not in {(), (num_params,)}:
        raise UsageError(
            f"center_init of shape {start.shape}: expected a number or ({num_params},)"
        )
    layout = ((num_params,),) if shapes is None else tuple(tuple(shape) for shape in shapes)
    if sum(math.prod(shape) for shape in layout) != num_params:
        raise UsageError(f"shapes {layout}: expected {num_params} numbers in all")
    return cls(typed, np.broadcast_to(start, (num_params,)), seed, layout)


def make_trainer(
    algorithm: str,
    *,
    env: str,
    seed: int = 0,
    workers: int | None = None,
    policy: str | Table | type[torch.nn.Module] | None = None,
    environment: Table | None = None,
    budget: Table | None = None,
    evaluation: Table | None = None,
    **settings: Any,
) -> Trainer:
    """Make a trainer. Your settings replace the tuned ones of the environment's file.

    Args:
        algorithm: one of ``list_algorithms()``.
        env: any Gymnasium environment; those of ``list_environments()`` have tuned settings.
        seed: the training seed.
        workers: worker processes; default one per core.
        policy: a template's name, a table such as ``{"template": "mlp", "hidden": [32]}``, or a
            ``torch.nn.Module`` class that is built as ``Class(num_inputs, num_outputs)``.
        environment: changes to the environment's file, such as ``{"episodes_per_member": 2}``.
        budget: changes to its budget, such as ``{"env_steps": 100_000}``.
        evaluation: changes to its evaluation, such as ``{"episodes": 10}``.
        settings: settings of the algorithm.

    Raises:
        UsageError: an unknown name, key or a wrong value.
    """
    from esbench.rollouts.worker_pool import WorkerPool
    from esbench.training.trainer import Trainer

    table: Table = {
        "name": "python",
        "seeds": [seed],
        "environments": [env],
        "algorithms": {algorithm: settings},
        "budget": budget or {},
        "evaluation": evaluation or {},
        "environment": {env: environment} if environment else {},
        "policy": _policy_table(policy),
    }
    source = "make_trainer"
    (trial,) = expand(parse_grid(table, source), source)
    return Trainer(trial.spec, WorkerPool(workers), owns_pool=True)


def _policy_table(policy: str | Table | type | None) -> Table:
    match policy:
        case None:
            return {}
        case str():
            return {"template": policy}
        case dict():
            return policy
        case type() if "<locals>" not in policy.__qualname__:
            return {"template": f"{policy.__module__}:{policy.__qualname__}"}
        case _:
            raise UsageError(
                f"policy {policy!r}: expected a template's name, a table, or a torch.nn.Module "
                "class defined at the top level of a file, so that workers can import it"
            )
