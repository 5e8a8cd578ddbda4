from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_trials import make_records, make_trials, write_trial

from esbench.bench import plan
from esbench.bench.plan import Lengths, Pace, _speed, costs, probe, standings
from esbench.errors import TrainingError, UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.jobs import Job, Task
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.trials import Trial


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
    with WorkerPool(1, slots=4) as pool:
        assert probe(make_trial("CartPole-v1", "eggroll").spec, pool).steps_per_second > 0
        pace = probe(make_trial("doubles:Heavy-v0").spec, pool)
    assert pace.loading > 3 * 0.6  # each of its four environments takes 0.6 to make


class CountingPool:
    """Plays as long as it is told that a beginning takes, and remembers what it was asked for."""

    size, slots = 2, 16

    def __init__(self, beginning: float, length: int = 10**9) -> None:
        self.asked: list[tuple[int, int]] = []
        self.now, self._beginning, self._length = 0.0, beginning, length

    def configure(self, setup: object) -> None:
        """Take no time."""

    def play(self, job: Job, tasks: Sequence[Task]) -> Any:
        assert job.max_steps is not None
        self.asked.append((len(tasks), job.max_steps))
        lengths = np.full(len(tasks), min(job.max_steps, self._length))
        self.now += len(tasks) * self._beginning + 0.001 * lengths.sum()
        return SimpleNamespace(lengths=lengths)


@pytest.mark.parametrize(
    ("beginning", "count", "cuts"),
    [
        (0.0, 16, [2, 4, 8, 16, 32]),
        (0.3, 6, [8, 64, 500]),
        (10.0, 2, [8, 64, 500]),  # no more than needs be
    ],
)
def test_slow_environments_are_measured_on_few_episodes(
    make_trial: Callable[..., Trial],
    monkeypatch: pytest.MonkeyPatch,
    beginning: float,
    count: int,
    cuts: list[int],
) -> None:
    pool: Any = CountingPool(beginning)
    monkeypatch.setattr(plan.time, "perf_counter", lambda: pool.now)
    trial = make_trial("CartPole-v1", settings={"population_size": 16})
    pace = probe(trial.spec, pool)
    assert pool.asked == [(2, 1), (2, 1), *((count, cut) for cut in (1, 1, *cuts))]
    # CartPole's episodes end after 500 steps, so a beginning is a small part of them.
    assert pace.steps_per_second == pytest.approx(1 / (0.001 + beginning / 500))


def test_who_fails_is_named(make_trial: Callable[..., Trial]) -> None:
    with pytest.raises(TrainingError, match="^doubles:Raises-v0: RuntimeError: the simulator fell"):
        costs([make_trial("doubles:Raises-v0")], 1)


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
