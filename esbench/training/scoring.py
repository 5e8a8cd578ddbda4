"""Scores a policy that was trained and stored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from esbench.errors import UsageError
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_files import DamagedTrialError
from esbench.store.trial_folder import TrialFolder
from esbench.training.trainer import Score, State, Trainer


@final
@dataclass(frozen=True, eq=False)
class StoredScore:
    """A stored policy, scored again.

    Attributes:
        score: what it scored now.
        generation: after how many generations of training.
        recorded: what it scored when its training ended, or None if it did not, that was on another
            number of episodes, or it was not finite.
    """

    score: Score
    generation: int
    recorded: float | None


def evaluate_trial(
    path: Path, pool: WorkerPool, episodes: int | None = None, generation: int | None = None
) -> StoredScore:
    """Score a checkpoint of a trial on its held-out episodes.

    Args:
        path: the trial's folder.
        pool: plays the episodes.
        episodes: how many; the trial's own number by default.
        generation: of a checkpoint that was kept; the latest by default.

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
    """Give the trainer of a trial as a checkpoint left it, by default the latest.

    Raises:
        UsageError: the folder holds no trial, a damaged one, or one without that checkpoint.
    """
    spec = folder.spec()
    state = folder.load_checkpoint(generation)
    if state is None:
        raise UsageError(f"{folder.path} has no checkpoint yet; expected a trial that was trained")
    with Trainer(spec, pool) as trainer:
        restore(trainer, folder, state, folder.records()[: state["progress"]["generation"]])
        yield trainer


def restore(
    trainer: Trainer, folder: TrialFolder, state: State, history: Sequence[GenerationRecord]
) -> None:
    """Let a trainer go on from a trial's checkpoint.

    Raises:
        DamagedTrialError: the checkpoint lacks what the policy needs.
    """
    try:
        trainer.load_state_dict(state, history)
    except UsageError as error:
        remedy = f"remove the folder {folder.path} to start that trial over"
        raise DamagedTrialError(f"{folder.path / 'checkpoint'}: {error}; {remedy}") from None
