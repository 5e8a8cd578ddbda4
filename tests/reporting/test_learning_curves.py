from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_trials import learning, make_records, make_trials, write_scores, write_trial
from matplotlib.figure import Figure

from esbench.errors import UsageError
from esbench.grids import environment_files as environments
from esbench.grids.environment_files import PublishedScore, RandomScore, Scores
from esbench.reporting.figures.learning_curves import curves, draw, make_figure, render
from esbench.reporting.figures.style import STYLES, assign_styles
from esbench.store.cells import cells

NO_SCORES = Scores()
RANDOM = RandomScore(mean=22.0, std=1.0, episodes=100, command="measured")


def draw_figure(
    root: Path, scores: Scores = NO_SCORES, kind: environments.Kind = "environment"
) -> Figure:
    return make_figure("CartPole-v1", curves(cells(root)), scores, kind)


def legend_texts(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def write_learning(root: Path, seeds: int = 3, generations: int = 6, **grid: object) -> None:
    for index, trial in enumerate(make_trials(root, seeds=list(range(seeds)), **grid)):
        write_trial(trial, make_records(learning(generations, 100.0, index)), 100.0)


def test_a_figure_for_each_environment_as_png_and_svg(tmp_path: Path) -> None:
    write_learning(tmp_path, environments=["CartPole-v1", "Acrobot-v1"])
    written = draw(tmp_path)
    names = ["Acrobot-v1.png", "Acrobot-v1.svg", "CartPole-v1.png", "CartPole-v1.svg"]
    names += ["ecdf.png", "ecdf.svg", "profile.png", "profile.svg"]
    assert written == [tmp_path / "figures" / name for name in names]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in written if path.suffix == ".png")
    for path in written[1::2]:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert draw(tmp_path, tmp_path / "out")[0] == tmp_path / "out" / "Acrobot-v1.png"


def test_environment_names_with_a_slash_make_one_file(tmp_path: Path) -> None:
    write_learning(tmp_path)
    for path in tmp_path.rglob("trial.json"):
        text = path.read_text()
        path.write_text(text.replace('"environment": "CartPole-v1"', '"environment": "ALE/Pong"'))
    assert [path.name for path in draw(tmp_path)] == ["ALE_Pong.png", "ALE_Pong.svg"]


def test_equal_trials_give_equal_bytes_whatever_the_settings_of_matplotlib(tmp_path: Path) -> None:
    import matplotlib

    write_learning(tmp_path)
    first = render("CartPole-v1", curves(cells(tmp_path)), NO_SCORES)
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9}):
        assert render("CartPole-v1", curves(cells(tmp_path)), NO_SCORES) == first
        assert matplotlib.rcParams["font.size"] == 20


def test_three_panels_with_their_labels(tmp_path: Path) -> None:
    write_learning(tmp_path)
    figure = draw_figure(tmp_path)
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
    assert labels == [
        ("environment steps", "return of the unperturbed policy"),
        ("wall-clock time (s)", ""),
        ("generation", "rank of the unperturbed policy\n(share of members beating it)"),
    ]
    assert figure.get_suptitle() == "CartPole-v1"
    assert legend_texts(figure) == ["openai_es (3 seeds)"]
    title = figure.legends[0].get_title().get_text()
    assert title == "IQM over seeds, shaded: 95 % bootstrap interval"


def test_lines_show_the_iqm_where_the_policies_were(tmp_path: Path) -> None:
    for trial, shift in zip(make_trials(tmp_path), (0.0, 10.0, 50.0), strict=True):
        records = make_records([1 + shift, 2 + shift, 3 + shift], ranks=[1.0, 0.5, 0.0])
        write_trial(trial, records, 3.0)
    steps, seconds, rank = (axes.lines[0] for axes in draw_figure(tmp_path).axes)
    np.testing.assert_allclose(steps.get_xdata()[[0, -1]], [0, 200])
    np.testing.assert_allclose(steps.get_ydata()[[0, -1]], [21, 23])
    np.testing.assert_allclose(seconds.get_xdata()[[0, -1]], [0, 1])
    rank = draw_figure(tmp_path).axes[2].lines[1]  # the first is the line at one half
    np.testing.assert_array_equal(rank.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(rank.get_ydata(), [1, 0.5, 0])


def test_one_seed_has_no_band(tmp_path: Path) -> None:
    write_learning(tmp_path, seeds=1)
    figure = draw_figure(tmp_path)
    assert not any(axes.collections for axes in figure.axes)
    assert legend_texts(figure) == ["openai_es (1 seed)"]
    assert figure.legends[0].get_title().get_text() == "IQM over seeds"


def test_three_seeds_have_a_band_in_every_panel(tmp_path: Path) -> None:
    write_learning(tmp_path)
    assert all(len(axes.collections) == 1 for axes in draw_figure(tmp_path).axes)


def test_policies_are_named_if_they_have_labels(tmp_path: Path) -> None:
    policies = {"small": {"template": "linear"}, "big": {"template": "mlp"}}
    write_learning(tmp_path, policies=policies)
    expected = ["openai_es big (3 seeds)", "openai_es small (3 seeds)"]
    assert legend_texts(draw_figure(tmp_path)) == expected


def test_unfinished_seeds_do_not_cut_the_curve_of_the_done(tmp_path: Path) -> None:
    done, also, partial = make_trials(tmp_path)
    write_trial(done, make_records([1, 2, 3, 4]), 4.0)
    write_trial(also, make_records([1, 2, 3, 4]), 4.0)
    write_trial(partial, make_records([1, 2]))
    figure = draw_figure(tmp_path)
    assert legend_texts(figure) == ["openai_es (2 of 3 seeds)"]
    assert figure.axes[0].lines[0].get_xdata()[-1] == 300


def test_unfinished_seeds_are_drawn_when_none_is_done(tmp_path: Path) -> None:
    first, second, _ = make_trials(tmp_path)
    write_trial(first, make_records([1, 2, 3]))
    write_trial(second, make_records([1]))
    assert legend_texts(draw_figure(tmp_path)) == ["openai_es (1 of 2 seeds, unfinished)"]


def test_without_evaluations_of_the_centre_the_population_is_drawn_and_it_says_so(
    tmp_path: Path,
) -> None:
    nan = [math.nan] * 3
    for trial in make_trials(tmp_path, evaluation={"center": False}):
        write_trial(trial, make_records(nan, nan, population=[5.0, 6.0, 7.0]), 7.0)
    figure = draw_figure(tmp_path)
    label = "mean return of the population\n(unperturbed policy not evaluated)"
    assert figure.axes[0].get_ylabel() == label
    assert figure.axes[0].lines[0].get_ydata()[-1] == 7
    assert [text.get_text() for text in figure.axes[2].texts] == [
        "unperturbed policy\nnot evaluated"
    ]
    assert legend_texts(figure) == ["openai_es (3 seeds)"]
    assert draw(tmp_path)


def test_lines_of_populations_among_others_are_marked(tmp_path: Path) -> None:
    write_learning(tmp_path / "a")
    trials = make_trials(
        tmp_path / "b", evaluation={"center": False}, algorithms={"random_search": {}}
    )
    for trial in trials:
        write_trial(trial, make_records([math.nan] * 3, [math.nan] * 3, [5.0, 6.0, 7.0]), 7.0)
    figure = draw_figure(tmp_path)
    assert legend_texts(figure) == ["openai_es (3 seeds)", "random_search† (3 seeds)"]
    label = "return of the unperturbed policy\n(†: mean of the population)"
    assert figure.axes[0].get_ylabel() == label


def test_a_return_that_is_nan_leaves_a_gap(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path):
        write_trial(trial, make_records([1.0, math.nan, 3.0, 4.0]), 4.0)
    values = draw_figure(tmp_path).axes[0].lines[0].get_ydata()
    assert np.isnan(values[1:60]).all()
    assert np.isfinite(values[-30:]).all()
    assert draw(tmp_path)


def test_random_and_solved_scores_are_marked_by_name(tmp_path: Path) -> None:
    write_learning(tmp_path)
    reference = PublishedScore(method="PPO", score=300.0, source="a paper", comparable=False)
    figure = draw_figure(tmp_path, Scores(random=RANDOM, solved=475.0, references=(reference,)))
    for axes in figure.axes[:2]:
        assert [line.get_ydata()[0] for line in axes.lines[1:]] == [22, 475]
    assert [text.get_text() for text in figure.axes[1].texts] == ["random\npolicy", "solved"]


def test_the_first_reference_stands_in_for_a_threshold(tmp_path: Path) -> None:
    write_learning(tmp_path)
    reference = PublishedScore(method="PPO", score=300.0, source="a paper", comparable=False)
    figure = draw_figure(tmp_path, Scores(references=(reference,)))
    assert [text.get_text() for text in figure.axes[1].texts] == ["PPO\n(not\ncomparable)"]
    comparable = reference.model_copy(update={"comparable": True})
    figure = draw_figure(tmp_path, Scores(references=(comparable,)))
    assert [text.get_text() for text in figure.axes[1].texts] == ["PPO"]


@pytest.mark.parametrize("solved", [23.0, 475.0])
def test_texts_do_not_overlap(tmp_path: Path, solved: float) -> None:
    write_learning(tmp_path)
    figure = draw_figure(tmp_path, Scores(random=RANDOM, solved=solved))
    figure.draw_without_rendering()
    first, second = (text.get_window_extent() for text in figure.axes[1].texts)
    assert not first.overlaps(second)
    rank = figure.axes[2].get_tightbbox()
    assert rank is not None
    assert not rank.overlaps(first)
    assert not rank.overlaps(second)


def write_returns(root: Path, returns: Sequence[float], **grid: object) -> None:
    for trial in make_trials(root, **grid):
        write_trial(trial, make_records(returns), returns[-1])


def heights(figure: Figure, values: Sequence[float]) -> list[float]:
    """The heights of values in the first panel, from 0 (bottom) to 1 (top)."""
    figure.draw_without_rendering()
    axes = figure.axes[0]
    pixels = axes.transData.transform([(0.0, value) for value in values])
    return [float(y) for _, y in axes.transAxes.inverted().transform(pixels)]


def test_the_returns_of_a_function_stand_on_a_logarithmic_axis(tmp_path: Path) -> None:
    write_returns(tmp_path, [-(10.0**-power) for power in range(-3, 10)])
    figure = draw_figure(tmp_path, kind="function")
    label = "return of the unperturbed policy\n(log scale, linear above $-10^{-9}$)"
    assert figure.axes[0].get_ylabel() == label
    assert [axes.get_yscale() for axes in figure.axes] == ["symlog", "symlog", "linear"]
    assert figure.axes[0].lines[0].get_ydata()[-1] == pytest.approx(-1e-9)
    places = heights(figure, [-1e3, -1.0, -1e-3, -1e-6, -1e-9])
    assert np.diff(places) == pytest.approx(np.full(4, np.diff(places).mean()), rel=1e-6)
    assert 0 < places[0] < places[-1] < 1
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert 3 <= len(ticks) <= 8
    assert any("10^{-" in tick for tick in ticks)
    plain = draw_figure(tmp_path).axes
    assert [axes.get_yscale() for axes in plain] == ["linear"] * 3
    assert plain[0].get_ylabel() == "return of the unperturbed policy"


def test_returns_above_the_best_possible_say_where_noise_begins(tmp_path: Path) -> None:
    write_returns(tmp_path, [-300.0, -40.0, -5.0, 0.03, -0.001, 0.02, 0.0, -0.001])
    figure = draw_figure(tmp_path, kind="function")
    assert figure.axes[0].get_ylabel().endswith("(log scale, linear above $-10^{-2}$)")
    assert figure.axes[0].get_ylim()[1] > 0.03


def test_a_function_that_is_always_at_its_best_can_be_drawn(tmp_path: Path) -> None:
    write_returns(tmp_path, [0.0, 0.0, 0.0])
    figure = draw_figure(tmp_path, kind="function")
    assert figure.axes[0].get_ylabel().endswith("(log scale, linear above $-10^{0}$)")
    figure.draw_without_rendering()


@pytest.mark.parametrize("solved", [-1e-8, -1.5])
def test_texts_do_not_overlap_on_a_logarithmic_axis(tmp_path: Path, solved: float) -> None:
    write_returns(tmp_path, [-22.0, -1.0, -1e-3, -1e-6, -1e-7])
    random = RANDOM.model_copy(update={"mean": -2.0})
    figure = draw_figure(tmp_path, Scores(random=random, solved=solved), kind="function")
    figure.draw_without_rendering()
    first, second = (text.get_window_extent() for text in figure.axes[1].texts)
    assert not first.overlaps(second)
    aligned = {text.get_verticalalignment() for text in figure.axes[1].texts}
    assert aligned == ({"center"} if solved == -1e-8 else {"bottom", "top"})
    panel, label = figure.axes[0].get_window_extent(), figure.axes[0].yaxis.label
    assert label.get_window_extent().x0 >= -2
    assert label.get_window_extent().height < 1.25 * panel.height


def test_the_environments_file_says_whether_it_is_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {}
    monkeypatch.setattr(
        "esbench.reporting.figures.learning_curves.render",
        lambda name, lines, scores, kind: kinds.update({name: kind}) or {"png": b""},
    )
    names = ["esbench/Sphere-v0", "CartPole-v1", "MountainCar-v0"]
    write_returns(tmp_path, [-2.0, -1.0], environments=names)
    draw(tmp_path)
    assert kinds == {
        "esbench/Sphere-v0": "function", "CartPole-v1": "environment",
        "MountainCar-v0": "environment",
    }  # fmt: skip


def test_the_legend_has_room_for_every_algorithm(tmp_path: Path) -> None:
    algorithms = {name: {"algorithm": "openai_es"} for name in STYLES}
    write_learning(tmp_path, seeds=1, algorithms=algorithms)
    figure = draw_figure(tmp_path)
    figure.draw_without_rendering()
    assert len(legend_texts(figure)) == len(STYLES)
    legend = figure.legends[0].get_window_extent()
    width, height = figure.get_size_inches() * figure.dpi
    assert 0 <= legend.x0 < legend.x1 <= width
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert not box.overlaps(legend)
        assert -2 <= box.x0 < box.x1 <= width + 2
        assert axes.get_window_extent().height > 0.3 * height


def test_long_runs_say_that_ranks_are_averaged(tmp_path: Path) -> None:
    write_learning(tmp_path, seeds=1, generations=60)
    assert draw_figure(tmp_path).axes[2].get_xlabel() == "generation\n(averaged in blocks)"


def test_hours_of_training_are_given_in_hours(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path, seeds=[0]):
        write_trial(trial, make_records([1, 2, 3, 4], seconds=7200), 4.0)
    axes = draw_figure(tmp_path).axes[1]
    assert axes.get_xlabel() == "wall-clock time (h)"
    assert axes.lines[0].get_xdata()[-1] == 6


def test_known_algorithms_differ_without_colour() -> None:
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)
    assert len({style.color for style in STYLES.values()}) == 8


def test_styles_of_other_labels_are_stable_and_never_collide() -> None:
    (alone,) = assign_styles([("mine", "mine")])
    assert assign_styles([("openai_es", "openai_es"), ("mine", "mine")])[0] == STYLES["openai_es"]
    assert assign_styles([("mine", "mine")]) == [alone]
    names = [(f"label {number}", f"label {number}") for number in range(40)]
    looks = [(style.line, style.marker) for style in assign_styles(names)]
    assert len(set(looks)) == 40
    same = [("pgpe", "pgpe linear"), ("pgpe", "pgpe mlp")]
    first, second = assign_styles(same)
    assert first == STYLES["pgpe"]
    assert (second.color, second.marker) != (first.color, first.marker)


def test_frozen_scores_come_from_the_environments_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CartPole-v1.toml").write_text('id = "CartPole-v1"\nscores.solved = 475.0\n')
    monkeypatch.setattr(environments, "folder", lambda: tmp_path)
    write_learning(tmp_path / "run")
    figures = []
    monkeypatch.setattr(
        "esbench.reporting.figures.learning_curves.render", lambda *args: figures.append(args) or {}
    )
    with pytest.raises(UsageError):
        draw(tmp_path / "run")
    assert figures[0][2].solved == 475


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trial in"):
        draw(tmp_path)
    for trial in make_trials(tmp_path):
        write_trial(trial, make_records([1.0]), error="Traceback")
    with pytest.raises(UsageError, match="nothing to draw in .* no trial has 2 generations yet"):
        draw(tmp_path)
    assert not (tmp_path / "figures").exists()


def test_an_environment_without_rows_does_not_stop_the_others(tmp_path: Path) -> None:
    write_scores(tmp_path / "a", [1.0, 2.0, 3.0])
    for trial in make_trials(tmp_path / "b", environments=["Acrobot-v1"]):
        write_trial(trial)
    names = ["CartPole-v1.png", "CartPole-v1.svg", "ecdf.png", "ecdf.svg"]
    assert [path.name for path in draw(tmp_path)] == names


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    write_learning(tmp_path / "run", seeds=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        draw(tmp_path / "run", tmp_path / "file")


def test_importing_plots_and_tables_loads_neither_matplotlib_nor_scipy_nor_rich() -> None:
    code = (
        "import sys, esbench.reporting.figures.learning_curves; "
        "import esbench.reporting.tables.score_table; "
        "loaded = {'matplotlib', 'scipy', 'rich', 'pandas'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(loaded)) or 0)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
