from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_trials import make_records, make_trials, write_trial

from esbench import plan
from esbench.errors import UsageError
from esbench.plan import costs, probe, standings
from esbench.spec import EnvironmentSpec
from esbench.trials import Trial


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "probe", lambda environment: 100.0)


@pytest.mark.usefixtures("_fast")
def test_the_cost_is_of_what_is_left(tmp_path: Path) -> None:
    done, partial, _ = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    write_trial(done, make_records([1.0, 2.0]), 5.0)
    write_trial(partial, make_records([1.0, 2.0]))  # 200 steps
    trials = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    (cost,) = costs(trials, workers=2)
    assert (cost.environment, cost.trials, cost.done) == ("CartPole-v1", 3, 1)
    assert cost.env_steps == 800 + 1000
    assert cost.steps_per_second == 100.0 * 2 * plan.EFFICIENCY
    assert cost.seconds == pytest.approx(1800 / cost.steps_per_second)


@pytest.mark.usefixtures("_fast")
def test_environments_have_a_cost_each(tmp_path: Path) -> None:
    trials = make_trials(tmp_path, environments=["CartPole-v1", "Acrobot-v1"])
    assert [(cost.environment, cost.trials) for cost in costs(trials, 1)] == [
        ("CartPole-v1", 3),
        ("Acrobot-v1", 3),
    ]


def test_a_trial_that_made_more_steps_than_planned_costs_nothing(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0], budget={"env_steps": 150})
    write_trial(trial, make_records([1.0, 2.0]))
    assert costs([trial], 1)[0].env_steps == 0


def test_probing_an_environment_that_cannot_be_made(make_trial: Callable[..., Trial]) -> None:
    assert probe(EnvironmentSpec(id="CartPole-v1")) > 0
    trial = make_trial("CartPole-v1", environment={"CartPole-v1": {"kwargs": {"foo": 1}}})
    with pytest.raises(UsageError, match="'CartPole-v1' cannot be made with kwargs {'foo': 1}"):
        costs([trial], 1)


def test_standings_say_how_far_and_why(tmp_path: Path) -> None:
    trials = make_trials(tmp_path, seeds=[0, 1, 2, 3, 4])
    done, failed, silent, diverged, _ = trials
    write_trial(done, make_records([1.0, 2.0]), 12.34)
    write_trial(failed, make_records([1.0]), error="Traceback\nValueError: oh\n")
    write_trial(silent, error="\n")
    write_trial(diverged, make_records([1.0]), math.nan)
    found = standings(trials)
    assert [item.status for item in found] == ["done", "failed", "failed", "done", "missing"]
    assert [item.generation for item in found] == [2, 1, 0, 1, 0]
    assert [item.env_steps for item in found] == [200, 100, 0, 100, 0]
    assert [item.detail for item in found] == ["score 12.3", "ValueError: oh", "", "score -", ""]
    assert json.loads((diverged.folder.path / "result.json").read_text())["score"] is None
