"""Scores a stored policy again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from esbench.algorithms.base import State
from esbench.errors import DamagedTrialError, UsageError
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_folder import TrialFolder
from esbench.training.evaluator import HeldOutScore
from esbench.training.trainer import Trainer


@final
@dataclass(frozen=True, eq=False)
class StoredScore:
    """The new score of a stored policy.

    Attributes:
        score: the new score.
        generation: the number of generations of training.
        recorded: the score stored at the end of training; None if there is none of this generation
            and number of episodes, or if it was not finite.
    """

    score: HeldOutScore
    generation: int
    recorded: float | None


def evaluate_trial(
    path: Path, pool: WorkerPool, episodes: int | None = None, generation: int | None = None
) -> StoredScore:
    """Score a checkpoint of a trial on its held-out episodes.

    Args:
        path: the folder of the trial.
        pool: the workers.
        episodes: the number of episodes; by default that of the trial.
        generation: the generation of a stored checkpoint; by default the latest.

    Raises:
        UsageError: the folder holds no trial, a damaged one, or one without that checkpoint.
    """
    if episodes is not None and episodes < 1:
        raise UsageError(f"episodes = {episodes}: expected at least 1")
    folder = TrialFolder(path)
    with stored_trainer(folder, pool, generation) as trainer:
        score = trainer.evaluate(episodes)
        reached = trainer.progress.generation
    result = folder.result_of(reached) or {}
    comparable = result.get("evaluation_episodes") == score.returns.size
    return StoredScore(score, reached, result["score"] if comparable else None)


@contextlib.contextmanager
def stored_trainer(
    folder: TrialFolder, pool: WorkerPool, generation: int | None = None
) -> Iterator[Trainer]:
    """The trainer of a trial in the state of a checkpoint, by default the latest.

    Raises:
        UsageError: the folder holds no trial, a damaged one, or one without that checkpoint.
    """
    spec = folder.spec()
    state = folder.load_checkpoint(generation)
    if state is None:
        raise UsageError(f"{folder.path} has no checkpoint yet; expected a trained trial")
    with Trainer(spec, pool) as trainer:
        restore(trainer, folder, state, folder.records()[: state["progress"]["generation"]])
        yield trainer


def restore(
    trainer: Trainer, folder: TrialFolder, state: State, history: Sequence[GenerationRecord]
) -> None:
    """Load a checkpoint of a trial into its trainer.

    Raises:
        DamagedTrialError: the checkpoint lacks the reference batch of the policy.
    """
    try:
        trainer.load_state_dict(state, history)
    except UsageError as error:
        remedy = f"remove the folder {folder.path} to train the trial again"
        raise DamagedTrialError(f"{folder.path / 'checkpoint'}: {error}; {remedy}") from None
