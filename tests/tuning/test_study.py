"""A search with made-up scores: what it tries, prunes, stores and resumes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from fake_search import GRID, SEEDS, bowl, open_search, player
from optuna.storages.journal import JournalFileBackend
from scipy.stats import trim_mean

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Outcome
from esbench.grids.expand import expand
from esbench.grids.grid_file import parse_grid, read_grid
from esbench.grids.trial_spec import BudgetSpec
from esbench.store.outputs import only_holder
from esbench.tuning.study import RUNGS, Search, Study, at_rung, open_studies
from esbench.tuning.summary import draw_tuning, summarize, write_best


class KilledError(BaseException):
    """Stands for a SIGKILL: nothing after it is done."""


def searched(out: Path, count: int, **options: Any) -> Study:
    study = open_search(out, Search(SEEDS, **options))
    study.run(count, player())
    return study


def test_the_first_configuration_is_the_default_and_is_never_pruned(tmp_path: Path) -> None:
    def score(trial: Trial) -> float:
        settings: Any = trial.spec.algorithm.settings
        return -9.0 if settings.sigma == 0.02 else bowl(trial)

    study = open_search(tmp_path)
    study.run(12, player(score))
    first = study.store.configurations[0]
    specs = [trial.spec for trial in study.trials(first, RUNGS[-1])]
    assert specs == [study.spec.model_copy(update={"seed": seed}) for seed in SEEDS]
    assert (first.state, first.value, summarize(study).default_score) == ("complete", -9.0, -9.0)


def test_pruned_configurations_were_below_the_others_with_every_seed(
    tmp_path: Path, whole: Study
) -> None:
    configurations = whole.store.configurations
    pruned = [c for c in configurations if c.state == "pruned"]
    assert 2 <= len(pruned) == summarize(whole).pruned <= 10
    for one in pruned:
        rung = len(one.rungs) - 1
        others = [
            float(np.mean(c.rungs[rung]))
            for c in configurations[: 4 * (one.number // 4 + 1)]  # known when it was judged
            if c is not one and len(c.rungs) > rung
        ]
        assert max(one.rungs[rung]) < np.median(others)
        assert all(trial.is_done for trial in whole.trials(one, RUNGS[rung]))
    assert summarize(whole).env_steps < 1000 * len(SEEDS) * len(configurations)
    unpruned = searched(tmp_path, 8, rungs=RUNGS[-1:]).store.configurations
    assert {c.state for c in unpruned} == {"complete"}


def test_random_search_is_the_best_of_independent_trials(tmp_path: Path) -> None:
    """The oracle: every objective by SciPy from the function itself, and the largest of them."""
    study = searched(tmp_path, 10, sampler="random", rungs=RUNGS[-1:])
    values = []
    for one in study.store.configurations:
        scores = [bowl(trial) for trial in study.trials(one, RUNGS[-1])]
        values.append(float(trim_mean(scores, 0.25)))
    assert [c.value for c in study.store.configurations] == pytest.approx(values)
    best = summarize(study).best
    assert best is not None
    assert best.number == int(np.argmax(values))
    sigmas = [c.settings["sigma"] for c in study.store.configurations]
    assert len(set(sigmas)) == 10
    assert all(0.01 <= sigma <= 0.5 for sigma in sigmas)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A search that was not killed; TPE chooses the last two of its configurations."""
    return searched(tmp_path_factory.mktemp("whole"), 14)


@pytest.mark.parametrize("after", [3, 139])
def test_killed_at_any_write_of_the_storage_it_tries_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Study, after: int
) -> None:
    original, writes = JournalFileBackend.append_logs, itertools.count()

    def append(self: Any, logs: list[dict[str, Any]]) -> None:
        if next(writes) == after:
            raise KilledError
        original(self, logs)

    with monkeypatch.context() as patch:
        patch.setattr(JournalFileBackend, "append_logs", append)
        with pytest.raises(KilledError):
            searched(tmp_path, 14)
    assert searched(tmp_path, 14).store.configurations == whole.store.configurations


@pytest.mark.parametrize("storage", ["journal", "a.db", "sqlite:///a.db"])
def test_one_process_searches_and_another_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = parse_grid(GRID, "fake grid")
    (first,), (second,) = (
        open_studies(grid, "fake grid", Search(SEEDS), Path(out), storage) for out in "ab"
    )
    refused = []

    def play(trials: Sequence[Trial], title: str) -> list[Outcome]:
        with pytest.raises(UsageError, match=r"\Aanother process runs the search of [^\n]*\Z"):
            second.run(1, player())
        refused.append(title)
        return player()(trials, title)

    first.run(1, play)
    assert len(refused) == len(RUNGS)
    second.run(1, player())
    assert not [*tmp_path.rglob("*.lock")]


def test_a_storage_is_opened_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would create the same tables."""
    monkeypatch.setattr("esbench.store.outputs.PATIENCE_SECONDS", 0.01)
    with (
        only_holder(tmp_path / ".study.journal.lock", "here"),
        pytest.raises(UsageError, match="another process opens"),
    ):
        open_search(tmp_path)
    open_search(tmp_path)


@pytest.mark.parametrize("after", [0, 4, 13])
def test_killed_among_trials_it_repeats_none_of_them(tmp_path: Path, after: int) -> None:
    played: list[tuple[str, int]] = []

    def recorded(trial: Trial) -> float:
        if len(played) == after:
            played.append(("killed", 0))
            raise KilledError
        played.append((trial.name, trial.spec.budget.env_steps))
        return bowl(trial)

    study = open_search(tmp_path)
    with pytest.raises(KilledError):
        study.run(6, player(recorded))
    open_search(tmp_path).run(6, player(recorded))
    assert len(set(played)) == len(played)
    before = len(played)
    open_search(tmp_path).run(6, player(recorded))  # nothing is left
    assert len(played) == before


def test_a_failed_trial_makes_its_configuration_the_worst(tmp_path: Path) -> None:
    def score(trial: Trial) -> float | None:
        failing = trial.labels["algorithm"].endswith("#2") and trial.spec.seed == SEEDS[1]
        return None if failing else bowl(trial)

    study = open_search(tmp_path)
    study.run(12, player(score))  # TPE has to work with it, too
    failed = study.store.configurations[2]
    assert (failed.state, failed.value, len(failed.rungs)) == ("complete", -math.inf, 1)
    summary = summarize(study)
    assert summary.failed == 1
    assert summary.best is not None
    assert summary.best.number != 2


def test_settings_that_do_not_fit_together_are_the_worst_but_as_default_refused(
    tmp_path: Path,
) -> None:
    table = {"tune": {"openai_es": {"population_size": [7, 9]}}}  # odd, with antithetic pairs
    study = open_search(tmp_path, **table)
    study.run(3, player())
    first, *others = study.store.configurations
    assert first.value is not None
    assert first.value > -math.inf
    assert [(c.value, c.rungs) for c in others] == [(-math.inf, ())] * 2
    assert all("antithetic" in c.problem for c in others)
    problems = summarize(study).problems
    assert problems.total() == 2
    assert not any("configuration" in problem for problem in problems)
    assert all(path.stat().st_size for path in draw_tuning(summarize(study)))
    wrong = {"algorithms": {"openai_es": {"optimizer_settings": {"momentum": 0.5}}}}
    with pytest.raises(UsageError, match="momentum"):
        open_search(tmp_path / "wrong", **wrong).run(3, player())


def test_agents_are_judged_at_the_end_alone(tmp_path: Path) -> None:
    table = {
        "algorithms": {"climber": {"algorithm": "own_agents:Climber"}},
        "tune": {"climber": {"row_steps": [100, 200]}},
    }
    study = open_search(tmp_path, **table)
    study.run(6, player(lambda trial: float(trial.spec.seed)))
    assert {(c.state, len(c.rungs)) for c in study.store.configurations} == {("complete", 1)}
    trials = study.trials(study.store.configurations[0], RUNGS[-1])
    assert all(trial.is_done for trial in trials)


@pytest.mark.parametrize(
    ("changed", "table", "fact"),
    [
        ({"seeds": (7, 8, 9)}, {}, "seeds"),
        ({"sampler": "random"}, {}, "random"),
        ({"seed": 3}, {}, "sampler_seed"),
        ({}, {"budget": {"env_steps": 999}}, "999"),
        ({}, {"tune": {"openai_es": {"sigma": [0.1, 0.2]}}}, "space.sigma"),
    ],
)
def test_the_storage_of_another_search_is_refused(
    tmp_path: Path, changed: dict[str, Any], table: dict[str, Any], fact: str
) -> None:
    open_search(tmp_path)
    with pytest.raises(UsageError) as error:
        open_search(tmp_path, replace(Search(SEEDS), **changed), **table)
    assert fact in str(error.value)
    assert "\n" not in str(error.value)


def test_trials_without_their_storage_and_seeds_of_the_grid_are_refused(tmp_path: Path) -> None:
    searched(tmp_path, 1)
    (tmp_path / "study.journal").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"study\.journal"):
        open_search(tmp_path)
    assert not (tmp_path / "study.journal").exists()
    with pytest.raises(UsageError, match="101"):
        open_search(tmp_path / "new", seeds=[5, 101])
    grid = parse_grid({**GRID, "algorithms": {"snes": {"seeds": [7, 101]}}}, "grid")
    with pytest.raises(UsageError, match="7"):
        open_studies(grid, "grid", Search([7]), tmp_path / "new")


def test_optuna_reads_what_was_stored(whole: Study) -> None:
    backend = JournalFileBackend(str(whole.folder / "../../study.journal"))
    storage = optuna.storages.JournalStorage(backend)
    stored = optuna.load_study(study_name="esbench/Sphere-v0 openai_es", storage=storage)
    best = summarize(whole).best
    assert best is not None
    assert (stored.best_trial.number, stored.best_value) == (best.number, best.value)
    assert stored.best_params == best.settings


def test_the_best_settings_as_toml_are_those_of_the_best_trials(tmp_path: Path) -> None:
    table = {"tune": {"openai_es": {"optimizer": ["sgd"]}}}
    study = open_search(tmp_path, Search(SEEDS, seed=4), **table)
    study.run(6, player())
    summary = summarize(study)
    (path,) = write_best(summary)
    text = path.read_text()
    for fact in (str(SEEDS[0]), f"{summary.env_steps:,}", "0.01 to 0.5 (log)", "Optuna"):
        assert fact in text
    best = summary.best
    assert best is not None
    content, _ = read_grid(str(path))
    again = expand(parse_grid({**GRID, **content}, "best"), "best")[0].spec
    expected = study.trials(best, RUNGS[-1])[0].spec
    assert again.algorithm == expected.algorithm


def test_importances_name_the_settings_that_matter(whole: Study) -> None:
    shares = summarize(whole).importances
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["sigma"] + shares["learning_rate"] > 0.6


def test_a_rung_is_a_part_of_the_budget_rounded_up() -> None:
    budget = BudgetSpec(env_steps=1001, generations=3, target_return=5.0)
    part = at_rung(budget, Fraction(1, 4))
    assert (part.env_steps, part.generations, part.target_return) == (251, 1, 5.0)
    assert at_rung(BudgetSpec(env_steps=8), Fraction(1, 2)) == BudgetSpec(env_steps=4)
