from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fake_trials import make_trials, write_scores, write_trial

from esbench.grids import environment_files as environments
from esbench.reporting.figures.across import AcrossCurve
from esbench.reporting.figures.performance_profile import (
    cell_scores,
    make_figure,
    profile_curves,
    render,
)
from esbench.store.cells import cells

SCORES = """
[scores]
random = { mean = 100.0, std = 5.0, episodes = 100, command = "esbench eval --random-policy" }
[[scores.references]]
method = "OpenAI-ES"
score = 300.0
source = "a paper"
comparable = false
"""


@pytest.fixture(autouse=True)
def _frozen_cell_scores_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "envs"
    folder.mkdir()
    for name in ("CartPole-v1", "Acrobot-v1"):
        (folder / f"{name}.toml").write_text(f'id = "{name}"\n{SCORES}')
    (folder / "Pendulum-v1.toml").write_text('id = "Pendulum-v1"\nscores.solved = 1.0\n')
    monkeypatch.setattr(environments, "folder", lambda: folder)


def write(root: Path, environment: str, scores: list[float], algorithm: str = "openai_es") -> None:
    write_scores(root, scores, environments=[environment], algorithms={algorithm: {}})


def lines_of(root: Path) -> list[AcrossCurve]:
    return profile_curves([(cell, cell_scores(cell)) for cell in cells(root) if cell.has_scale])


def share_above(line: AcrossCurve, score: float) -> float:
    return float(np.interp(score, line.x, line.share))


def test_a_line_is_the_share_of_runs_above_a_score_and_environments_weigh_the_same(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a", "CartPole-v1", [100.0, 200.0, 300.0, 400.0])  # 0, 0.5, 1, 1.5
    write(tmp_path / "a", "Acrobot-v1", [160.0])  # 0.3
    (line,) = lines_of(tmp_path / "a")
    assert line.label == "openai_es (5 runs)"
    assert (line.x[0], line.x[-1]) == (0.0, 1.5)
    expected = {0.1: 1.75, 0.4: 0.75, 0.6: 0.5, 1.1: 0.25, 1.49: 0.25, 1.5: 0.0}
    for score, total in expected.items():
        assert share_above(line, score) == pytest.approx(total / 2), score
    assert np.isnan(line.low).all()  # of a single run in Acrobot


def test_bands_hold_the_line_and_an_algorithm_says_what_it_lacks(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write(tmp_path / "a", name, [120.0, 180.0, 200.0, 260.0])
    write(tmp_path / "a", "CartPole-v1", [100.0] * 3, "snes")
    both, one = lines_of(tmp_path / "a")
    assert one.label == "snes (1 of 2 environments, 3 runs)"
    assert both.style != one.style
    assert ((both.low <= both.share) & (both.share <= both.high)).all()
    assert (both.low < both.high).any()
    np.testing.assert_array_equal(both.x, one.x)


def test_a_run_that_diverged_is_above_nothing_and_one_at_work_does_not_count(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a", "CartPole-v1", [80.0, 300.0, math.nan])  # -0.1 and 1
    (trial,) = make_trials(tmp_path / "a", seeds=[7])
    write_trial(trial)
    (line,) = lines_of(tmp_path / "a")
    assert line.label == "openai_es (3 runs)"
    assert share_above(line, -0.05) == pytest.approx(1 / 3)
    assert (line.x[0], line.x[-1]) == (pytest.approx(-0.1), 1.0)


def test_the_axis_is_cut_where_scores_are_out_of_all_proportion(tmp_path: Path) -> None:
    write(tmp_path / "a", "CartPole-v1", [-9000.0, 9000.0])
    (line,) = lines_of(tmp_path / "a")
    assert (line.x[0], line.x[-1]) == (-0.5, 2.0)
    assert (line.share == 0.5).all()


def test_there_is_a_figure_only_of_two_environments_with_both_frozen_scores(
    tmp_path: Path,
) -> None:
    for name in ("CartPole-v1", "Pendulum-v1"):
        write(tmp_path / "a", name, [200.0] * 3)
    assert render(cells(tmp_path / "a")) == {}
    (trial,) = make_trials(tmp_path / "a", seeds=[0], environments=["Acrobot-v1"])
    write_trial(trial)  # at work
    assert render(cells(tmp_path / "a")) == {}
    write(tmp_path / "a", "Acrobot-v1", [math.nan] * 3, "snes")
    first = render(cells(tmp_path / "a"))
    assert set(first) == {"png", "svg"}
    assert first == render(cells(tmp_path / "a"))


def test_the_figure_is_labelled_and_its_texts_stand_clear_of_each_other(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write(tmp_path / "a", name, [120.0, 180.0, 350.0])
    figure = make_figure(["Acrobot-v1", "CartPole-v1"], lines_of(tmp_path / "a"))
    (axes,) = figure.axes
    assert figure.get_suptitle() == "Runs above a score: Acrobot-v1, CartPole-v1"
    assert axes.get_xlabel() == "normalized score"
    assert axes.get_ylabel() == "share of runs above it"
    assert [text.get_text() for text in axes.texts] == ["random policy", "reference"]
    assert len(axes.collections) == 1  # the band
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert "shaded: pointwise 95 %" in legend.get_title().get_text()
    box, frame = axes.get_tightbbox(), legend.get_window_extent()
    assert box is not None
    assert not frame.overlaps(box)
    assert figure.bbox.containsx(frame.x0)
    assert figure.bbox.containsx(frame.x1)
    title = figure._suptitle.get_window_extent()  # type: ignore[attr-defined]
    marks = [text.get_window_extent() for text in axes.texts]
    assert not any(mark.overlaps(title) for mark in marks)
    assert not marks[0].overlaps(marks[1])
    many = make_figure(["a", "b", "c", "d"], lines_of(tmp_path / "a"))
    assert many.get_suptitle() == "Runs above a score: 4 environments"
