"""An agent is trained, recorded and scored as a search, and its steps are counted exactly."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from command_line import Run
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from trainers import Memory, agent_spec, plain_episode

import esbench as package
from esbench.agents.acting import MakeEnvironment
from esbench.agents.agent import Agent, AgentSettings
from esbench.core.errors import TrainingError, UsageError
from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.results.sources import read_folder
from esbench.store.generation_record import GenerationRecord

NAME = "own_agents:Climber"
STEPS = f"{__name__}:Steps"
Make = Callable[..., TrialSpec]


@pytest.fixture
def make() -> Make:
    """A maker of the specification of an agent on CartPole."""

    def spec(name: str = NAME, **table: Any) -> TrialSpec:
        budget = {"env_steps": 400, **table.pop("budget", {})}
        environment = {"id": "CartPole-v1", "wrappers": table.pop("wrappers", [])}
        return agent_spec(name, {"row_steps": 100, **table}, environment, budget, episodes=4)

    return spec


class Seeds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that notes the seeds of its episodes."""

    seen: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Seeds.seen.append(-1 if seed is None else seed)
        return self.env.reset(seed=seed, options=options)


def test_steps_are_counted_and_every_episode_has_its_own_seed(
    make: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentTrainer, "_fingerprint", lambda _: [])  # whose episodes are others
    Seeds.seen.clear()
    wrapped = {"wrappers": [{"wrapper": f"{__name__}:Seeds"}], "row_steps": 200}
    trainer = AgentTrainer(make(budget={"env_steps": 600}, **wrapped), pool)
    trainer.train()
    progress, rows = trainer.progress, trainer.history
    assert progress.env_steps == 600
    assert [row.env_steps for row in rows] == [200, 400, 600]
    seeds = [episode_seed(0, Purpose.TRAINING_EPISODE, 0, n) for n in range(len(Seeds.seen))]
    assert Seeds.seen == seeds
    assert len(seeds) - progress.episodes in {0, 1}  # the last one may not have ended
    row = rows[0]
    assert (row.population_size, row.non_finite) == (0, 0)
    assert np.isnan([row.center_return, row.center_rank, row.sigma, row.update_norm]).all()
    ended = [row for row in rows if np.isfinite(row.population_return_mean)]
    assert ended  # CartPole's reward is 1
    assert all(row.population_return_mean == row.episode_length_mean for row in ended)


def test_the_score_is_that_of_the_handed_over_policy_in_plain_gymnasium(
    make: Make, pool: WorkerPool
) -> None:
    trainer = AgentTrainer(make(), pool)
    trainer.train()
    score = trainer.evaluate()
    policy = trainer.policy()
    env = gymnasium.make("CartPole-v1")
    returns = [plain_episode(policy, env, seed)[0] for seed in policy.held_out_seeds]
    assert score.returns.tolist() == returns == score.lengths.tolist()
    # The held-out episodes are those of any other trial of this seed.
    search = package.make_trainer("openai_es", env="CartPole-v1", evaluation={"episodes": 4})
    with search:
        assert search.policy().held_out_seeds == policy.held_out_seeds


@pytest.mark.parametrize("method", ["step", "reset", "__init__"])
def test_an_agent_that_changes_the_class_of_its_environment_fails(
    make: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(CartPoleEnv, method, vars(CartPoleEnv)[method])  # restored afterwards
    with pytest.raises(TrainingError, match="Eases has changed the environment 'CartPole-v1'"):
        AgentTrainer(make("own_agents:Eases", method=method), pool).train()


def test_an_agent_may_change_its_own_instance(make: Make, pool: WorkerPool) -> None:
    with AgentTrainer(make("own_agents:Eases", for_all=False), pool) as trainer:
        trainer.train()
        assert trainer.evaluate(3).returns.max() < 15


def test_a_callback_cannot_stop_an_agent_whose_policy_is_not_known(
    make: Make, pool: WorkerPool
) -> None:
    with pytest.raises(TrainingError, match="Climber"):
        AgentTrainer(make(), pool).train(callbacks=[lambda _: Stop("enough")])


def test_an_agent_that_trains_once_cannot_go_on(make: Make, pool: WorkerPool) -> None:
    with AgentTrainer(make(), pool) as trainer:
        trainer.train(env_steps=300)
        assert trainer.evaluate(2).returns.size == 2
        rows = list(trainer.history)
        trainer.train(env_steps=300)
        with pytest.raises(UsageError, match="Climber was trained for 300 steps"):
            trainer.train()
        assert trainer.history == rows
        for ask in (trainer.evaluate, trainer.policy):
            with pytest.raises(UsageError, match="which = 'bset': expected 'last' or 'best'"):
                ask(which="bset")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "settings", "error", "said"),
    [
        (NAME, {"nois": 0.3}, UsageError, "'nois'.*'noise'"),
        (NAME, {"row_steps": 0}, UsageError, "row_steps"),
        ("own_agents:Nothing", {}, TrainingError, "Nothing.*int"),
        ("own_agents:np", {}, UsageError, "own_agents:np"),
    ],
)
def test_a_wrong_agent_is_refused(
    make: Make, pool: WorkerPool, name: str, settings: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        AgentTrainer(make(name, **settings), pool).train()


GRID = """
name = "own"
seeds = [0, 1, 2]
environments = ["CartPole-v1"]
[budget]
env_steps = 400
[evaluation]
episodes = 2
[algorithms.climber]
algorithm = "own_agents:Climber"
row_steps = 100
[algorithms.waster]
algorithm = "own_agents:Climber"
waste = 400
[algorithms.still]
algorithm = "own_agents:Still"
[algorithms.openai_es]
population_size = 4
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two agents and a search, trained by the command."""
    from command_line import execute, working_in

    folder = tmp_path_factory.mktemp("agents")
    (folder / "own.toml").write_text(GRID)
    with working_in(folder):
        assert execute("run", "own.toml", "--out", "out", "--workers", "1", "--quiet") == 0
    return folder


def test_every_reading_command_takes_an_agent(
    trained: Path, esbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    code, table, _ = esbench("table", "out", "--format", "json")
    assert code == 0
    rows = {row["algorithm"]: row for row in json.loads(table)["rows"]}
    assert set(rows) == {"climber", "waster", "still", "openai_es"}
    for command in (
        ("table", "out", "--format", "markdown"), ("plot", "out"), ("diagnose", "out"),
        ("report", "out"), ("efficiency", "out"), ("plan", "own.toml"),
        ("status", "own.toml", "--out", "out"),
    ):  # fmt: skip
        assert esbench(*command)[0] == 0, command
    stored = esbench("eval", "out/CartPole-v1/climber/seed-0")
    assert stored[0] == 2
    assert "own_agents:Climber" in stored[2]


def test_an_agent_over_its_budget_is_reported_and_not_compared(
    trained: Path, esbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    found = {cell.name: cell for cell in read_folder(Path("out"))}
    assert found["waster"].overspent == 1.0
    assert found["climber"].overspent == 0.0
    assert 0.05 < found["openai_es"].overspent < 1.0
    _, table, _ = esbench("table", "out")
    assert "waster on CartPole-v1: 100%" in " ".join(table.split())
    assert "CartPole-v1: openai_es: 40% more environment steps" in " ".join(table.split())
    assert "still on CartPole-v1: 0%" in " ".join(table.split())
    assert "climber on CartPole-v1: " not in " ".join(table.split())
    for command in (
        ("compare", "waster", "openai_es", "--in", "out"),
        ("submit", "out", "--out", "rows"),
    ):
        code, _, said = esbench(*command)
        assert code == 2
        assert "waster" in said
    assert not Path("rows").exists()
    assert esbench("compare", "climber", "openai_es", "--in", "out")[0] == 0


class Recurrent:
    """An agent whose policy pushes left for three steps of an episode, then right."""

    def train(self, env: Any, env_steps: int, seed: int) -> "Recurrent":
        return self

    def reset(self) -> None:
        self.steps = 0

    def act(self, observation: Any) -> int:
        self.steps += 1
        return int(self.steps > 3)


def test_a_policy_with_a_memory_begins_every_episode_anew(make: Make, pool: WorkerPool) -> None:
    with AgentTrainer(make(f"{__name__}:Recurrent"), pool) as trainer:
        trainer.train()
        assert trainer.evaluate(1).returns.tolist() == trainer.evaluate(4).returns[:1].tolist()


class Steps(Agent):
    """An agent whose state is the number of its steps; it ends after ``most`` of them.

    Its policy acts on that state.
    """

    class Settings(AgentSettings):
        """Settings."""

        most: int = 10**6
        catches: bool = False

    at_act: ClassVar[Callable[[], None] | None] = None

    def __init__(self, settings: Any, make_environment: MakeEnvironment, seed: int) -> None:
        self._env, self._settings, self._steps = make_environment(), settings, 0

    @property
    def policy(self) -> "Steps":
        return self

    def reset(self) -> None:
        """Nothing."""

    def act(self, observation: Any) -> int:
        if Steps.at_act is not None:
            Steps.at_act()
        return self._steps // 100 % 2

    def learn(self, env_steps: int) -> None:
        """Take these steps, and go on after the first exception if it ``catches``."""
        ended = True
        for _ in range(min(env_steps, self._settings.most)):
            if ended:
                self._env.reset()
            self._steps += 1
            try:
                *_, terminated, truncated, _ = self._env.step(0)
            except BaseException:
                if not self._settings.catches:
                    raise
            ended = terminated or truncated

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]


def _interrupt_once() -> None:
    Steps.at_act = None
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("moment", ["row", "evaluation", "callback"])
def test_an_interrupt_saves_the_state_of_the_last_row(
    make: Make, pool: WorkerPool, moment: str
) -> None:
    def callback(record: GenerationRecord) -> None:
        if record.generation == 2:
            if moment == "callback":
                signal.raise_signal(signal.SIGINT)
            if moment == "evaluation":
                Steps.at_act = _interrupt_once

    notes = Memory(interrupted_at=3 if moment == "row" else 0)
    trainer = AgentTrainer(make(STEPS), pool, notes)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(callbacks=[callback])
    generation = notes.states[-1]["progress"]["generation"]
    assert generation <= len(notes.rows)
    assert notes.states[-1]["progress"]["env_steps"] == 100 * generation
    again = AgentTrainer(make(STEPS), pool)
    again.load_state_dict(notes.states[-1], notes.rows[:generation])
    again.train()
    assert [row.env_steps for row in again.history] == [100, 200, 300, 400]
    assert [row.generation for row in again.history] == [1, 2, 3, 4]


def test_an_agent_that_ends_early_is_not_trained_again(make: Make, pool: WorkerPool) -> None:
    spec = make(STEPS, most=150)
    trainer, again = (AgentTrainer(spec, pool) for _ in range(2))
    trainer.train()
    state = trainer.state_dict()
    assert state is not None
    again.load_state_dict(state, trainer.history)
    again.train()
    assert again.progress.env_steps == trainer.progress.env_steps == 150


def test_an_agent_that_catches_everything_takes_no_further_step(
    make: Make, pool: WorkerPool
) -> None:
    trainer = AgentTrainer(make(STEPS, catches=True), pool)
    assert trainer.train(callbacks=[lambda _: Stop("enough")]) == Stop("enough")
    assert trainer.progress.env_steps == 100


class Careless:
    """An agent that never resets after the end of an episode."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        env.reset()
        for _ in range(env_steps):
            env.step(0)


def test_an_agent_without_a_step_has_a_row(make: Make, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make("own_agents:Still"), pool)
    trainer.train()
    (row,) = trainer.history
    assert (row.generation, row.env_steps, row.population_size) == (1, 0, 0)
    assert 8 <= row.center_return <= 11  # CartPole falls under a constant force


def test_a_step_after_the_end_of_an_episode_is_refused(make: Make, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make(f"{__name__}:Careless"), pool)
    with pytest.raises(TrainingError, match="reset"):
        trainer.train()
    assert trainer.progress.episodes == 1


@pytest.mark.parametrize("key", ["generations", "target_return"])
def test_a_policy_that_is_known_at_the_end_cannot_end_early(
    make: Make, pool: WorkerPool, key: str
) -> None:
    AgentTrainer(make(STEPS, budget={key: 2}), pool)
    with pytest.raises(UsageError, match="budget: .*Still.* env_steps alone"):
        AgentTrainer(make("own_agents:Still", budget={key: 2}), pool)


def test_an_agent_with_a_state_resumes(make: Make, pool: WorkerPool) -> None:
    spec = make(STEPS)
    whole, part, again = (AgentTrainer(spec, pool) for _ in range(3))
    whole.train()
    part.train(callbacks=[lambda row: Stop("killed") if row.generation == 2 else None])
    state = part.state_dict()
    assert state is not None
    again.load_state_dict(state, part.history)
    again.train()
    assert again.progress.env_steps == whole.progress.env_steps == 400
    assert [row.env_steps for row in again.history] == [row.env_steps for row in whole.history]
    seeds = [episode_seed(0, Purpose.EVALUATION_EPISODE, 0, n) for n in range(4)]
    assert again.policy().held_out_seeds == seeds
    assert again.evaluate().returns.tolist() == whole.evaluate().returns.tolist()
