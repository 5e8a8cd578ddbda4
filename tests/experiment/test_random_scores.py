from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watchers import run

from esbench.engine.random_policy import random_policy_returns
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.random_scores import record_random_score, without_random_score
from esbench.experiment.trials import Trial
from esbench.grids import environment_files
from esbench.grids.environment_files import Scores
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.publish.tables.score_table import score_table

Make = Callable[..., Trial]


def test_the_random_score_of_an_own_environment_is_measured_once_and_kept(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [make_trial("doubles:Walk-v0", seed=seed) for seed in (0, 1)]
    run(pool, trials[0])
    (group,) = without_random_score(trials)
    assert [trial.spec.seed for trial in group] == [0]  # the other one is not trained
    score = record_random_score(group, pool)
    assert score is not None
    expected = random_policy_returns(trials[0].spec.environment, score.episodes, seed=0)
    assert (score.mean, score.std) == (expected.mean(), expected.std())
    run(pool, *trials)  # which records the frozen scores of the finished one again
    monkeypatch.setattr(pool, "ask", None)  # plays nothing
    (group,) = without_random_score(trials)
    assert record_random_score(group, pool) == score
    assert without_random_score(trials) == []
    (cell,) = score_table(trials[0].folder.path.parents[2])
    assert (cell.random_score, cell.scores_differ) == (score.mean, False)


def test_a_file_that_is_written_later_takes_the_place_of_a_measured_score(
    make_trial: Make, pool: WorkerPool, freeze: Callable[..., None]
) -> None:
    trial = make_trial("CartPole-v1")
    run(pool, trial)
    record_random_score([trial], pool)
    (cell,) = score_table(trial.folder.path.parents[2])
    assert (cell.random_score, cell.frozen.is_measured) == (pytest.approx(22, abs=3), True)
    freeze("CartPole-v1", 3.0, 400.0)
    environment_files._paths.cache_clear()
    (cell,) = score_table(trial.folder.path.parents[2])
    assert (cell.random_score, cell.reference_score) == (3, 400)


def test_a_file_without_a_random_score_leaves_the_measured_one(
    make_trial: Make, pool: WorkerPool, freeze: Callable[..., None]
) -> None:
    environment_files._paths.cache_clear()
    freeze(
        "CartPole-v1",
        text="[scores.references.PPO]\nscore = 400.0\nsource = 'a paper'\ncomparable = true\n",
    )
    trial = make_trial("CartPole-v1")
    run(pool, trial)
    record_random_score([trial], pool)
    trial.folder.record_scores(Scores(random=trial.frozen.random).model_dump(mode="json"))
    (cell,) = score_table(trial.folder.path.parents[2])
    assert (cell.random_score, cell.reference_score) == (pytest.approx(22, abs=3), 400)


def test_an_environment_with_a_file_is_not_measured(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial("CartPole-v1")
    run(pool, trial)
    assert without_random_score([trial]) == []
    assert trial.folder.description().get("scores") is None


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("BadReward", {}), ("BadReward", {"value": 1e201}), ("Dies", {})],
    ids=["no mean", "no deviation", "dies"],
)
def test_a_random_score_that_cannot_be_measured_is_not_recorded(
    make_trial: Make,
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kwargs: dict[str, Any],
    tmp_path: Path,
) -> None:
    trial = make_trial()
    run(pool, trial)
    (tmp_path / "flag").write_bytes(b"x")
    if name == "Dies":
        kwargs = {"flag": str(tmp_path / "flag")}
    other = EnvironmentSpec(id=f"doubles:{name}-v0", kwargs=kwargs)
    ask = pool.ask
    monkeypatch.setattr(pool, "ask", lambda questions, _: ask(questions, other))
    assert record_random_score([trial], pool) is None
    assert trial.frozen.random is None
