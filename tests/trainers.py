"""Trials that tests train without a folder, whole or resumed."""

import contextlib
import itertools
import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest

from esbench.core.json_text import as_line
from esbench.core.settings import parse
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord


class Memory:
    """A recorder in memory; Ctrl-C comes while it appends the row ``interrupted_at``."""

    def __init__(self, interrupted_at: int = 0) -> None:
        self.rows: list[GenerationRecord] = []
        self.states: list[dict[str, Any]] = []
        self._interrupted_at = interrupted_at

    def append(self, record: GenerationRecord, members: Mapping[str, Any]) -> None:
        if record.generation == self._interrupted_at:
            signal.raise_signal(signal.SIGINT)
        self.rows.append(record)

    def checkpoint(self, state: dict[str, Any]) -> None:
        self.states.append(state)


def agent_spec(
    name: str, settings: Any, environment: Any, budget: dict[str, Any], episodes: int
) -> TrialSpec:
    """The specification of an agent's trial with seed 0."""
    made = {"algorithm": {"name": name, "settings": settings}, "environment": environment}
    made |= {"policy": None, "seed": 0, "budget": budget, "evaluation": {"episodes": episodes}}
    return parse(TrialSpec, made, "test")


def train(spec: TrialSpec, pool: Engine, *stops: int) -> SearchTrainer:
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


@contextlib.contextmanager
def interrupted(play: int) -> Iterator[None]:
    """A block that is interrupted before episodes are played for the ``play``-th time."""
    calls, real = itertools.count(1), WorkerPool.play

    def interrupt(*arguments: Any) -> Any:
        if next(calls) == play:
            raise KeyboardInterrupt
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerPool, "play", interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield


def train_interrupted(spec: TrialSpec, pool: WorkerPool, play: int) -> SearchTrainer:
    """Train to the end, ``interrupted`` once."""
    trainer, again = SearchTrainer(spec, pool), SearchTrainer(spec, pool)
    with interrupted(play):
        trainer.train()
    again.load_state_dict(trainer.state_dict(), trainer.history)
    again.train()
    return again


def plain_episode(policy: Any, env: Any, seed: int) -> tuple[float, list[Any]]:
    """The return and the observations acted upon of an episode with Gymnasium alone."""
    observation, _ = env.reset(seed=seed)
    policy.reset()
    total, ended, seen = 0.0, False, []
    while not ended:
        seen.append(observation)
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, ended = total + float(reward), terminated or truncated
    return total, seen


def results(trainer: SearchTrainer) -> list[dict[str, Any]]:
    """The rows as they are stored, without their times."""
    rows = [json.loads(as_line(asdict(record))) for record in trainer.history]
    return [{k: v for k, v in row.items() if not k.endswith("time_s")} for row in rows]
