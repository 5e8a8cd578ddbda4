from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fake_trials import make_records, make_trials, write_trial

from esbench.bench import grid_cost as plan
from esbench.bench.grid_cost import Cost, costs, probe, standing
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.this_process import ThisProcess
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec
from esbench.store.origin import differences_within


def costs_of(trials: Sequence[Trial], workers: int = 0) -> list[Cost]:
    with WorkerPool(workers) if workers else ThisProcess() as engine:
        return costs(trials, engine)


def test_the_cost_is_of_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "probe", lambda spec, pool: (100.0 * pool.size, 3.0, 0.0))
    monkeypatch.setattr(plan, "usable_cores", lambda: 2)
    done, partial, _ = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    write_trial(done, make_records([1.0, 2.0]), 5.0)
    write_trial(partial, make_records([1.0, 2.0]))  # 200 steps
    trials = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    (cost,) = costs_of(trials)
    assert (cost.environment, cost.trials, cost.done) == ("CartPole-v1", 3, 1)
    assert cost.env_steps == 800 + 1000
    assert cost.steps_per_second == pytest.approx(100.0)
    assert cost.seconds == pytest.approx(1800 / 100 + 2 * 3)
    (cost,) = costs_of(trials, 64)  # the machine has two cores
    assert cost.steps_per_second == pytest.approx(200.0)


LIMITS = {"CartPole-v1": {"max_episode_steps": [[0, 10], [1_000, 25], [3_000, 50]]}}


@pytest.mark.parametrize(
    ("budget", "settings", "length", "environment", "generations", "excess"),
    [
        ({"env_steps": 200}, {}, 10.0, {}, 1, 50),
        ({"env_steps": 641}, {"population_size": 64}, 10.0, {}, 2, 64 * 500 / 641),
        # A schedule of longer and longer episodes: 200 steps each; then those of 25 x 20; the last
        # stage begins at 3,000, 1,000 steps each, rounded up; episodes that end by themselves.
        ({"env_steps": 1_000}, {}, 10.0, LIMITS, 5, 1),
        ({"env_steps": 6_100}, {}, 10.0, LIMITS, 5 + 4 + 4, 20 * 50 / 6_100),
        ({"env_steps": 3_600}, {}, 9.0, LIMITS, 20, 20 * 50 / 3_600),
        # Populations that grow: 60 episodes of 10 steps are a multiple of the first 20.
        ({"env_steps": 20_000}, {"num_interactions": 10_000}, 10.0, {}, 2, 0.5),
    ],
)
def test_a_budget_buys_whole_generations(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: dict[str, int],
    settings: dict[str, int],
    length: float,
    environment: dict[str, Any],
    generations: int,
    excess: float,
) -> None:
    monkeypatch.setattr(plan, "probe", lambda spec, pool: (100.0, 0.0, length))
    algorithms = {"openai_es": {"population_size": 20, **settings}}
    table = {"budget": budget, "algorithms": algorithms, "environment": environment}
    (cost,) = costs_of(make_trials(tmp_path, seeds=[0], **table))
    assert cost.generations == {"openai_es": generations}
    assert cost.excess == {"openai_es": pytest.approx(excess)}  # of a generation of whole episodes
    assert cost.seconds == pytest.approx(cost.env_steps / 100)


@pytest.mark.parametrize("played", [0, 2])
def test_generations_limit_the_steps_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: int
) -> None:
    monkeypatch.setattr(plan, "probe", lambda spec, pool: (100.0, 0.0, 10.0))
    grid: dict[str, Any] = {
        "seeds": [0, 1],
        "budget": {"env_steps": 10_000, "generations": 3},
        "algorithms": {"openai_es": {"population_size": 64}},
    }
    if played:
        write_trial(make_trials(tmp_path, **grid)[0], make_records([1.0] * played))
    (cost,) = costs_of(make_trials(tmp_path, **grid))
    assert cost.env_steps == (3 - played) * 640 + 3 * 640


def test_the_policies_of_each_environment_are_measured_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pace(spec: TrialSpec, pool: WorkerPool) -> tuple[float, float, float]:
        assert spec.policy is not None
        return {"linear": 1000.0, "mlp": 10.0}[spec.policy.template], 0.0, 0.0

    monkeypatch.setattr(plan, "probe", pace)
    policies = {name: {"template": name} for name in ("linear", "mlp")}
    names = ["CartPole-v1", "Acrobot-v1"]
    grid = {"environments": names, "policies": policies, "budget": {"env_steps": 1000}}
    found = costs_of(make_trials(tmp_path, seeds=[0], **grid))
    assert [(cost.environment, cost.trials) for cost in found] == [(name, 2) for name in names]
    assert found[0].seconds == pytest.approx(1000 / 1000 + 1000 / 10)
    (trial,) = make_trials(tmp_path, seeds=[0], budget={"env_steps": 150})
    write_trial(trial, make_records([1.0, 2.0]))  # it made more steps than planned
    monkeypatch.delattr(plan, "probe")  # nothing is measured
    (cost,) = costs_of([trial])
    assert (cost.env_steps, cost.seconds, cost.steps_per_second) == (0, 0.0, None)


def test_what_cannot_be_run_cannot_be_planned(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial("CartPole-v1", environment={"CartPole-v1": {"kwargs": {"foo": 1}}})
    with pytest.raises(UsageError, match="'CartPole-v1' cannot be made with kwargs {'foo': 1}"):
        costs_of([trial])
    with pytest.raises(TrainingError, match="^doubles:Raises-v0: RuntimeError: the simulator fell"):
        costs_of([make_trial("doubles:Raises-v0")])


def test_a_trial_is_measured_by_playing_it(make_trial: Callable[..., Trial]) -> None:
    with WorkerPool(1, slots=4) as pool:
        assert probe(make_trial("CartPole-v1", "eggroll").spec, pool)[0] > 0
        often = {"environment": {"CartPole-v1": {"episodes_per_member": 3}}}
        assert probe(make_trial("CartPole-v1", **often).spec, pool)[0] > 0
        endless = {"environment": {"CartPole-v1": {"kwargs": {"max_episode_steps": -1}}}}
        assert probe(make_trial("CartPole-v1", **endless).spec, pool)[2] > 5
        _, making, _ = probe(make_trial("doubles:Heavy-v0").spec, pool)
    assert making > 3 * 0.6  # each of its four environments takes 0.6 to make


def test_the_nodes_of_a_running_trial_are_shown(esbench: Run, tmp_path: Path) -> None:
    trial = make_trials(tmp_path / "out", seeds=[0])[0]
    write_trial(trial, make_records([1.0]))
    node = {"host": "10.0.0.7", "workers": 64, "steps_per_second": 123_456.0, "in_flight": 32}
    about = {"nodes": [node], "losses": 3, "lost_episodes": 41, "mixed": {"10.0.0.7": "numpy 1"}}
    trial.folder.record_nodes(about)
    assert standing(trial).nodes == {}
    options = ("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0", "--out", "out")
    with trial.folder.locked():
        assert standing(trial).nodes["nodes"] == [node]
        _, printed, _ = esbench("status", *options, "--env-steps", "1000")
    for fact in ("10.0.0.7", "64", "123 k", "32", "3 nodes", "41 episodes"):
        assert fact in printed
    assert differences_within(trial.folder.description())


@pytest.mark.parametrize("env_steps", [50, 400])
def test_agents_are_measured_however_few_steps_they_take(tmp_path: Path, env_steps: int) -> None:
    algorithms: dict[str, Any] = {
        "brief": {"algorithm": "own_agents:Predictor"},
        "climber": {"algorithm": "own_agents:Climber"},
    }
    trials = make_trials(
        tmp_path, seeds=[0], budget={"env_steps": env_steps}, algorithms=algorithms
    )
    (cost,) = costs_of(trials)
    assert (cost.trials, cost.env_steps, cost.generations) == (2, 2 * env_steps, {})
    assert 0 < cost.seconds < 60
