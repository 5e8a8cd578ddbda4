"""Scores of a sweep: a table by a setting, and figures of score against it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from fake_trials import make_records, make_trials, write_trial
from matplotlib.collections import LineCollection
from scipy.stats import trim_mean

from esbench.core.errors import UsageError
from esbench.publish.figures.chart import chart_drawing
from esbench.publish.figures.environment_charts import sweep_charts
from esbench.publish.tables.score_table import score_table, sheet
from esbench.publish.tables.table_notes import TUNED
from esbench.results.sources import read_folder

RATES = (0.02, 0.1, 1.0)
SWEEP = {
    "openai_es": {"learning_rate": [1, 0.02, 0.1], "shaping": ["raw", "nes"]},
    "random_search": {},
}


def score(rate: float, seed: int) -> float:
    return 100 * rate + seed


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    for trial in make_trials(tmp_path / "out", seeds=[0, 1, 2], algorithms=SWEEP):
        settings = trial.spec.as_json()["algorithm"]["settings"]
        value = score(settings.get("learning_rate", 0.0), trial.spec.seed)
        write_trial(trial, make_records([0.0, value]), value)
    return tmp_path / "out"


def test_a_table_by_a_setting(swept: Path) -> None:
    rows = score_table(swept, "learning_rate")
    assert [row.setting for row in rows] == [*RATES, *RATES, None]
    shown = sheet(rows, by="learning_rate")
    assert [tuple(cells[:3]) for cells in shown.body] == [
        ("CartPole-v1", f"openai_es shaping={shaping} {TUNED}", rate)
        for shaping in ("nes", "raw") for rate in ("0.02", "0.1", "1")
    ] + [("CartPole-v1", f"random_search {TUNED}", "-")]  # fmt: skip
    assert shown.header[:3] == ["Environment", "Algorithm", "learning_rate"]
    for row in rows[:3]:
        assert row.score == trim_mean([score(row.setting, seed) for seed in range(3)], 0.25)


def test_the_command(esbench: Run, swept: Path) -> None:
    code, out, err = esbench("table", "out", "--by", "learning_rate", "--format", "json")
    assert (code, err) == (0, "")
    assert [row["setting"] for row in json.loads(out)["rows"]] == [*RATES, *RATES, None]
    for words, said in {
        ("--by", "learning_rat"): "'learning_rate'",
        ("--by", "antithetic"): "antithetic",  # it has one value
        ("--by", "learning_rate", "--wide"): "--wide",
    }.items():
        code, out, err = esbench("table", "out", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
    name = "openai_es shaping=nes"
    by = "--by", "learning_rate", "--format", "markdown"
    out = esbench("table", "out", *by, "--rename", f"{name}=ES")[1]
    assert ("| ES " in out, name in out) == (True, False)
    code, out, err = esbench("plot", "out", "--out", "plots")
    names = {Path(line).name for line in out.splitlines()}
    assert {"CartPole-v1-learning_rate.png", "CartPole-v1-shaping.svg"} <= names


def test_a_curve_per_algorithm_through_the_iqms_with_their_intervals(swept: Path) -> None:
    found = sweep_charts(read_folder(swept))
    rate, shaping = found["learning_rate"], found["shaping"]
    names = [curve.name for curve in rate.curves]
    assert names == ["openai_es shaping=nes", "openai_es shaping=raw"]
    for curve in rate.curves:
        np.testing.assert_array_equal(curve.x, RATES)
        np.testing.assert_allclose(curve.y, [score(value, 1) for value in RATES])
        np.testing.assert_allclose(curve.low, curve.y - 1)
        np.testing.assert_allclose(curve.high, curve.y + 1)
    assert chart_drawing(rate).make().axes[0].get_xscale() == "log"
    axes = chart_drawing(shaping).make().axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["nes", "raw"]
    assert len(shaping.curves) == 3
    figure = chart_drawing(shaping).make()
    figure.draw_without_rendering()
    left, right = figure.axes[0].get_xlim()
    bottom, top = figure.axes[0].get_ylim()
    for curve in shaping.curves:
        assert left < curve.x.min() <= curve.x.max() < right
        assert bottom < curve.low.min() < curve.high.max() < top
    bars = [bar for bar in figure.axes[0].collections if isinstance(bar, LineCollection)]
    first = [bar.get_transform().transform(bar.get_segments()[0])[0, 0] for bar in bars]
    assert np.diff(first).min() > 5  # pixels between the bars of one value


def test_a_value_whose_runs_have_all_diverged_is_left_out(tmp_path: Path) -> None:
    sweep = {"snes": {"sigma": [0.1, 0.2, 0.3]}}
    for trial, result in zip(
        make_trials(tmp_path, seeds=[0], algorithms=sweep), (5.0, math.nan, 7.0), strict=True
    ):
        write_trial(trial, make_records([1.0, 2.0]), result)
    (shown,) = sweep_charts(read_folder(tmp_path)).values()
    assert list(shown.curves[0].x) == [0.1, 0.3]
    assert np.isnan(shown.curves[0].low).all()
    assert chart_drawing(shown).make().axes[0].get_xscale() == "linear"
    with pytest.raises(UsageError, match="population_size"):
        score_table(tmp_path, "population_size")


def test_a_choice_changes_no_score(tmp_path: Path) -> None:
    algorithms = {"snes": {"sigma": [0.1, 0.2]}, "ars": {}}
    grid = {"environments": ["doubles:Walk-v0"], "algorithms": algorithms}  # no random score
    for trial in make_trials(tmp_path, seeds=[0, 1, 2], **grid):
        worst = trial.spec.algorithm.name == "ars"
        score = -500.0 if worst else math.nan if trial.spec.seed == 1 else 10.0
        write_trial(trial, make_records([1.0, 2.0]), score)
    found = read_folder(tmp_path)
    (whole,) = sweep_charts(found).values()
    searched = [cell for cell in found if cell.algorithm != "ars"]
    (chosen,) = sweep_charts(found, searched).values()
    np.testing.assert_array_equal(whole.curves[0].y, chosen.curves[0].y)
    assert whole.curves[0].low.min() < -100
