"""Trials side by side: the same results, and nothing is lost when they end early."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from fake_trials import make_records

from esbench.errors import UsageError
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.run_grid import Report, run_grid
from esbench.training.run_trial import Outcome
from esbench.training.trial_processes import _advance, _give, _store_cause, _TrialProcess
from esbench.training.trials import Trial

Make = Callable[..., Trial]
ENDLESS: dict[str, Any] = {"budget": {"env_steps": 10**9}}


class Watcher:
    """Stores all events, and calls a function after every generation."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.events: dict[str, list[str]] = {}
        self.deaths: list[str] = []
        self._then = then

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        self.events[trial.name] = [f"from {resumed_at}"]

    def generation_done(self, trial: Trial, record: Any) -> None:
        self.events[trial.name].append(f"{record.generation}")
        self._then()

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        self.events[trial.name].append(f"scored on {episodes}")

    def trial_died(self, trial: Trial, cause: str) -> None:
        self.deaths.append(cause)

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        self.events.setdefault(trial.name, []).append(outcome)


def run(watcher: Watcher, *trials: Trial) -> Report:
    with WorkerPool(2, slots=4) as pool:
        return run_grid(trials, pool, watcher, at_once=2)


def kill_a_process() -> None:
    process, *_ = processes()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


def processes() -> list[Any]:
    return [child for child in multiprocessing.active_children() if not child.daemon]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_the_results_are_those_of_one_after_the_other(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trials = [make_trial(seed=seed) for seed in range(3)]
    alone = Watcher()
    run_grid(trials, pool, alone)
    expected = [(t.folder.records(), t.folder.result()) for t in trials]
    for trial in trials:
        (tmp_path / "before").mkdir(exist_ok=True)
        trial.folder.path.rename(tmp_path / "before" / trial.folder.path.name)
    watcher = Watcher()
    report = run(watcher, *(make_trial(seed=seed) for seed in range(3)))
    assert report.count("done") == 3
    assert watcher.events == alone.events
    for trial, (records, result) in zip(trials, expected, strict=True):
        assert [r.digest for r in trial.folder.records()] == [r.digest for r in records]
        assert trial.folder.result()["returns"] == result["returns"]


def test_a_trial_that_fails_or_is_run_elsewhere_stops_no_other(make_trial: Make) -> None:
    bad, held = make_trial("doubles:Raises-v0"), make_trial(seed=1)
    good, done = make_trial(seed=2), make_trial(seed=3)
    with WorkerPool(1, slots=4) as single:
        run_grid([done], single, Watcher())
    watcher = Watcher()
    with held.folder.locked():
        report = run(watcher, bad, held, good, done)
    assert report.outcomes == {
        "failed": [bad],
        "elsewhere": [held],
        "done": [good],
        "skipped": [done],
    }
    assert watcher.events[bad.name][-1] == "failed"
    assert "Traceback" in bad.folder.error()
    workers = [trial.folder.description()["workers"] for trial in (good, done)]
    assert workers == [1, 1]


def test_what_cannot_be_served_ends_the_grid_in_one_sentence(make_trial: Make) -> None:
    trials = [make_trial(seed=seed, **ENDLESS) for seed in range(2)]
    path = trials[1].folder.path
    path.parent.mkdir(parents=True)
    path.write_text("a file")
    with pytest.raises(UsageError, match=r"seed-1"):
        run(Watcher(), *trials)
    assert not processes()


def test_an_interrupt_saves_every_trial(make_trial: Make) -> None:
    trials = [make_trial(seed=seed, **ENDLESS) for seed in range(2)]
    watcher = Watcher(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(watcher, *trials)
    assert not processes()
    begun = [trial for trial in trials if trial.name in watcher.events]
    assert begun
    for trial in begun:
        assert trial.folder.load_checkpoint() is not None
        assert trial.folder.status == "partial"


def test_a_trial_whose_process_is_killed_goes_on_in_another(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trials = [make_trial(seed=seed) for seed in range(2)]
    run_grid(trials, pool, Watcher())
    expected = [[record.digest for record in trial.folder.records()] for trial in trials]
    for trial in trials:
        trial.folder.path.rename(tmp_path / trial.folder.path.name)
    deadly = iter([kill_a_process])
    watcher = Watcher(lambda: next(deadly, lambda: None)())
    report = run(watcher, *trials)
    assert watcher.deaths == ["signal SIGKILL (out of memory?)"]
    assert report.outcomes["done"] in (trials, trials[::-1])
    assert [[record.digest for record in t.folder.records()] for t in trials] == expected
    assert not processes()


def test_deaths_are_forgotten_only_by_a_generation_that_is_new(make_trial: Make) -> None:
    first, *_ = make_records([1.0, 2.0])
    process = _TrialProcess(cast("Any", None), make_trial(), deaths=2)
    _advance(process, first)
    assert (process.generation, process.deaths) == (1, 0)
    process.deaths = 2
    _advance(process, first)  # once more, in the next process
    assert process.deaths == 2
    _give(process, deque())
    assert (process.trial, process.generation, process.deaths) == (None, 0, 0)


def test_a_death_before_anything_was_written_is_kept_too(make_trial: Make) -> None:
    trial = make_trial()
    words = _store_cause(trial, 3, "exit code 1")
    assert trial.folder.error() == f"{words}\n"


def test_a_trial_whose_processes_are_killed_again_and_again_fails_alone(make_trial: Make) -> None:
    doomed, other = make_trial("doubles:KillsTheTrainer-v0", **ENDLESS), make_trial(seed=1)
    watcher = Watcher()
    report = run(watcher, doomed, other)
    assert report.outcomes == {"failed": [doomed], "done": [other], "skipped": [], "elsewhere": []}
    assert len(watcher.deaths) == 2  # the third is its end
    assert "died 3 times" in doomed.folder.error()
    assert "SIGKILL" in doomed.folder.error()
    assert not processes()
