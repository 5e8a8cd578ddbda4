"""Trials that tests train without a folder, whole or resumed."""

import json
from dataclasses import asdict
from typing import Any

from esbench.files import as_line
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Stop
from esbench.training.search_trainer import SearchTrainer


def train(spec: TrialSpec, pool: WorkerPool, *stops: int) -> SearchTrainer:
    """Train to the end; after each generation of ``stops`` a new trainer continues."""
    trainer = SearchTrainer(spec, pool)
    for stop in stops:

        def reached(record: GenerationRecord, at: int = stop) -> Stop | None:
            return Stop("killed") if record.generation == at else None

        trainer.train(callbacks=[reached])
        state, history = trainer.state_dict(), list(trainer.history)
        trainer.train(env_steps=trainer.progress.env_steps + 1)  # does not change the copies
        trainer = SearchTrainer(spec, pool)
        trainer.load_state_dict(state, history)
    trainer.train()
    return trainer


def results(trainer: SearchTrainer) -> list[dict[str, Any]]:
    """The rows as they are stored, without their times."""
    rows = [json.loads(as_line(asdict(record))) for record in trainer.history]
    return [{k: v for k, v in row.items() if not k.endswith("time_s")} for row in rows]
