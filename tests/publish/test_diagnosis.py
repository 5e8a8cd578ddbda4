import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_trials import make_records, make_trials, write_trial
from watchers import Watcher

from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_trial import run_trial
from esbench.experiment.trials import Trial
from esbench.publish.diagnosis import Diagnosis, diagnose_trial, run_measurements

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
    outcome, detail = run_trial(trial, pool, Watcher(), [])
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


@pytest.mark.parametrize("limits", [[[0, 5], [600, 9], [4_000, 12]], [[0, 20], [900, 6]]])
def test_a_schedule_of_limits_is_not_mistaken_for_progress(
    make_trial: Make, pool: WorkerPool, limits: list[list[int]]
) -> None:
    trial = make_trial(
        "CartPole-v1",
        "pgpe",
        settings={"population_size": 16, "sigma": 0.3, "learning_rate": 1e-5},
        budget={"generations": 60, "env_steps": 10**6},
        evaluation={"episodes": 1},
        environment={"CartPole-v1": {"max_episode_steps": limits}},
    )
    assert run_trial(trial, pool, Watcher(), [])[0] == "done"
    diagnosis = diagnose_trial(trial.folder)
    found = {finding.name: finding.sentence for finding in diagnosis.findings}
    assert "climbing" not in found
    used = [row.max_episode_steps for row in trial.folder.records()]
    longest = max(set(used), key=used.count)
    first = used.index(longest) + 1
    assert f"{first} to {first + used.count(longest) - 1}," in found["one_limit"]
    assert f"{longest} steps" in found["one_limit"]


def test_a_failed_trial_is_not_healthy(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0]), error="Traceback\nValueError: broken")
    first, second = diagnose_trial(trial.folder).findings
    assert (first.name, first.level, second.name) == ("failed", "warning", "too_short")
    assert "ValueError: broken" in first.sentence


@pytest.mark.parametrize(("of_environment", "of_algorithm"), [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_shifts_of_environment_and_algorithm_are_added(
    of_environment: float, of_algorithm: float, tmp_path: Path
) -> None:
    trial, *_ = make_trials(
        tmp_path,
        algorithms={"openai_es": {"reward_shift": of_algorithm}},
        environment={"CartPole-v1": {"reward_shift": of_environment}},
    )
    write_trial(trial, make_records([1.0] * 12), 1.0)
    assert run_measurements(trial.folder).reward_shift == 1.0


def test_what_was_measured_is_shown_in_thirds(make_trial: Make, pool: WorkerPool) -> None:
    diagnosis = trained(make_trial, pool, SPHERE, "pgpe", sigma=0.5)
    rows = make_trial(SPHERE, "pgpe").folder.records()
    expected = [sum(row.distance for row in rows[n : n + 4]) / 4 for n in (0, 4, 8)]
    assert diagnosis.measures["distance"] == pytest.approx(tuple(expected))
    steps = [row.update_norm / (row.sigma * math.sqrt(10)) for row in rows[:4]]
    assert diagnosis.measures["update_norm / radius"][0] == pytest.approx(sum(steps) / 4)
    assert all(math.isnan(value) for value in diagnosis.measures["observation_drift"])
