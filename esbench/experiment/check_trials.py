"""Checks trials before they run: builds everything, and plays some episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from esbench.core.errors import UsageError, UserCodeError
from esbench.engine.engine import Engine
from esbench.experiment.make import make_trainer
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec


def check_trials(trials: Sequence[Trial], pool: Engine | None = None) -> None:
    """Check one trial of each specification in this process; ``check_each`` says which."""
    check_each(trials, lambda trial: check_spec(trial.spec, not trial.folder.has_begun, pool))


def check_each(trials: Sequence[Trial], check: Callable[[Trial], None]) -> None:
    """Check one trial of each specification that is not done, whatever its seed.

    Training reports the errors of user code, and stores them with the trials.

    Raises:
        UsageError: a trial is not supported, or user code that every trial needs cannot be made.
    """
    distinct = {
        trial.spec.model_copy(update={"seed": 0}).hash: trial
        for trial in trials
        if not trial.is_done
    }
    refused: list[UserCodeError] = []
    for trial in distinct.values():
        try:
            check(trial)
        except UserCodeError as error:
            refused.append(error)
        except UsageError as error:
            if len(distinct) == 1:
                raise
            raise UsageError(f"{trial.name}: {error}") from error
        except KeyboardInterrupt:
            raise
        except BaseException:  # of user code, which may raise anything
            continue
    if refused and len(refused) == len(distinct):
        raise refused[0]


def check_spec(spec: TrialSpec, is_new: bool, pool: Engine | None) -> None:
    """Build everything that a trial needs; UsageError if something is not supported.

    With a pool, a worker also plays some episodes if the trial ``is_new``, which has not begun.
    """
    # User code may change the current folder.
    with contextlib.chdir("."), make_trainer(spec, pool) as trainer:
        if pool is not None and is_new:
            trainer.check_episodes()
