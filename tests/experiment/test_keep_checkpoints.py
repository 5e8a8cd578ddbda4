"""A kept checkpoint equals the final one of a run that stops at its generation."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_trials import make_records
from searches import arrays_in
from trainers import interrupted
from watchers import run

from esbench.core.errors import UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.experiment.trials import Trial
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
BUDGET = 600
SETTINGS = {"population_size": 4, "optimizer": "clipup", "learning_rate": 0.1}


@pytest.fixture
def trial(make_trial: Make, pool: WorkerPool) -> Trial:
    """A finished trial with four checkpoints, including the last one."""
    made = replace(make_trial(budget={"env_steps": BUDGET}, settings=SETTINGS), keep=4)
    run(pool, made)
    return made


def test_they_are_the_first_beyond_each_part_of_the_budget(trial: Trial) -> None:
    steps = {row.generation: row.env_steps for row in trial.folder.records()}
    wanted = [
        min(generation for generation, spent in steps.items() if spent >= BUDGET * part / 4)
        for part in (1, 2, 3)
    ]
    assert trial.folder.kept == wanted
    assert len(set(wanted)) == 3
    assert max(wanted) < max(steps)


def test_a_long_generation_is_kept_once(make_trial: Make) -> None:
    trial = replace(make_trial(budget={"env_steps": 100}), keep=10)
    assert kept_after(trial, 9, 65, 69, 70, 80, 100) == [65, 70, 80]  # 100 is the end
    assert kept_after(replace(trial, keep=1), 9, 65, 100) == []
    assert kept_after(trial, 55) == [55]
    generations = {"env_steps": 1_000_000, "generations": 6}  # have parts too
    trial = replace(make_trial(budget=generations), keep=3)
    assert kept_after(trial, *range(10, 70, 10)) == [20, 40]


def kept_after(trial: Trial, *env_steps: int) -> list[int]:
    """The steps at which a checkpoint is kept, one generation per number."""
    (made,) = make_records([0.0])
    rows = [
        replace(made, generation=generation, env_steps=spent)
        for generation, spent in enumerate(env_steps, start=1)
    ]
    numbers = range(1, len(rows) + 1)
    return [rows[n - 1].env_steps for n in numbers if trial.keeps(rows[:n])]


def test_each_is_what_a_run_ends_with_that_stops_there(
    trial: Trial, make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    for generation in trial.folder.kept:
        budget = {"env_steps": BUDGET, "generations": generation}
        folder = TrialFolder(tmp_path / f"to-{generation}")
        short = replace(make_trial(budget=budget, settings=SETTINGS), folder=folder)
        run(pool, short)
        assert arrays(trial.folder, generation) == arrays(folder, None)
        score = evaluate_trial(trial.folder.path, pool, generation=generation)
        assert (score.generation, score.recorded) == (generation, None)
        assert score.score.mean == folder.result()["score"]


def test_an_interrupt_within_a_generation_changes_none(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    validation = {"start": 0, "interval": 1, "episodes": 8}
    evaluation = {"episodes": 4, "validation": validation}
    made = make_trial(budget={"env_steps": BUDGET}, settings=SETTINGS, evaluation=evaluation)
    whole = replace(made, keep=4)
    run(pool, whole)
    for moment in range(3, 10):  # one to three plays per generation
        trial = replace(whole, folder=TrialFolder(tmp_path / f"{moment}"))
        with interrupted(moment):
            run(pool, trial)
        run(pool, trial)
        assert trial.folder.kept == whole.folder.kept
        for generation in trial.folder.kept:
            kept, expected = (one.folder.load_checkpoint(generation) for one in (trial, whole))
            assert kept is not None
            assert expected is not None
            assert kept["progress"]["env_steps"] == expected["progress"]["env_steps"]
            assert "begun_at" not in kept


@pytest.mark.parametrize("kept_it", [False, True])
def test_a_run_that_was_killed_while_it_kept_one_keeps_the_same(
    trial: Trial, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_it: bool
) -> None:
    killed, keep = replace(trial, folder=TrialFolder(tmp_path / "killed")), TrialFolder.keep
    second = trial.folder.kept[1]

    def kill(folder: TrialFolder, state: dict[str, Any]) -> None:
        if state["progress"]["generation"] < second:
            keep(folder, state)
            return
        if kept_it:
            keep(folder, state)
        monkeypatch.setattr(TrialFolder, "checkpoint", lambda *_: None)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrialFolder, "keep", kill)
        with pytest.raises(KeyboardInterrupt):
            run(pool, killed)
    for generation in killed.folder.kept:
        assert arrays(killed.folder, generation) == arrays(trial.folder, generation)
    assert (second in killed.folder.kept) == kept_it
    monkeypatch.undo()
    run(pool, killed)
    assert killed.folder.kept == trial.folder.kept
    for generation in trial.folder.kept:
        assert arrays(killed.folder, generation) == arrays(trial.folder, generation)


def test_one_is_selected_by_its_generation(trial: Trial, pool: WorkerPool) -> None:
    path, result, first = trial.folder.path, trial.folder.result(), trial.folder.kept[0]
    last = result["generations"]
    for generation in (None, last):
        stored = evaluate_trial(path, pool, generation=generation)
        assert stored.recorded == stored.score.mean == result["score"]
        assert stored.generation == last
    more = evaluate_trial(path, pool, 6)
    assert more.recorded is None
    assert list(more.score.returns[:4]) == list(stored.score.returns)
    known = re.escape(str([*trial.folder.kept, last]))
    with pytest.raises(UsageError, match=f"generation 999; expected one of {known}"):
        evaluate_trial(path, pool, generation=999)
    (path / "checkpoint" / "state.json").unlink()  # the latest is not needed
    assert evaluate_trial(path, pool, generation=first).generation == first


def arrays(folder: TrialFolder, generation: int | None) -> list[tuple[object, ...]]:
    """All arrays of a checkpoint as comparable values."""
    found = list(arrays_in(folder.load_checkpoint(generation) or {}))
    assert len(found) > 1
    return [(a.dtype, a.shape, a.tobytes()) for a in found]
