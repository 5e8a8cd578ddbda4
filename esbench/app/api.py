"""The Python surface: names to algorithms and trainers."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS, Algorithm, algorithm_class
from esbench.app.options import public, require_trusted_start
from esbench.core.arguments import named
from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, require_integer, shown
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import MOST_PARAMS, Table, parse
from esbench.grids.environment_files import environment_names
from esbench.grids.expand import expand
from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import is_agent
from esbench.policies.policy import POLICIES

MOST_SEED: Final = 2**64  # of a search without a trial

if TYPE_CHECKING:
    from torch.nn import Module

    from esbench.engine.engine import Engine
    from esbench.experiment.trainer import Trainer


def list_algorithms() -> list[str]:
    """The names of the registered algorithms, plugins included.

    Examples:
        >>> "csa_es" in esbench.list_algorithms()
        True
    """
    return ALGORITHMS.names()


def list_agents() -> list[str]:
    """The names of the registered agents, such as "ppo", plugins included.

    Examples:
        >>> agents = esbench.list_agents()
    """
    return AGENTS.names()


def list_environments() -> list[str]:
    """The names of the benchmark environments; any Gymnasium environment works too.

    Examples:
        >>> "HalfCheetah-v5" in esbench.list_environments()
        True
    """
    return environment_names()


def list_policies() -> list[str]:
    """The names of the registered policy templates, plugins included.

    Examples:
        >>> "linear" in esbench.list_policies()
        True
    """
    return POLICIES.names()


@public()
def make_algorithm(
    name: str | type[Algorithm[Any]],
    *,
    num_params: int,
    seed: int = 0,
    center_init: npt.ArrayLike = 0.0,
    shapes: Sequence[Sequence[int]] | None = None,
    **settings: Any,
) -> Algorithm[Any]:
    """Make an algorithm that maximizes any function of ``num_params`` numbers.

    Args:
        name: one of ``list_algorithms()``, "package.file:Class", or a class.
        num_params: the number of parameters, P.
        seed: the seed of its noise.
        center_init: where the search starts: a number, or [P].
        shapes: the shapes of the tensors that the vector concatenates, for algorithms that
            perturb matrices; default one vector.
        settings: settings of the algorithm (see ``esbench list --settings NAME``); ``optimizer``
            can be a class.

    Raises:
        UsageError: an unknown name or setting, or a wrong value.

    Examples:
        >>> algorithm = esbench.make_algorithm("csa_es", num_params=3, seed=0)
        >>> population = algorithm.ask()
        >>> algorithm.tell(population, -(population.members() ** 2).sum(axis=1))
    """
    require_integer("num_params", num_params, 1, MOST_PARAMS)
    require_integer("seed", seed, 0, MOST_SEED)
    chosen = named("algorithm", name)
    cls = algorithm_class(chosen)
    values = {key: named(key, value) for key, value in settings.items()}
    typed = parse(cls.Settings, values, f"make_algorithm({chosen!r})")
    layout = tuple(tuple(map(int, shape)) for shape in shapes or ((num_params,),))
    if min(itertools.chain(*layout), default=1) < 1 or sum(map(math.prod, layout)) != num_params:
        raise UsageError(f"shapes = {shown(shapes)}: expected {num_params} numbers in all")
    return cls(typed, _start(center_init, num_params), int(seed), layout)


def _start(center_init: npt.ArrayLike, num_params: int) -> Vector:
    """A number [] or [P] as an array [P]; UsageError if it is anything else, or not finite."""
    try:
        start = np.broadcast_to(np.asarray(center_init, dtype=np.float64), (num_params,))
        if np.isfinite(start).all():
            return start
    except (OverflowError, TypeError, ValueError):
        pass
    raise UsageError(
        f"center_init = {shown(center_init)}: expected a finite number, or {num_params} of them"
    )


@public()
def make_trainer(
    algorithm: str | type[Algorithm[Any]],
    *,
    env: str,
    seed: int = 0,
    workers: int | None = None,
    policy: str | Table | type[Module] | None = None,
    environment: Table | None = None,
    budget: Table | None = None,
    evaluation: Table | None = None,
    init_from: str | Path | None = None,
    out: str | Path | None = None,
    extend: bool = False,
    record: Literal["members"] | None = None,
    engine: Engine | None = None,
    trust: bool = False,
    defaults: bool = False,
    **settings: Any,
) -> Trainer:
    """Make a trainer. Your settings replace the tuned ones of the environment's file.

    With ``out``, the trial is stored in a folder below it, as by ``esbench run``, and a stored
    trial is resumed. Its ``train`` scores the trial when the budget is spent or a callback stops
    it. The folder is locked until ``close``.

    Args:
        algorithm: one of ``list_algorithms()`` or ``list_agents()``, "package.file:Class", or a
            class.
        env: any Gymnasium environment; those of ``list_environments()`` have tuned settings.
        seed: the training seed.
        workers: worker processes; default one per core. 0 plays in this process, which is the
            default for an environment or a policy that a notebook defines.
        policy: a template's name, a table such as ``{"template": "mlp", "hidden": [32]}``, or a
            ``torch.nn.Module`` class that is built as ``Class(num_inputs, num_outputs)``. For an
            agent, its own setting ``policy``, such as "MlpPolicy".
        environment: changes to the environment's file, such as ``{"episodes_per_member": 2}``.
        budget: changes to its budget, such as ``{"env_steps": 100_000}``.
        evaluation: changes to its evaluation, such as ``{"episodes": 10}``.
        init_from: the folder of a trial, or a row of the leaderboard such as
            "CartPole-v1/snes/seed-3", whose policy training starts from.
        out: output folder; by default nothing is stored.
        extend: continue a stored trial that has a smaller budget.
        record: "members" also stores what every member did, for ``load_members``; needs ``out``.
        engine: an open ``RayEngine`` to use instead of local workers; trainers may share it, and
            the caller closes it.
        trust: also import the code that the trial of ``init_from`` names.
        defaults: inherit no tuned settings from the environment's file.
        settings: settings of the algorithm; ``optimizer`` can be a class.

    Raises:
        UsageError: an unknown name, key or a wrong value; or the folder of the trial holds another
            specification, or is in use.

    Examples:
        >>> with esbench.make_trainer("snes", env="CartPole-v1", workers=0) as trainer:
        ...     trainer.train(env_steps=500)
        ...     score = trainer.evaluate(episodes=2)
    """
    from esbench.app.notebook import in_notebook, training_shown
    from esbench.engine.engine import Engine
    from esbench.experiment.engines import local_engine
    from esbench.experiment.run_trial import open_trial
    from esbench.experiment.stored_trainer import make_trainer as make
    from esbench.experiment.trials import checked_trials, latest_start, recording_members
    from esbench.store.own_code import read_again

    if reserved := sorted({"environments", "seeds"} & settings.keys()):
        raise UsageError(
            f"{reserved[0]} = {shown(settings[reserved[0]])}: expected a setting of the algorithm; "
            "a trainer has one environment (env) and one seed"
        )
    require_integer("seed", seed, 0, LARGEST_SEED)
    # A list of one value is no sweep: a list given here is the value of one trial.
    values = {
        key: [value] if isinstance(value, list | tuple) else named(key, value)
        for key, value in settings.items()
    }
    name = named("algorithm", algorithm)
    if policy is not None and is_agent(name):
        values["policy"], policy = named("policy", policy), None
    template = {} if policy is None else {"template": named("policy", policy)}
    table: Table = {
        "name": "python",
        "seeds": [seed],
        "environments": [env],
        "algorithms": {name: values},
        "budget": budget or {},
        "evaluation": evaluation or {},
        "environment": {env: environment or {}},
        "policy": policy if isinstance(policy, dict) else template,
        "defaults": defaults,
        "init_from": None if init_from is None else str(init_from),
    }
    if not isinstance(engine, Engine | None):
        raise UsageError(f"engine = {shown(engine)}: expected an open engine, such as a RayEngine")
    grid, source = parse_grid(table, "make_trainer"), "make_trainer"
    with contextlib.ExitStack() as owned:
        if engine is not None and workers is not None:
            raise UsageError(f"workers = {workers}: the engine has its own; expected one of both")
        if out is None:
            if record is not None:
                raise UsageError(f"record = {record!r}: expected out, the folder to store it in")
            (labeled,) = expand(grid, source, latest_start(grid.init_from))
            spec, trial = labeled.spec, None
        else:
            trials = checked_trials(grid, Path(out), source, extend)
            (trial,) = trials if record is None else recording_members(trials)
            spec = trial.spec
        require_trusted_start([spec], {"trust": trust})
        read_again([spec])
        pool = owned.enter_context(local_engine(workers, [spec])) if engine is None else engine
        trainer = (
            make(spec, pool) if trial is None else owned.enter_context(open_trial(trial, pool))
        )
        trainer.shown = training_shown if in_notebook() else None
        trainer.own(owned)
    return trainer
