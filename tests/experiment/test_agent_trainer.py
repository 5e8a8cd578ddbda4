"""An agent is trained, recorded and scored as a search, and its steps are counted exactly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import own_agents
import pytest
from command_line import Run
from own_agents import Climber

import esbench as package
from esbench.agents.agent import Agent, AgentSettings, MakeEnvironment
from esbench.core.errors import TrainingError, UsageError
from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer, play
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Stop
from esbench.grids.trainers import is_agent, trainer_names, trainer_settings
from esbench.grids.trial_spec import TrialSpec
from esbench.results.sources import read_folder

NAME = "own_agents:Climber"
Make = Callable[..., TrialSpec]


@pytest.fixture
def make(make_trial: Callable[..., Trial]) -> Make:
    """Return a maker of the specification of an agent on CartPole."""

    def spec(name: str = NAME, steps: int = 600, **settings: Any) -> TrialSpec:
        table = {"population_size": None, "sigma": None, "row_steps": 200, **settings}
        given = {key: value for key, value in table.items() if value is not None}
        trial = _trial(make_trial, name, {"env_steps": steps}, given)
        return trial.spec

    return spec


def _trial(make_trial: Any, name: str, budget: Any, settings: dict[str, Any]) -> Trial:
    from esbench.experiment.trials import grid_trials
    from esbench.grids.grid_file import parse_grid

    grid = {
        "name": "test",
        "seeds": [0],
        "environments": ["CartPole-v1"],
        "algorithms": {"agent": {"algorithm": name, **settings}},
        "budget": budget,
        "evaluation": {"episodes": 4},
    }
    (trial,) = grid_trials(parse_grid(grid, "test"), Path("out"), "test")
    return trial


class Seeds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that notes the seeds of its episodes."""

    seen: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Note the seed."""
        Seeds.seen.append(-1 if seed is None else seed)
        return self.env.reset(seed=seed, options=options)


def test_steps_are_counted_and_every_episode_has_its_own_seed(make: Make, pool: WorkerPool) -> None:
    spec = make()
    environment = spec.environment.model_validate(
        {**spec.environment.model_dump(), "wrappers": ({"wrapper": f"{__name__}:Seeds"},)}
    )
    Seeds.seen.clear()
    trainer = AgentTrainer(spec.model_copy(update={"environment": environment}), pool)
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
    returns = []
    for seed in policy.held_out_seeds:
        env = gymnasium.make("CartPole-v1")
        (observation, _), total, ended = env.reset(seed=seed), 0.0, False
        while not ended:
            observation, reward, *ends, _ = env.step(policy.act(observation))
            total, ended = total + float(reward), any(ends)
        returns.append(total)
    assert score.returns.tolist() == returns == score.lengths.tolist()
    # The held-out episodes are those of any other trial of this seed.
    search = package.make_trainer("openai_es", env="CartPole-v1", evaluation={"episodes": 4})
    with search:
        assert search.policy().held_out_seeds == policy.held_out_seeds


def test_training_repeats_and_depends_on_the_seed(make: Make, pool: WorkerPool) -> None:
    spec, digests = make(), []
    for seed in (0, 0, 1):
        trainer = AgentTrainer(spec.model_copy(update={"seed": seed}), pool)
        trainer.train()
        digests.append([row.digest for row in trainer.history])
    assert digests[0] == digests[1] != digests[2]


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


def test_a_policy_with_predict_acts_without_exploration(make: Make, pool: WorkerPool) -> None:
    trainer = AgentTrainer(make("own_agents:Predictor"), pool)
    trainer.train()
    assert trainer.progress.env_steps == 1
    assert trainer.evaluate().returns.max() < 12  # CartPole falls under a constant force


def test_names_of_agents_and_algorithms_are_one_list() -> None:
    assert trainer_names() == sorted(package.list_algorithms() + package.list_agents())
    assert {"openai_es", "csa_es"} <= set(trainer_names())
    assert is_agent(NAME)
    assert not is_agent("openai_es")
    assert issubclass(trainer_settings(NAME), AgentSettings)
    with pytest.raises(UsageError, match="openai_es"):
        trainer_settings("openai_se")


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
waste = 200
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
    assert found["waster"].overspent == 0.5
    assert found["climber"].overspent == found["openai_es"].overspent == 0.0
    _, table, _ = esbench("table", "out")
    assert "waster on CartPole-v1: 50%" in " ".join(table.split())
    assert "still on CartPole-v1: 0%" in " ".join(table.split())
    assert "climber on CartPole-v1: " not in " ".join(table.split())
    for command in (
        ("compare", "waster", "openai_es", "--in", "out"),
        ("baseline", "out", "--out", "baseline.json"),
        ("verify", "out"),
    ):
        code, _, said = esbench(*command)
        assert code == 2
        assert "waster" in said
    assert not Path("baseline.json").exists()
    assert esbench("compare", "climber", "openai_es", "--in", "out")[0] == 0


class Counting(Agent):
    """An agent with a state: the number of its steps, which its policy turns into actions."""

    class Settings(AgentSettings):
        """Settings."""

    def __init__(self, settings: Any, make_environment: MakeEnvironment, seed: int) -> None:
        self._env, self._steps = make_environment(), 0

    @property
    def policy(self) -> "Counting":
        """The agent itself."""
        return self

    def reset(self) -> None:
        """Nothing."""

    def act(self, observation: Any) -> int:
        """An action that depends on the number of steps."""
        return self._steps // 100 % 2

    def learn(self, env_steps: int) -> None:
        """Take these steps."""
        ended = True
        for _ in range(env_steps):
            if ended:
                self._env.reset()
            self._steps += 1
            *_, terminated, truncated, _ = self._env.step(0)
            ended = terminated or truncated

    def state_dict(self) -> dict[str, Any]:
        """The number of steps."""
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._steps = state["steps"]


def test_an_agent_with_a_state_resumes(make: Make, pool: WorkerPool) -> None:
    spec = make(f"{__name__}:Counting", row_steps=100)
    whole, part = AgentTrainer(spec, pool), AgentTrainer(spec, pool)
    whole.train()
    part.train(callbacks=[lambda row: Stop("killed") if row.generation == 2 else None])
    state = part.state_dict()
    assert state is not None
    again = AgentTrainer(spec, pool)
    again.load_state_dict(state, part.history)
    again.train()
    assert again.progress.env_steps == whole.progress.env_steps == 600
    assert [row.env_steps for row in again.history] == [row.env_steps for row in whole.history]
    seeds = [episode_seed(0, Purpose.EVALUATION_EPISODE, 0, n) for n in range(4)]
    assert again.policy().held_out_seeds == seeds
    assert again.evaluate().returns.tolist() == whole.evaluate().returns.tolist()


def test_own_agents_inherit_from_nothing() -> None:
    assert Climber.__bases__ == (object,)
    assert not issubclass(own_agents.Predictor, Agent)


class Recurrent:
    """A policy that pushes left for three steps of an episode, then right."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self) -> None:
        """Begin an episode."""
        self.steps = 0

    def act(self, observation: Any) -> int:
        """0, 0, 0, then 1."""
        self.steps += 1
        return int(self.steps > 3)


def test_a_policy_with_a_memory_begins_every_episode_anew() -> None:
    env, policy = gymnasium.make("CartPole-v1"), Recurrent()
    played = [play(policy, env, seed, "CartPole-v1", {}) for seed in (1, 2, 1)]
    assert played[0] == played[2]
    assert played[1] == play(Recurrent(), env, 2, "CartPole-v1", {})


def test_the_time_of_an_agent_is_that_between_its_callbacks(
    make: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("esbench.experiment.agent_trainer.time.perf_counter", lambda: now[0])

    def slow(_: object) -> None:
        now[0] += 1000.0

    with AgentTrainer(make(), pool) as trainer:
        trainer.train(callbacks=slow)
        assert len(trainer.history) > 1
        assert trainer.progress.wall_time_s < 1000.0
