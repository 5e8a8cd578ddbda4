"""A gate on the area under the learning curve: slower learning that reaches the same score."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from fake_trials import edit, make_records, make_trials, write_runs, write_trial

from esbench.core.errors import UsageError
from esbench.publish.gate import render_check
from esbench.publish.gate.check import check
from esbench.publish.tables.comparison_table import compare_sides, outcome
from esbench.publish.tables.score_table import score_table
from esbench.results.baselines import freeze
from esbench.results.run import read_run
from esbench.results.statistics.judgment import GateRules, Verdict
from esbench.store.trial_folder import TrialFolder

SCORE = 500.0
GENERATIONS = 10  # of 100 steps: the budget


def rising(time: float, seed: int, seeds: int = 8) -> list[list[float]]:
    """Returns that approach the score, one list per seed; ``time`` is in generations."""
    noise = np.random.default_rng(seed).normal(0, 5, (seeds, GENERATIONS))
    curve = SCORE * (1 - np.exp(-np.arange(GENERATIONS) / time))
    return [list(row) for row in curve + noise]


def one_trial(root: Path, returns: list[float], score: float, **grid: object) -> TrialFolder:
    (trial,) = make_trials(root, seeds=[0], **grid)
    write_trial(trial, make_records(returns), score)
    return trial.folder


@pytest.mark.parametrize(
    ("returns", "score", "area"),
    [
        # The budget is 1,000 steps and a generation has 100.
        ([float(n) for n in range(10)], 9.0, sum(range(10)) / 10),
        ([float(n) for n in range(12)], 99.0, sum(range(10)) / 10),  # none beyond the budget
        ([10.0, 20.0], 50.0, (10 + 20 + 8 * 50) / 10),  # stopped early: the score holds
        ([10.0, math.nan] + [20.0] * 8, 20.0, None),
        ([10.0] * 10, math.nan, None),
    ],
)
def test_the_area_of_a_run_by_hand(
    tmp_path: Path, returns: list[float], score: float, area: float | None
) -> None:
    found = read_run(one_trial(tmp_path, returns, score)).scored("area")
    assert found == (None if area is None else pytest.approx(area))


def test_the_budget_of_a_run_of_few_generations_is_what_it_has_spent(tmp_path: Path) -> None:
    budget = {"env_steps": 1_000_000, "generations": 10}
    folder = one_trial(tmp_path, [float(n) for n in range(10)], 500.0, budget=budget)
    assert read_run(folder).scored("area") == pytest.approx(4.5)


def test_an_agent_and_a_run_without_evaluations_have_no_area(tmp_path: Path) -> None:
    plain = one_trial(tmp_path / "a", [math.nan] * 3, 1.0, evaluation={"center": False})
    agent = one_trial(tmp_path / "b", [1.0] * 10, 1.0, algorithms=["ars"])
    one_trial(tmp_path / "b", [1.0] * 10, 1.0, algorithms=["snes"])
    edit(agent.path, "trial.json", lambda content: content["spec"].update(policy=None))
    for folder in (plain, agent):
        assert read_run(folder).score == 1.0
        with pytest.raises(UsageError, match=r"evaluation\.center"):
            read_run(folder).scored("area")
    search, other = score_table(tmp_path / "b", statistic="area")
    assert (search.algorithm, search.scores) == ("snes", (1.0,))
    assert (other.algorithm, other.scores, other.diverged) == ("ars", (), 0)


def test_a_run_without_an_area_is_counted_and_named(tmp_path: Path) -> None:
    broken = [1.0, math.nan, *[1.0] * 8]
    write_runs(tmp_path / "one", [broken, *[[2.0] * 10] * 2], 100.0)
    (row,) = score_table(tmp_path / "one", statistic="area")
    assert (row.diverged, sorted(row.scores)) == (1, [2.0, 2.0, 2.0])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    sides = compare_sides(str(tmp_path / "one"), str(tmp_path / "two"), statistic="area")
    assert "2 runs diverged" in " ".join(sides.notes)
    write_runs(tmp_path / "all", [broken] * 3, 100.0)
    with pytest.raises(UsageError, match="no seed has a finite area"):
        freeze(tmp_path / "all", "", "area")


def test_slower_learning_passes_by_its_mean_and_fails_by_its_area(tmp_path: Path) -> None:
    for name, time, seed in (("base", 2.0, 0), ("again", 2.0, 1), ("slow", 4.0, 2)):
        write_runs(tmp_path / name, rising(time, seed), SCORE)
    by_mean, by_area = (freeze(tmp_path / "base", "", s) for s in ("mean", "area"))

    def verdict(name: str, baseline: object) -> Verdict:
        (cell,) = check(tmp_path / name, baseline, GateRules()).cells
        return cell.verdict

    assert verdict("slow", by_mean) is Verdict.NO_WORSE
    assert verdict("slow", by_area) is Verdict.REGRESSION
    assert verdict("again", by_area) is Verdict.NO_WORSE
    report = check(tmp_path / "slow", by_area, GateRules())
    assert render_check.JUDGED_BY["area"] in render_check.notes(report)
    (cell,) = json.loads(render_check.as_json(report))["cells"]
    assert cell["episode_statistic"] == "area"
    np.testing.assert_allclose(
        report.cells[0].baseline_scores, [np.mean(row) for row in rising(2.0, 0)]
    )


def test_tables_and_comparisons_of_areas(tmp_path: Path, esbench: Run) -> None:
    for name, time in (("openai_es", 2.0), ("snes", 4.0)):
        write_runs(tmp_path, rising(time, 0), SCORE, algorithms={name: {}})
    first, second = score_table(tmp_path, statistic="area")
    assert (first.name, first.standing, second.standing) == ("openai_es", "best", "")
    assert first.scores == pytest.approx([np.mean(row) for row in rising(2.0, 0)])
    assert "better" in outcome(compare_sides("openai_es", "snes", tmp_path, "area"))
    for words in (
        ("table", str(tmp_path)),
        ("compare", "openai_es", "snes", "--in", str(tmp_path)),
    ):
        code, out, err = esbench(*words, "--statistic", "area")
        assert (code, err) == (0, "")
        assert "learning curve" in " ".join(out.split())
