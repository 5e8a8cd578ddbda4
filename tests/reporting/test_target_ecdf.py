from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fake_trials import learning, make_records, make_trials, write_trial

from esbench.grids import environment_files as environments
from esbench.reporting.figures.across import AcrossCurve
from esbench.reporting.figures.target_ecdf import ecdf_curves, make_figure, render
from esbench.store.cells import cells
from esbench.store.run_curves import run_curves

SCORES = """
[scores]
random = { mean = 0.0, std = 5.0, episodes = 100, command = "esbench eval --random-policy" }
[[scores.references]]
method = "OpenAI-ES"
score = 100.0
source = "a paper"
comparable = false
"""


@pytest.fixture(autouse=True)
def _frozen_scores_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "envs"
    folder.mkdir()
    for name in ("CartPole-v1", "Acrobot-v1"):
        (folder / f"{name}.toml").write_text(f'id = "{name}"\n{SCORES}')
    useless = SCORES.replace("score = 100.0", "score = 0.0")  # no better than random actions
    (folder / "MountainCar-v0.toml").write_text(f'id = "MountainCar-v0"\n{useless}')
    (folder / "Pendulum-v1.toml").write_text('id = "Pendulum-v1"\nscores.solved = 1.0\n')
    monkeypatch.setattr(environments, "folder", lambda: folder)


def write_runs(root: Path, runs: list[list[float]], **grid: object) -> None:
    trials = make_trials(root, seeds=list(range(len(runs))), **grid)
    for trial, returns in zip(trials, runs, strict=True):
        write_trial(trial, make_records(returns), 0.0)


def lines_of(root: Path) -> list[AcrossCurve]:
    return ecdf_curves([(cell, run_curves(cell)) for cell in cells(root) if cell.scores.references])


def share_at(line: AcrossCurve, steps: float) -> float:
    return float(line.share[np.searchsorted(line.x, steps, side="right") - 1])


def test_a_line_counts_triples_and_environments_weigh_the_same(tmp_path: Path) -> None:
    # The mean of five returns is 50 before the fifth update (400 steps), 60 before the sixth.
    write_runs(tmp_path / "a", [[50.0] * 5 + [100.0] * 5])
    write_runs(tmp_path / "b", [[0.0] * 10] * 3, environments=["Acrobot-v1"])
    (line,) = lines_of(tmp_path)
    assert line.label == "openai_es (4 runs)"
    assert line.x[0] == 100
    assert line.x[-1] == pytest.approx(1000)
    expected = {395: 0.0, 405: 0.5, 495: 0.5, 505: 0.6, 605: 0.7, 805: 0.9, 905: 1.0, 1000: 1.0}
    for steps, share in expected.items():
        assert share_at(line, steps) == pytest.approx(share / 2), steps


def test_a_line_ends_with_its_own_budget_and_says_what_it_lacks(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write_runs(tmp_path / "a", [[100.0] * 10], environments=[name])
    short = {"algorithms": {"random_search": {}}, "budget": {"env_steps": 600}}
    write_runs(tmp_path / "b", [[100.0] * 6], **short)
    full, part = lines_of(tmp_path)
    assert (full.label, full.x[-1]) == ("openai_es (2 runs)", pytest.approx(1000))
    assert part.label == "random_search (1 of 2 environments, 1 run)"
    assert part.x[-1] == pytest.approx(600)
    assert part.style != full.style


def test_there_is_a_figure_only_where_an_environment_has_both_frozen_scores(
    tmp_path: Path,
) -> None:
    for name in ("Pendulum-v1", "MountainCar-v0"):
        write_runs(tmp_path / "a", [[1.0] * 6] * 3, environments=[name])
    changed = {"CartPole-v1": {"kwargs": {"sutton_barto_reward": True}}}
    write_runs(tmp_path / "b", [[1.0] * 6] * 3, environment=changed)
    assert render(cells(tmp_path)) == {}
    write_runs(tmp_path / "c", [[1.0] * 6] * 3, environments=["Acrobot-v1"])
    assert set(render(cells(tmp_path))) == {"png", "svg"}


def test_unfinished_runs_are_drawn_when_none_is_done(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path / "run"):
        write_trial(trial, make_records([100.0] * 6))
    assert render(cells(tmp_path / "run"))
    assert [line.label for line in lines_of(tmp_path / "run")] == ["openai_es (3 runs, unfinished)"]


@pytest.mark.parametrize("value", [math.nan, 100.0])
def test_runs_that_reach_nothing_or_all_at_once_can_be_drawn(tmp_path: Path, value: float) -> None:
    write_runs(tmp_path / "run", [[value] * 6])
    make_figure(["CartPole-v1"], lines_of(tmp_path / "run")).draw_without_rendering()


def test_the_figure_is_labelled_and_the_legend_stands_clear_of_the_lines(tmp_path: Path) -> None:
    both = {"environments": ["CartPole-v1", "Acrobot-v1"]}
    for trial in make_trials(tmp_path / "run", **both):
        write_trial(trial, make_records(learning(20, 100.0, trial.spec.seed)), 100.0)
    figure = make_figure(["Acrobot-v1", "CartPole-v1"], lines_of(tmp_path / "run"))
    (axes,) = figure.axes
    assert figure.get_suptitle() == "Targets reached within a budget: Acrobot-v1, CartPole-v1"
    assert axes.get_xlabel() == "environment steps of training (log scale)"
    assert axes.get_ylabel() == "share of targets reached"
    assert axes.get_xscale() == "log"
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["openai_es (6 runs)"]
    box = axes.get_tightbbox()
    assert box is not None
    assert not legend.get_window_extent().overlaps(box)
    assert figure.bbox.containsx(legend.get_window_extent().x0)
    assert figure.bbox.containsx(legend.get_window_extent().x1)
    ticks = [text.get_text() for text in axes.get_xticklabels() if text.get_text()]
    assert len(ticks) >= 3
    many = make_figure(["a", "b", "c", "d"], lines_of(tmp_path / "run"))
    assert many.get_suptitle() == "Targets reached within a budget: 4 environments"


def test_equal_trials_give_equal_bytes(tmp_path: Path) -> None:
    write_runs(tmp_path / "run", [[1.0, 50.0, 80.0, 20.0, 90.0, 70.0]] * 2)
    assert render(cells(tmp_path / "run")) == render(cells(tmp_path / "run"))
