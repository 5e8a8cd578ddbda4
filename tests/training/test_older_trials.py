"""Trials of an older esbench lack settings that there are by now: their defaults are meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Run
from test_extend import content, larger
from watchers import Silent

from esbench.errors import UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.seed_groups import cells
from esbench.store.trial_folder import TrialFolder
from esbench.training.run_grid import run_grid
from esbench.training.trials import Trial

Make = Callable[..., Trial]
NEWER = {"algorithm": ["shaping", "learning_rate_decay"], "policy": ["activation"]}
NEWER_ELSEWHERE = {"evaluation": ["center"], "environment": ["kwargs", "episode_seeds"]}


def make_older(trial: Trial) -> None:
    """Take settings out of all that a trial has on disk, as if they were not known then."""
    for path in (trial.folder.path / "trial.json", *trial.folder.path.glob("*/*.json")):
        table = json.loads(path.read_text(encoding="utf-8"))
        if "spec" in table:
            for part, names in NEWER.items():
                for name in names:
                    del table["spec"][part]["settings"][name]
            for part, names in NEWER_ELSEWHERE.items():
                for name in names:
                    del table["spec"][part][name]
            path.write_text(json.dumps(table), encoding="utf-8")


def test_a_trial_that_lacks_newer_settings_goes_on(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trial = make_trial()
    whole = replace(trial, folder=TrialFolder(tmp_path / "whole" / trial.folder.path.name))
    run_grid([trial], pool, Silent())
    run_grid([whole], pool, Silent())
    (trial.folder.path / "result.json").unlink()  # killed before it was scored
    make_older(trial)
    run_grid([trial], pool, Silent())
    assert content(trial) == content(whole)
    again = trial.folder.load_checkpoint()
    assert again is not None


def test_it_is_extended_and_its_earlier_policy_can_be_had(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trial = replace(make_trial(), keep=2)
    run_grid([trial], pool, Silent())
    make_older(trial)
    first = len(trial.folder.rows())
    extended, whole = larger(trial, 1000), larger(trial, 1000, tmp_path / "whole")
    run_grid([extended], pool, Silent())
    run_grid([whole], pool, Silent())
    assert content(extended) == content(whole)
    for generation in extended.folder.kept:
        assert extended.folder.load_checkpoint(generation) is not None
    assert first in extended.folder.kept


def test_other_values_than_the_defaults_are_another_trial(
    make_trial: Make, pool: WorkerPool
) -> None:
    trial = make_trial()
    run_grid([trial], pool, Silent())
    make_older(trial)
    other = make_trial(settings={"shaping": "nes"})
    with pytest.raises(UsageError, match=r'shaping was "centered", is now "nes"\. Nothing'):
        run_grid([other], pool, Silent())


def test_a_setting_that_is_gone_is_named(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial()
    run_grid([trial], pool, Silent())
    path = trial.folder.path / "trial.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    table["spec"]["algorithm"]["settings"]["temperature"] = 3
    path.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(UsageError, match=r"temperature \(was 3\) is gone\. Nothing was changed"):
        run_grid([trial], pool, Silent())


def test_beside_a_setting_that_is_gone_the_newer_ones_have_their_defaults(
    make_trial: Make, pool: WorkerPool
) -> None:
    trials = [make_trial(seed=seed) for seed in (0, 1)]
    run_grid(trials, pool, Silent())
    make_older(trials[0])
    path = trials[0].folder.path / "trial.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    table["spec"]["algorithm"]["settings"]["temperature"] = 3
    path.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(UsageError, match=r"trial: [^;]*temperature \(was 3\) is gone\. Nothing"):
        run_grid(trials, pool, Silent())
    differs = {cell.differs for cell in cells(trials[0].folder.path.parents[2])}
    assert differs == {(), ("algorithm.settings.temperature=3",)}


def test_a_folder_of_older_trials_alone_is_read(esbench: Run, make_trial: Make) -> None:
    trial = make_trial("CartPole-v1")
    with WorkerPool(1) as pool:
        run_grid([trial], pool, Silent())
    make_older(trial)
    root = str(trial.folder.path.parents[2])
    for command in ("table", "plot", "report", "efficiency", "diagnose", "verify"):
        arguments = ["--out", "drawn"] if command == "plot" else []
        arguments = ["--out", "page.html"] if command == "report" else arguments
        code, _, complaint = esbench(command, root, *arguments)
        assert code == 0, (command, complaint)


def test_older_and_newer_seeds_are_one_cell(make_trial: Make, pool: WorkerPool) -> None:
    trials = [make_trial(seed=seed) for seed in (0, 1)]
    run_grid(trials, pool, Silent())
    make_older(trials[0])
    (cell,) = cells(trials[0].folder.path.parents[2])
    assert len(cell.trials) == 2
    assert cell.algorithm == "openai_es"
    assert [TrialSpec(**one["spec"]) for one in cell.descriptions] == [t.spec for t in trials]
    other = make_trial(seed=2, settings={"sigma": 0.2})
    run_grid([other], pool, Silent())
    assert sorted(len(cell.trials) for cell in cells(trials[0].folder.path.parents[2])) == [1, 2]
