import csv
import math
from collections.abc import Callable
from pathlib import Path

import fake_trials
import numpy as np
import pytest
from fake_trials import make_records, make_trials, write_trial

import esbench
from esbench.core.errors import UsageError
from esbench.publish.figures.environment_charts import learning_charts
from esbench.publish.figures.style import cell_styles
from esbench.publish.tables.efficiency_table import COLUMNS, efficiency_table, parse_targets, sheet
from esbench.publish.tables.render_table import as_csv, records
from esbench.publish.tables.score_table import score_table
from esbench.results.sources import read_folder
from esbench.results.statistics.curves import share_interval
from esbench.results.statistics.estimates import bootstrap_interval
from esbench.results.statistics.significance import Estimate


@pytest.fixture(autouse=True)
def _frozen_scores_of_cartpole_alone(freeze: Callable[..., None]) -> None:
    freeze("CartPole-v1", 20.0, 120.0)


def write_runs(root: Path, runs: list[list[float]], score: float = 0.0, **grid: object) -> None:
    """Write a done trial for each list of returns: 100 steps, 10 episodes, 1 CPU second a row."""
    grid.setdefault("budget", {"env_steps": 400})
    fake_trials.write_runs(root, runs, score, **grid)


def test_a_row_of_four_runs_by_hand(tmp_path: Path) -> None:
    runs = [
        [120.0, 120.0, 0.0, 0.0],  # the mean of two is 120 before the second update: 100 steps
        [20.0, 120.0, 120.0, 0.0],  # 200 steps
        [20.0, 120.0, 20.0, 120.0],  # never
        [20.0, 20.0, math.nan, 200.0],  # never: one return of two is missing
    ]
    write_runs(tmp_path / "run", runs)
    (row,) = efficiency_table(tmp_path / "run", {}, window=2)
    low, high = share_interval(2, 4)
    assert row.target == 120
    assert (row.reached, row.runs, row.share) == (2, 4, Estimate(0.5, low, high))
    assert row.costs == {"env_steps": 200, "episodes": 20, "cpu_time_s": 2, "wall_time_s": 1}
    assert row.expected_env_steps == (100 + 200 + 400 + 400) / 2
    assert row.area_env_steps == 400
    # The fourth run counts as random actions, and the IQM of four leaves out the ends.
    assert row.cell.score == (60 + 65) / 2
    assert row.diverged == 1
    assert any("diverged" in note for note in sheet([row]).notes)
    (by_area,) = score_table(tmp_path / "run", statistic="area")
    assert row.area == pytest.approx(by_area.normalized(by_area.score))
    assert by_area.diverged == 1


def test_the_area_is_normalized_by_frozen_scores_up_to_a_budget_all_have_played(
    tmp_path: Path,
) -> None:
    write_runs(tmp_path / "a", [[20.0, 120.0, 70.0, 70.0], [20.0] * 4, [120.0] * 4])
    short = {"algorithms": {"random_search": {}}, "budget": {"env_steps": 200}}
    write_runs(tmp_path / "b", [[70.0, 70.0]], **short)
    first, second = sorted(efficiency_table(tmp_path, {}), key=lambda row: row.cell.algorithm)
    assert first.area_env_steps == second.area_env_steps == 200
    assert (first.cell.score, second.cell.score) == ((70 + 20 + 120) / 3, 70)
    assert first.area == pytest.approx((0.5 + 0.0 + 1.0) / 3)
    interval = [float(end) for end in bootstrap_interval([0.5, 0.0, 1.0])]
    assert [*first.area_interval] == pytest.approx(interval)
    assert second.area == 0.5
    assert math.isnan(second.area_interval[0])


def test_the_score_fills_the_area_of_a_run_that_ended_before_its_budget(tmp_path: Path) -> None:
    budget = {"env_steps": 400, "target_return": 120.0, "target_window": 1}
    write_runs(tmp_path / "fast", [[20.0, 120.0]] * 3, 120.0, budget=budget)
    slow = {"algorithms": {"snes": {}}, "budget": budget}
    write_runs(tmp_path / "slow", [[45.0] * 4] * 3, 45.0, **slow)
    rows = {row.cell.algorithm: row for row in efficiency_table(tmp_path, {})}
    by_area = score_table(tmp_path, statistic="area")
    assert {row.algorithm: row.normalized(row.score) for row in by_area} == {
        name: pytest.approx(row.area) for name, row in rows.items()
    }
    assert rows["openai_es"].area == pytest.approx(0.75)
    assert rows["openai_es"].area_env_steps == 400
    assert rows["openai_es"].reached == 3  # with the window that has stopped the runs
    write_runs(tmp_path / "long", [[45.0] * 4] * 3, 45.0, algorithms={"ars": {}})
    found = efficiency_table(tmp_path, {"": 120.0})
    assert sorted(row.window for row in found) == [1, 1, 5]
    assert sum("at which training stopped" in note for note in sheet(found).notes) == 1


@pytest.mark.parametrize(
    ("returns", "score", "center", "cost"),
    [
        (20.0, 121.0, True, 400),  # reached by the final score, after the whole run
        (math.nan, 120.0, False, 400),  # without evaluations only the final score counts
        (120.0, 0.0, True, 0),  # reached from the start
    ],
)
def test_the_target_is_reached_by_a_return_or_by_the_final_score(
    tmp_path: Path, returns: float, score: float, center: bool, cost: float
) -> None:
    write_runs(tmp_path / "run", [[returns] * 4] * 2, score, evaluation={"center": center})
    (row,) = efficiency_table(tmp_path / "run", {}, window=1)
    assert (row.reached, row.costs["env_steps"], row.expected_env_steps) == (2, cost, cost)
    assert math.isnan(row.share.low)  # of two runs
    assert any("was not evaluated" in note for note in sheet([row]).notes) != center


def test_no_run_that_reaches_the_target_has_no_time(tmp_path: Path) -> None:
    write_runs(tmp_path / "run", [[20.0] * 4] * 3)
    (row,) = efficiency_table(tmp_path / "run", {})
    assert (row.reached, row.runs, row.share.value) == (0, 3, 0)
    assert row.costs["env_steps"] == row.expected_env_steps == math.inf
    cells = ["CartPole-v1", "openai_es", "120.0", "0 of 3", "[0.00, 0.56]", "-", "-", "-", "-"]
    assert sheet([row]).body[0][:-1] == cells
    header, texts = csv.reader(as_csv(records(COLUMNS, [row])).splitlines())
    assert dict(zip(header, texts, strict=True))["env_steps"] == "inf"


def test_unfinished_trials_are_left_out(tmp_path: Path) -> None:
    fast, slow, partial, empty = make_trials(tmp_path, seeds=[*range(4)], budget={"env_steps": 400})
    write_trial(empty)
    (none,) = efficiency_table(tmp_path, {})
    assert (none.reached, none.runs, none.cell.unfinished) == (0, 0, 1)
    assert "0 of 0" in sheet([none]).body[0]
    write_trial(fast, make_records([20.0, 120.0, 120.0, 120.0]), 0.0)
    write_trial(slow, make_records([20.0, 20.0, 20.0, 120.0]), 0.0)
    write_trial(partial, make_records([120.0, 120.0]))
    (row,) = efficiency_table(tmp_path, {}, window=1)
    assert (row.reached, row.runs, row.cell.unfinished) == (2, 2, 2)
    assert row.expected_env_steps == (100 + 300) / 2
    assert row.area == pytest.approx((0.75 + 0.25) / 2)


def test_targets_come_from_the_option_first_and_may_be_missing(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1"):
        write_runs(tmp_path / "run" / name, [[20.0] * 4] * 3, environments=[name])
    targets = parse_targets(["Acrobot-v1=-1e2", "7"])
    rows = efficiency_table(tmp_path / "run", targets)
    assert [row.target for row in rows] == [-100, 7, 7]
    rows = efficiency_table(tmp_path / "run", parse_targets(["Acrobot-v1=-100"]))
    assert [row.target for row in rows[:2]] == [-100, 120]
    without = rows[2]
    assert without.cell.environment == "Pendulum-v1"
    assert (without.runs, without.cell.score) == (3, 20)
    assert math.isnan(without.target)
    assert math.isnan(without.costs["env_steps"])
    table = sheet(rows)
    assert list(table.body[2][2:]) == ["-"] * 8
    assert any("--target Pendulum-v1=SCORE" in note for note in table.notes)
    frame = esbench.efficiency(tmp_path / "run")
    assert frame["reached"].isna().tolist() == [True, False, True]
    frame = esbench.efficiency(tmp_path / "run", target=-100)
    assert (frame["target"].tolist(), frame["reached"].dtype) == ([-100] * 3, np.dtype(int))


@pytest.mark.parametrize("limit", [None, [[0, 50], [200, 100]]])
def test_cut_training_episodes_are_named_in_table_and_figure(
    tmp_path: Path, limit: list[list[int]] | None
) -> None:
    table = {} if limit is None else {"max_episode_steps": limit}
    write_runs(tmp_path, [[50.0] * 4] * 3, environment={"CartPole-v1": table})
    rows = efficiency_table(tmp_path, {})
    assert [row.cell.cuts_episodes for row in rows] == [limit is not None]
    assert any("max_episode_steps" in note for note in sheet(rows).notes) == (limit is not None)
    found = read_folder(tmp_path)
    panels, _ = learning_charts(found, cell_styles(found))
    assert ("cut" in panels["steps"].y_label) == (limit is not None)


def test_an_agent_whose_first_policy_is_not_evaluated_has_no_area(tmp_path: Path) -> None:
    curves = {"slow": [20.0, 20.0, 20.0, 120.0], "fast": [120.0] * 4, "never": [20.0] * 4}
    for name, curve in {**curves, "climber": [20.0, 120.0, 120.0, 120.0]}.items():
        algorithm = "own_agents:Climber" if name == "climber" else "openai_es"
        write_runs(tmp_path, [curve], 20.0, algorithms={name: {"algorithm": algorithm}})
    rows = {row.cell.algorithm: row for row in efficiency_table(tmp_path, {}, window=1)}
    assert list(rows) == ["fast", "climber", "slow", "never"]  # by their cost
    assert math.isnan(rows["climber"].area)
    assert rows["slow"].area == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("targets", "window", "words"),
    [
        *(([text], 1, "--target.*expected a score") for text in ("high", "A=", "A=nan", "inf", "")),
        (["CartPole-v1=1", "CartPole-v1=2"], 1, "CartPole-v1 already has a target"),
        (["1", "2"], 1, "every environment already has a target"),
        (["CartPole-v0=1"], 1, "--target CartPole-v0=.*did you mean 'CartPole-v1'"),
        ([], 0, "--window 0"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, targets: list[str], window: int, words: str) -> None:
    write_runs(tmp_path, [[20.0] * 4])
    with pytest.raises(UsageError, match=words):
        efficiency_table(tmp_path, parse_targets(targets), window)
