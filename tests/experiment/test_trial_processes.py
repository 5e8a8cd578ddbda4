import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_trials import make_records
from watchers import Watcher

from esbench.core.errors import UsageError, UserCodeError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment import trial_processes
from esbench.experiment import watchers as limits_module
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trial_processes import TrialProcesses, UnfinishedTrial
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import UNLIMITED, Clock, Limits, Outcome

Make = Callable[..., Trial]
ENDLESS: dict[str, Any] = {"budget": {"env_steps": 10**9}}


def run(watcher: Watcher, *trials: Trial) -> list[Outcome]:
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
    trained = [trial for trial in trials if "1" in watcher.events.get(trial.name, [])]
    assert trained
    for trial in trained:
        assert trial.folder.load_checkpoint() is not None
        assert trial.folder.status == "partial"


def test_the_results_are_those_of_one_after_the_other_also_if_a_process_is_killed(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trials, alone = [make_trial(seed=seed) for seed in range(3)], Watcher()
    run_grid(trials, pool, alone)
    expected = [(trial.folder.records(), trial.folder.result()) for trial in trials]
    for trial in trials:
        trial.folder.path.rename(tmp_path / trial.folder.path.name)
    deadly = iter([kill_a_process])
    watcher = Watcher(lambda: next(deadly, lambda: None)())
    report = run(watcher, *trials)
    assert watcher.deaths == ["signal SIGKILL (out of memory?)"]
    assert report.count("done") == 3
    whole = {name: seen for name, seen in watcher.events.items() if seen[0] == "from 0"}
    assert len(whole) >= 2
    assert whole.items() <= alone.events.items()
    for trial, (records, result) in zip(trials, expected, strict=True):
        assert [r.digest for r in trial.folder.records()] == [r.digest for r in records]
        assert trial.folder.result()["returns"] == result["returns"]
    assert not processes()


def test_user_code_errors_that_kills_its_process_fails_its_trial_alone(
    make_trial: Make, pool: WorkerPool
) -> None:
    bad, good = make_trial("hostile_code:Constructor-kill-v0"), make_trial()
    watcher = Watcher()
    assert run_grid([bad, good], pool, watcher, apart=True) == ["failed", "done"]
    assert len(watcher.deaths) == 2
    assert "SIGKILL" in bad.folder.error()
    assert bad.folder.status == "failed"
    assert not processes()


@pytest.mark.parametrize(
    "limits", [Limits(trial=1.5), Limits(episode=1.5)], ids=["trial", "episode"]
)
def test_a_trial_that_hangs_fails_after_a_limit(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.setattr(limits_module, "HINT_SECONDS", 0.0)
    trial, watcher = make_trial("hostile_code:Step-sleep-v0"), Watcher()
    assert run_grid([trial], pool, watcher, limits=limits) == ["failed"]
    assert "1.5 s" in trial.folder.error()
    assert set(watcher.silent) == {trial.name}
    assert not watcher.deaths
    assert not processes()


def test_limits_need_callbacks_with_names(make_trial: Make, pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match="expected its name"):
        run_grid([make_trial()], pool, Watcher(), [lambda _: None], limits=Limits(trial=1.0))


def noisy_pool() -> WorkerPool:
    pool = WorkerPool(1, slots=4)
    start = pool.start
    pool.start = lambda: (pool.notice("a node is gone"), start())  # type: ignore[method-assign]
    return pool


def test_the_notices_of_an_engine_in_another_process_arrive(make_trial: Make) -> None:
    watcher, told = Watcher(), list[str]()
    with TrialProcesses(1, noisy_pool, notice=told.append) as processes:
        processes.check([make_trial()], watcher)
        processes.run([make_trial()], watcher, watcher.trial_ended)
    assert [outcome for outcome, _ in watcher.ends] == ["done"]
    assert set(told) == {"a node is gone"}


def no_engine() -> WorkerPool:
    raise UsageError("node 7 differs")


def test_an_engine_that_cannot_be_opened_in_another_process_ends_the_grid(
    make_trial: Make,
) -> None:
    watcher = Watcher()
    told = pytest.raises(UsageError, match="node 7 differs")
    with TrialProcesses(1, no_engine) as processes, told:
        processes.check([make_trial()], watcher)
    with TrialProcesses(1, no_engine) as processes, told:
        processes.run([make_trial()], watcher, watcher.trial_ended)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "5"])
def test_a_limit_is_a_positive_number(seconds: float) -> None:
    for name in ("episode", "trial"):
        with pytest.raises(UsageError, match=f"{name}_timeout"):
            Limits(**{name: seconds})


def test_a_limit_is_exceeded_when_it_is_reached() -> None:
    limits = Limits(episode=2.0, trial=10.0)
    assert limits.any
    assert limits.exceeded(silent=1.9, total=9.9) == ""
    assert "2 s" in limits.exceeded(silent=2.0, total=9.9)
    assert "10 s" in limits.exceeded(silent=1.0, total=10.0)
    assert not UNLIMITED.any
    assert UNLIMITED.exceeded(1e9, 1e9) == ""


def test_the_clock_of_a_trial_stops_between_its_processes(
    make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, watcher, trial = [100.0], Watcher(), make_trial()
    monkeypatch.setattr(limits_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clock = Clock()

    def look(**limits: float) -> bool:
        return bool(clock.check(trial, Limits(**limits), watcher))

    now[0] += 9
    assert (look(episode=9), look(trial=9), look(episode=10, trial=10)) == (True, True, False)
    clock.note_progress()
    assert (look(episode=1), look(trial=9)) == (False, True)
    clock.stop()
    now[0] += 1000
    clock.start()
    assert (look(episode=1), look(trial=9), look(trial=10)) == (False, True, False)
    now[0] += 1
    assert (look(episode=1), look(trial=10)) == (True, True)
    assert not watcher.silent
    now[0] += 60
    look(), look()
    assert watcher.silent == [trial.name]


def test_an_error_of_own_code_keeps_its_class_between_processes() -> None:
    error = trial_processes._sendable(UserCodeError("it fell over"))
    assert (type(error), str(error)) == (UserCodeError, "it fell over")


def test_deaths_are_forgotten_only_by_a_generation_that_is_new(make_trial: Make) -> None:
    first, *_ = make_records([1.0, 2.0])
    run = UnfinishedTrial(make_trial(), deaths=2)
    run.advance(first)
    assert (run.generation, run.deaths) == (1, 0)
    run.deaths = 2
    run.advance(first)  # once more, in the next process
    assert run.deaths == 2


def test_a_death_before_anything_was_written_is_kept_too(make_trial: Make) -> None:
    trial = make_trial()
    words = UnfinishedTrial(trial, deaths=3).store_cause("exit code 1")
    assert trial.folder.error() == f"{words}\n"


def test_a_trial_that_fails_or_is_run_elsewhere_stops_no_other(make_trial: Make) -> None:
    doomed, bad = (
        make_trial("doubles:KillsTheTrainer-v0", **ENDLESS),
        make_trial("doubles:Raises-v0"),
    )
    held, good, done = (make_trial(seed=seed) for seed in (1, 2, 3))
    with WorkerPool(1, slots=4) as single:
        run_grid([done], single, Watcher())
    watcher = Watcher()
    with held.folder.locked():
        run(watcher, doomed, bad, held, good, done)
    assert {name: events[-1] for name, events in watcher.events.items()} == {
        doomed.name: "failed",
        bad.name: "failed",
        held.name: "elsewhere",
        good.name: "done",
        done.name: "skipped",
    }
    assert len(watcher.deaths) == 2  # the third is the end of the doomed
    assert "died 3 times" in doomed.folder.error()
    assert "SIGKILL" in doomed.folder.error()
    assert "Traceback" in bad.folder.error()
    workers = [trial.folder.description()["workers"] for trial in (good, done)]
    assert workers == [1, 1]
    assert not processes()
