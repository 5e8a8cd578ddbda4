from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_trials import make_records, make_trials, write_trial

from esbench import plan
from esbench.errors import UsageError
from esbench.plan import Lengths, Pace, _speed, costs, probe, standings
from esbench.spec import TrialSpec
from esbench.trials import Trial
from esbench.workers import WorkerPool


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "probe", lambda spec, pool: Pace(100.0 * pool.size, 3.0))
    monkeypatch.setattr(plan, "usable_cores", lambda: 4)


@pytest.mark.usefixtures("_fast")
def test_the_cost_is_of_what_is_left(tmp_path: Path) -> None:
    done, partial, _ = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    write_trial(done, make_records([1.0, 2.0]), 5.0)
    write_trial(partial, make_records([1.0, 2.0]))  # 200 steps
    trials = make_trials(tmp_path, seeds=[0, 1, 2], budget={"env_steps": 1000})
    (cost,) = costs(trials, workers=2)
    assert (cost.environment, cost.trials, cost.done) == ("CartPole-v1", 3, 1)
    assert cost.env_steps == 800 + 1000
    assert cost.steps_per_second == pytest.approx(200.0)
    assert cost.seconds == pytest.approx(1800 / 200 + 2 * 3)
    (cost,) = costs(trials, workers=1000)  # the machine has four cores
    assert cost.steps_per_second == pytest.approx(400.0)


@pytest.mark.usefixtures("_fast")
def test_environments_have_a_cost_each(tmp_path: Path) -> None:
    trials = make_trials(tmp_path, environments=["CartPole-v1", "Acrobot-v1"])
    assert [(cost.environment, cost.trials) for cost in costs(trials, 1)] == [
        ("CartPole-v1", 3),
        ("Acrobot-v1", 3),
    ]


def test_the_policies_of_an_environment_are_measured_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pace(spec: TrialSpec, pool: WorkerPool) -> Pace:
        return Pace({"linear": 1000.0, "mlp": 10.0}[spec.policy.template], 0.0)

    monkeypatch.setattr(plan, "probe", pace)
    policies = {name: {"template": name} for name in ("linear", "mlp")}
    trials = make_trials(tmp_path, seeds=[0], policies=policies, budget={"env_steps": 1000})
    (cost,) = costs(trials, 1)
    assert cost.seconds == pytest.approx(1000 / 1000 + 1000 / 10)


def test_what_is_done_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(plan, "probe")
    (trial,) = make_trials(tmp_path, seeds=[0], budget={"env_steps": 150})
    write_trial(trial, make_records([1.0, 2.0]))  # it made more steps than planned
    (cost,) = costs([trial], 1)
    assert (cost.env_steps, cost.seconds, cost.steps_per_second) == (0, 0.0, None)


def test_what_cannot_be_run_cannot_be_planned(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial("CartPole-v1", environment={"CartPole-v1": {"kwargs": {"foo": 1}}})
    with pytest.raises(UsageError, match="'CartPole-v1' cannot be made with kwargs {'foo': 1}"):
        costs([trial], 1)
    trial = make_trial("CartPole-v1", environment={"CartPole-v1": {"action_noise": 0.1}})
    with pytest.raises(UsageError, match="discrete actions, which take no noise"):
        costs([trial], 1)
    with pytest.raises(UsageError, match="workers = 0: expected at least 1"):
        costs([trial], 0)


def machine(length: int, reset: float, step: float) -> Callable[[int], tuple[Lengths, float]]:
    """Return the double of a machine: ten episodes, seconds a reset and a step."""

    def play(cut: int) -> tuple[Lengths, float]:
        lengths = np.full(10, min(cut, length))
        return lengths, 10 * reset + float(lengths.sum()) * step

    return play


@pytest.mark.parametrize("reset", [0.0, 0.1])
def test_episodes_that_are_cut_are_measured_without_their_beginning(reset: float) -> None:
    play = machine(10**6, reset, 0.001)
    assert _speed(play, play(1)[1], 10**9) == pytest.approx(1000)


@pytest.mark.parametrize(("length", "most"), [(30, 10**9), (10**6, 30), (1, 10**9), (10**6, 1)])
def test_whole_episodes_are_measured_with_their_resets(length: int, most: int) -> None:
    play = machine(length, 0.002, 0.001)
    whole = min(length, most)
    assert _speed(play, play(1)[1], most) == pytest.approx(whole / (0.002 + whole * 0.001))


def test_a_trial_is_measured_by_playing_it(make_trial: Callable[..., Trial]) -> None:
    with WorkerPool(1) as pool:
        pace = probe(make_trial("CartPole-v1", "eggroll").spec, pool)
    assert pace.steps_per_second > 0
    assert pace.loading >= 0


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
