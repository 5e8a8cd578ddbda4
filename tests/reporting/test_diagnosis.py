"""Runs that were made sick on purpose get their own diagnosis, and healthy ones none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_trials import learning, make_records, make_trials, write_trial
from watchers import Silent

from esbench.errors import UsageError
from esbench.reporting.diagnosis import Diagnosis, as_json, diagnose, diagnose_trial
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.run_trial import run_trial
from esbench.training.trials import Trial

Make = Callable[..., Trial]
SPHERE = "esbench/Sphere-v0"


def trained(make: Make, pool: WorkerPool, env: str, algorithm: str, **settings: Any) -> Diagnosis:
    generations = settings.pop("generations", 12)
    table = {"policy": {"template": "vector"}} if env == SPHERE else {}
    if env == "CartPole-v1":  # short episodes, so that to balance takes little time
        table["environment"] = {env: {"kwargs": {"max_episode_steps": 100}}}
    trial = make(
        env,
        algorithm,
        settings={"population_size": 16, **settings},
        budget={"generations": generations, "env_steps": 10**6},
        evaluation={"episodes": 1},
        **table,
    )
    outcome, detail = run_trial(trial, pool, Silent(), [])
    assert outcome == "done", detail
    return diagnose_trial(trial.folder)


@pytest.mark.parametrize(
    ("env", "algorithm", "settings", "expected"),
    [
        ("CartPole-v1", "pgpe", {"sigma": 100.0}, "sigma_too_large"),
        ("CartPole-v1", "pgpe", {"sigma": 1e-6}, "sigma_too_small"),
        (
            "CartPole-v1",
            "ars",
            {"sigma": 1e-6, "learning_rate": 1e-7, "generations": 30},
            "no_information",
        ),
        ("CartPole-v1", "pgpe", {"sigma": 0.3, "learning_rate": 100.0}, "learning_rate_too_large"),
        ("CartPole-v1", "pgpe", {"sigma": 0.3, "learning_rate": 1e-5}, "learning_rate_too_small"),
        (SPHERE, "pgpe", {"sigma": 0.2, "learning_rate": 30.0}, "learning_rate_too_large"),
        ("doubles:Indifferent-v0", "pgpe", {}, "constant_reward"),
        ("doubles:Indifferent-v0", "genetic", {}, "constant_reward"),
    ],
)
def test_a_sick_run_gets_its_own_diagnosis(
    make_trial: Make,
    pool: WorkerPool,
    env: str,
    algorithm: str,
    settings: dict[str, Any],
    expected: str,
) -> None:
    diagnosis = trained(make_trial, pool, env, algorithm, **settings)
    warnings = [finding for finding in diagnosis.findings if finding.level == "warning"]
    assert [finding.name for finding in warnings] == [expected]
    assert diagnosis.level == "warning"
    assert any(letter.isdigit() for letter in warnings[0].sentence)
    assert warnings[0].advice


@pytest.mark.parametrize(
    ("env", "algorithm", "settings", "said"),
    [
        ("CartPole-v1", "pgpe", {"sigma": 0.3, "learning_rate": 0.3}, {"climbing", "solved"}),
        (SPHERE, "pgpe", {"sigma": 0.5, "learning_rate": 0.3, "generations": 60}, {"climbing"}),
        (SPHERE, "random_search", {"sigma": 1.0, "generations": 40}, {"climbing", "unclear"}),
        # A deviation far too large, and it climbs all the same: nothing to warn of.
        (SPHERE, "pgpe", {"sigma": 5.0, "learning_rate": 0.3, "generations": 60}, {"climbing"}),
        ("CartPole-v1", "ns_es", {"optimizer": "clipup"}, {"novelty"}),
    ],
)
def test_a_healthy_run_gets_none(
    make_trial: Make,
    pool: WorkerPool,
    env: str,
    algorithm: str,
    settings: dict[str, Any],
    said: set[str],
) -> None:
    diagnosis = trained(make_trial, pool, env, algorithm, **settings)
    assert diagnosis.level == "ok", diagnosis.findings
    assert said & {finding.name for finding in diagnosis.findings}


def test_what_was_measured_is_shown_in_thirds(make_trial: Make, pool: WorkerPool) -> None:
    diagnosis = trained(make_trial, pool, SPHERE, "pgpe", sigma=0.5)
    rows = make_trial(SPHERE, "pgpe").folder.records()
    expected = [sum(row.distance for row in rows[n : n + 4]) / 4 for n in (0, 4, 8)]
    assert diagnosis.measures["distance"] == pytest.approx(tuple(expected))
    steps = [row.update_norm / (row.sigma * math.sqrt(10)) for row in rows[:4]]
    assert diagnosis.measures["update_norm / radius"][0] == pytest.approx(sum(steps) / 4)
    assert all(math.isnan(value) for value in diagnosis.measures["observation_drift"])


def test_trials_come_worst_first(tmp_path: Path) -> None:
    well, young, sick = make_trials(tmp_path)
    write_trial(well, make_records(learning(20, 100.0, seed=0)))
    write_trial(young, make_records([1.0, 2.0]))
    same = make_records([9.0] * 20, population=[9.0] * 20)
    write_trial(
        sick, [replace(row, population_return_min=9.0, population_return_max=9.0) for row in same]
    )
    found = diagnose(tmp_path)
    assert [item.seed for item in found] == [2, 0, 1]
    assert [item.level for item in found] == ["warning", "ok", "ok"]
    assert "2 generations are too few to judge" in found[2].findings[0].sentence
    assert [item.seed for item in diagnose(sick.folder.path)] == [2]
    content = json.loads(as_json(found))
    assert [trial["level"] for trial in content["trials"]] == ["warning", "ok", "ok"]
    assert content["trials"][0]["findings"][0]["name"] == "constant_reward"
    assert content["trials"][0]["measures"]["distance"] == [None, None, None]  # rows without it
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no trial in"):
        diagnose(tmp_path / "empty")
