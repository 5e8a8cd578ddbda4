"""An interrupted or unusual agent leaves a state that its rows agree with."""

import signal
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from esbench.agents.agent import Agent, AgentSettings, MakeEnvironment
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.stored_trainer import make_trainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord


class Steps(Agent):
    """An agent whose state is the number of its steps; it ends after ``most`` of them."""

    class Settings(AgentSettings):
        """Settings."""

        most: int = 10**6
        catches: bool = False

    at_act: ClassVar[Callable[[], None] | None] = None

    def __init__(self, settings: Any, make_environment: MakeEnvironment, seed: int) -> None:
        self._env, self._settings, self._steps = make_environment(), settings, 0

    @property
    def policy(self) -> "Steps":
        """The agent itself."""
        return self

    def reset(self) -> None:
        """Nothing."""

    def act(self, observation: Any) -> int:
        """A constant action."""
        if Steps.at_act is not None:
            Steps.at_act()
        return 0

    def learn(self, env_steps: int) -> None:
        """Take these steps, and go on after the first exception if it ``catches``."""
        ended = True
        for _ in range(min(env_steps, self._settings.most)):
            if ended:
                self._env.reset()
            try:
                *_, terminated, truncated, _ = self._env.step(0)
            except BaseException:
                if not self._settings.catches:
                    raise
            self._steps += 1
            ended = terminated or truncated

    def state_dict(self) -> dict[str, Any]:
        """The number of steps."""
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._steps = state["steps"]


class Notes:
    """A recorder in memory, which is interrupted while it appends a row."""

    def __init__(self, at: int = 0) -> None:
        self.rows: list[GenerationRecord] = []
        self.state: Any = None
        self._at = at

    def append(self, record: GenerationRecord, members: Any) -> None:
        """Note the row."""
        if record.generation == self._at:
            signal.raise_signal(signal.SIGINT)
        self.rows.append(record)

    def checkpoint(self, state: Any) -> None:
        """Note the state."""
        self.state = state


@pytest.fixture
def make() -> Callable[..., TrialSpec]:
    """Return a maker of the specification of an agent on CartPole."""

    def spec(name: str = f"{__name__}:Steps", budget: Any = None, **settings: Any) -> TrialSpec:
        table = {
            "algorithm": {"name": name, "settings": {"row_steps": 100, **settings}},
            "environment": {"id": "CartPole-v1"},
            "policy": None,
            "budget": {"env_steps": 400, **(budget or {})},
            "evaluation": {"episodes": 2},
            "seed": 0,
        }
        return TrialSpec.model_validate(table)

    return spec


def _interrupt_once() -> None:
    Steps.at_act = None
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("moment", ["row", "evaluation", "callback"])
def test_an_interrupt_saves_the_state_of_the_last_row(
    make: Any, pool: WorkerPool, moment: str
) -> None:
    def callback(record: GenerationRecord) -> None:
        if record.generation == 2:
            if moment == "callback":
                signal.raise_signal(signal.SIGINT)
            if moment == "evaluation":
                Steps.at_act = _interrupt_once

    notes = Notes(at=3 if moment == "row" else 0)
    trainer = make_trainer(make(), pool, notes)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(callbacks=[callback])
    generation = notes.state["progress"]["generation"]
    assert generation <= len(notes.rows)
    assert notes.state["progress"]["env_steps"] == 100 * generation
    again = make_trainer(make(), pool)
    again.load_state_dict(notes.state, notes.rows[:generation])
    again.train()
    assert [row.env_steps for row in again.history] == [100, 200, 300, 400]
    assert [row.generation for row in again.history] == [1, 2, 3, 4]


def test_an_agent_that_ends_early_is_not_trained_again(make: Any, pool: WorkerPool) -> None:
    spec = make(most=150)
    trainer, again = (AgentTrainer(spec, pool) for _ in range(2))
    trainer.train()
    state = trainer.state_dict()
    assert state is not None
    again.load_state_dict(state, trainer.history)
    again.train()
    assert again.progress.env_steps == trainer.progress.env_steps == 150


def test_a_stopped_agent_goes_on_if_it_is_asked_to(make: Any, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make(), pool)
    assert trainer.train(callbacks=[lambda _: Stop("enough")]) == Stop("enough")
    assert trainer.progress.env_steps == 100
    assert trainer.train() is None
    assert trainer.progress.env_steps == 400


def test_an_agent_that_catches_everything_takes_no_further_step(
    make: Any, pool: WorkerPool
) -> None:
    trainer = AgentTrainer(make(catches=True), pool)
    assert trainer.train(callbacks=[lambda _: Stop("enough")]) == Stop("enough")
    assert trainer.progress.env_steps == 100


class Careless:
    """An agent that never resets after the end of an episode."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        """Take all steps in one episode."""
        env.reset()
        for _ in range(env_steps):
            env.step(0)


def test_an_agent_without_a_step_has_a_row(make: Any, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make("own_agents:Still"), pool)
    trainer.train()
    (row,) = trainer.history
    assert (row.generation, row.env_steps, row.population_size) == (1, 0, 0)
    assert 8 <= row.center_return <= 11  # CartPole falls under a constant force


def test_a_step_after_the_end_of_an_episode_is_refused(make: Any, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make(f"{__name__}:Careless"), pool)
    with pytest.raises(TrainingError, match="reset"):
        trainer.train()
    assert trainer.progress.episodes == 1


@pytest.mark.parametrize("key", ["generations", "target_return"])
def test_a_policy_that_is_known_at_the_end_cannot_end_early(
    make: Any, pool: WorkerPool, key: str
) -> None:
    AgentTrainer(make(budget={key: 2}), pool)
    with pytest.raises(UsageError, match=f"budget.{key} = 2.*Still"):
        AgentTrainer(make("own_agents:Still", budget={key: 2}), pool)
