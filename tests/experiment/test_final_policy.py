"""The final policy: the best center by recorded returns, or the best one by validation episodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_trials import edit, make_records, make_trials, write_trial
from trainers import plain_episode, results, train, train_interrupted
from watchers import Watcher, run

import esbench as package
from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.final_policy import BestCenter, Validation
from esbench.experiment.run_trial import run_trial
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.stored_trainer import evaluate_trial, keep_best
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec, ValidationSpec
from esbench.results.statistics.curves import WINDOW
from esbench.store.trial_folder import keep_selected_score, recorded_score

Make = Callable[..., Trial]
BUDGET = {"env_steps": 100_000, "generations": 9}
SETTINGS = {"population_size": 4, "optimizer": "clipup", "learning_rate": 0.3}


def smoothed(trial: Trial) -> np.ndarray[Any, Any]:
    """The mean center return of each five generations in a row."""
    returns = trial.folder.columns("center_return")["center_return"]
    return np.convolve(returns, np.ones(WINDOW) / WINDOW, "valid")


def test_a_search_may_update_its_center_in_place(make_trial: Make, pool: WorkerPool) -> None:
    histories, best = [], []
    for name in ("own_search:Rebinding", "own_search:InPlace"):
        settings = {"population_size": 4}
        trial = make_trial("doubles:Walk-v0", name, budget=BUDGET, settings=settings)
        with SearchTrainer(trial.spec, pool) as trainer:
            trainer.train()
            histories.append([record.update_norm for record in trainer.history])
            policy = trainer.policy("best")
            best.append((policy.generation, policy.parameters.tolist()))
    assert histories[0] == histories[1]
    assert min(histories[0]) > 0.0
    assert best[0] == best[1]


@pytest.mark.parametrize("algorithm", ["openai_es", "nsra_es"])
def test_it_is_the_center_of_its_generation_and_survives_an_interrupt(
    make_trial: Make, pool: WorkerPool, algorithm: str
) -> None:
    trial = make_trial("doubles:Walk-v0", algorithm, budget=BUDGET, settings=SETTINGS)

    stops = [7, 4]

    def interrupt(record: Any) -> None:
        if stops[-1:] == [record.generation]:
            stops.pop()
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_trial(trial, pool, Watcher(), [interrupt])
    run(pool, trial)
    stored = evaluate_trial(trial.folder.path, pool, which="best")
    assert stored.generation == np.argmax(smoothed(trial)) + WINDOW - 1
    assert stored.recorded is None
    budget = {**BUDGET, "generations": stored.generation}
    short = make_trial("doubles:Walk-v0", algorithm, budget=budget, settings=SETTINGS)
    with SearchTrainer(short.spec, pool) as trainer:
        trainer.train()
        assert trainer.evaluate().returns.tolist() == stored.score.returns.tolist()
        policy = package.load_policy(trial.folder.path, which="best")
        assert isinstance(policy, TrainedPolicy)
        assert policy.parameters.tolist() == trainer.center.tolist()
        assert policy.generation == stored.generation


def test_commands_take_it(make_trial: Make, pool: WorkerPool, esbench: Run) -> None:
    trial = make_trial("CartPole-v1", budget=BUDGET, settings=SETTINGS)
    run(pool, trial)
    path = str(trial.folder.path)
    code, printed, _ = esbench("eval", path, "--which", "best")
    assert code == 0
    assert f"generation {np.argmax(smoothed(trial)) + WINDOW - 1}, selected" in printed
    assert "recorded" not in printed
    assert "identical" in esbench("eval", path)[1]
    kept = trial.folder.path / "best.json"
    assert evaluate_trial(trial.folder.path, pool, which="best").identical
    edit(trial.folder.path, "best.json", lambda content: content["returns"].reverse())
    before = kept.read_bytes()
    other = evaluate_trial(trial.folder.path, pool, which="best")
    keep_best(trial.folder.path, other)
    assert other.identical is False
    assert kept.read_bytes() == before  # a recorded score is not overwritten
    kept.unlink()
    keep_best(trial.folder.path, evaluate_trial(trial.folder.path, pool, 3, which="best"))
    esbench("eval", path, "--which", "best", "--generation", "9")
    assert not kept.exists()  # too few episodes, or the best of some generations


def test_a_recorded_score_is_that_of_the_same_policy(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0, 2.0]), 3.0)
    folder = trial.folder
    edit(tmp_path, "result.json", lambda content: content.update(generations=2))
    assert recorded_score(folder, 2, best=False)["score"] == 3.0
    assert recorded_score(folder, 2, best=True) == {}  # the last policy may be an average
    keep_selected_score(folder, 2, {"score": 4.0, "returns": [4.0]})
    assert recorded_score(folder, 2, best=True)["score"] == 4.0
    assert recorded_score(folder, 2, best=False)["score"] == 3.0
    assert recorded_score(folder, 1, best=True) == recorded_score(folder, 1, best=False) == {}


def test_all_trials_of_a_folder_are_scored_for_the_table(
    make_trial: Make, pool: WorkerPool, esbench: Run
) -> None:
    short = {**BUDGET, "generations": 3}
    for seed, budget in enumerate([BUDGET, BUDGET, short]):
        trial = make_trial("doubles:Walk-v0", budget=budget, settings=SETTINGS, seed=seed)
        run(pool, trial)
    root = str(trial.folder.path.parents[2])
    code, _, error = esbench("table", root, "--which", "best")
    assert (code, f"esbench eval --all --which best {root}" in error) == (2, True)
    code, printed, error = esbench("eval", "--all", "--which", "best", root)
    assert (code, printed.count("selected"), error.count("seed-2")) == (0, 2, 1)
    means = [float(mean) for mean in re.findall(r"mean ([-\d.]+)", printed)]
    code, printed, _ = esbench("table", root, "--which", "best", "--format", "json")
    rows = json.loads(printed)["rows"]
    selected = [row["selected"] for row in rows if row["seeds"] == 2]
    assert selected == pytest.approx([np.mean(means)], abs=0.01)


def test_of_equal_centers_the_first_is_kept() -> None:
    history, best = make_records([1, 1, 1, 1, 1, 1, 0, 0]), BestCenter()
    for count in range(1, len(history) + 1):
        best.update(history[:count], np.full(1, float(count)), None)
    assert best.generation == WINDOW - 1
    np.testing.assert_array_equal(best.state_dict()["center"], [WINDOW])


Spec = Callable[..., TrialSpec]
EPISODES, QUARTER = 8, 2


def make(make_spec: Spec, **validation: Any) -> TrialSpec:
    evaluation = {"episodes": 4, **({"validation": validation} if validation else {})}
    return make_spec(budget={"env_steps": 3000}, evaluation=evaluation)


def played(trainer: SearchTrainer) -> tuple[np.ndarray, np.ndarray]:
    """The last center on the validation episodes, in a plain Gymnasium loop: returns, lengths."""
    policy, address = trainer.policy(), (trainer.spec.seed, Purpose.VALIDATION_EPISODE, 0)
    env, seeds = policy.make_environment(), [episode_seed(*address, n) for n in range(EPISODES)]
    episodes = [plain_episode(policy, env, seed) for seed in seeds]
    return np.array([total for total, _ in episodes]), np.array([len(seen) for _, seen in episodes])


def test_the_final_policy_is_the_best_candidate(make_spec: Spec, pool: WorkerPool) -> None:
    spec = make(make_spec, start=300, interval=1, episodes=EPISODES)
    selected = train(spec, pool)
    plain = SearchTrainer(make(make_spec), pool)
    best, chosen, spent, rejected = np.full(EPISODES, -np.inf), 0, 0, 0
    for record in selected.history:
        if plain.history and selected.history[record.generation - 2].env_steps >= 300:
            returns, lengths = played(plain)
            promising = returns[:QUARTER].mean() >= best[:QUARTER].mean()
            spent += int(lengths.sum() if promising else lengths[:QUARTER].sum())
            rejected += not promising
            if promising and returns.mean() > best.mean():
                best, chosen = returns, plain.progress.generation
                policy, scored = plain.policy(), plain.evaluate().returns
        plain.train(env_steps=plain.progress.env_steps + 1)
        assert plain.history[-1].digest == record.digest
        assert record.env_steps == plain.history[-1].env_steps + spent
    assert 0 < chosen < plain.progress.generation - 1
    assert rejected > 0
    assert selected.validated_generation == selected.policy().generation == chosen
    np.testing.assert_array_equal(selected.policy().parameters, policy.parameters)
    np.testing.assert_array_equal(selected.evaluate().returns, scored)
    assert not np.array_equal(selected.center, policy.parameters)


@pytest.mark.parametrize(
    ("env_steps", "due"), [(300, 400), (330, 400), (399, 400), (400, 500), (650, 700)]
)
def test_candidates_are_due_at_whole_intervals_from_the_start(env_steps: int, due: int) -> None:
    validation = Validation(ValidationSpec(start=300, interval=100, episodes=4))
    assert not validation.is_due(299)
    assert validation.is_due(300)
    job: Any = SimpleNamespace(center=np.zeros(1), normalizer=None)
    validation.add(job, np.zeros(4), 1, env_steps)
    assert not validation.is_due(due - 1)
    assert validation.is_due(due)


@pytest.mark.parametrize("stops", [(4,), (3, 9)])
def test_a_resumed_trial_selects_the_same_policy(
    make_spec: Spec, pool: WorkerPool, single: WorkerPool, stops: tuple[int, ...]
) -> None:
    spec = make(make_spec, start=300, interval=150, episodes=EPISODES)
    whole, resumed = train(spec, pool), train(spec, single, *stops)
    assert results(resumed) == results(whole)
    assert resumed.validated_generation == whole.validated_generation
    np.testing.assert_array_equal(resumed.policy().parameters, whole.policy().parameters)
    np.testing.assert_array_equal(resumed.evaluate().returns, whole.evaluate().returns)


def test_an_interrupt_at_any_moment_validates_no_candidate_twice(
    make_spec: Spec, pool: WorkerPool
) -> None:
    spec = make(make_spec, start=300, interval=1, episodes=EPISODES)
    whole = train(spec, pool)
    for play in range(10, 20):
        again = train_interrupted(spec, pool, play)
        assert results(again) == results(whole)
        assert again.validated_generation == whole.validated_generation
