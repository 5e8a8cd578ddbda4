import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_trials import learning, make_records, make_trials, write_runs, write_trial
from matplotlib.figure import Figure

import esbench
from esbench.core.errors import UsageError
from esbench.grids.environment_files import PublishedScore, RandomScore, Scores
from esbench.publish.figures.chart import charts_drawing
from esbench.publish.figures.drawing import Drawing, Output, parse_size
from esbench.publish.figures.environment_charts import Panel, learning_charts
from esbench.publish.figures.style import STYLES, assign_styles, cell_styles, style
from esbench.publish.figures.write_figures import draw, drawings
from esbench.results.sources import read_folder

NO_SCORES = Scores()
RANDOM = RandomScore(mean=22.0, std=1.0, episodes=100, command="measured")
PPO = PublishedScore(method="PPO", score=300.0, source="a paper", comparable=False)
FUNCTION = "esbench/Sphere-v0"
CJK = "\N{CJK UNIFIED IDEOGRAPH-5B66}"


def drawing_of(root: Path, scores: Scores = NO_SCORES, environment: str = "CartPole-v1") -> Drawing:
    found = [replace(c, frozen=scores, environment=environment) for c in read_folder(root)]
    panels, _ = learning_charts(found, cell_styles(found))
    return charts_drawing(environment, list(panels.values()))


def draw_figure(root: Path, *changes: Any) -> Figure:
    figure = drawing_of(root, *changes).make()
    figure.draw_without_rendering()
    return figure


def legend_texts(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def reading(figure: Figure) -> str:
    """The text above the legend."""
    return " ".join(figure.legends[0].get_title().get_text().split())


def write_learning(root: Path, seeds: int = 3, **grid: object) -> None:
    for index, trial in enumerate(make_trials(root, seeds=list(range(seeds)), **grid)):
        write_trial(trial, make_records(learning(6, 100.0, index)), 100.0)


def test_a_figure_for_each_environment_as_png_and_svg(tmp_path: Path) -> None:
    write_learning(tmp_path, environments=["CartPole-v1", "Acrobot-v1"])
    for trial in make_trials(tmp_path, environments=["Pendulum-v1"]):
        write_trial(trial)  # without a generation: it has no figure
    written = [path for figure in draw(tmp_path) for path in figure.paths]
    names = ["Acrobot-v1.png", "Acrobot-v1.svg", "CartPole-v1.png", "CartPole-v1.svg"]
    names += ["ecdf.png", "ecdf.svg", "profile.png", "profile.svg"]
    assert written == [tmp_path / "figures" / name for name in names]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in written if path.suffix == ".png")
    for path in written[1::2]:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_equal_trials_give_equal_bytes_whatever_the_settings_of_matplotlib(tmp_path: Path) -> None:
    import matplotlib

    write_learning(tmp_path)
    first = drawing_of(tmp_path).files()
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9}):
        assert drawing_of(tmp_path).files() == first
        assert matplotlib.rcParams["font.size"] == 20


def test_three_panels_with_their_labels_and_bands(tmp_path: Path) -> None:
    write_learning(tmp_path)
    figure = draw_figure(tmp_path)
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
    assert labels == [
        ("environment steps", "return of the unperturbed policy"),
        ("wall-clock time (s)", ""),
        ("generation", "rank of the unperturbed policy\n(share of members beating it)"),
    ]
    assert [len(axes.collections) for axes in figure.axes] == [1, 1, 1]
    assert figure.get_suptitle() == "CartPole-v1"
    assert legend_texts(figure) == ["openai_es"]
    assert reading(figure).startswith("3 seeds; IQM over seeds, shaded: 95 % bootstrap interval")


def test_lines_show_the_iqm_where_the_policies_were(tmp_path: Path) -> None:
    for trial, shift in zip(make_trials(tmp_path), (0.0, 10.0, 50.0), strict=True):
        records = make_records([1 + shift, 2 + shift, 3 + shift], ranks=[1.0, 0.5, 0.0])
        write_trial(trial, records, 3.0)
    steps, seconds, rank = (axes.lines[0] for axes in draw_figure(tmp_path).axes)
    np.testing.assert_allclose(steps.get_xdata()[[0, -1]], [0, 200])
    np.testing.assert_allclose(steps.get_ydata()[[0, -1]], [21, 23])
    np.testing.assert_allclose(seconds.get_xdata()[[0, -1]], [0, 1])
    np.testing.assert_array_equal(rank.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(rank.get_ydata(), [1, 0.5, 0])


def test_unfinished_seeds_are_drawn_only_when_none_is_done(tmp_path: Path) -> None:
    first, second, third = make_trials(tmp_path)
    write_trial(first, make_records([1, 2]))
    write_trial(second, make_records([1]))
    assert reading(draw_figure(tmp_path)).startswith("1 of 2 seeds, unfinished;")
    write_trial(third, make_records([1, 2, 3, 4]), 4.0)
    figure = draw_figure(tmp_path)
    assert reading(figure).startswith("1 of 3 seeds;")
    assert figure.axes[0].lines[0].get_xdata()[-1] == 300


def test_without_evaluations_of_the_center_the_population_is_drawn_and_it_says_so(
    tmp_path: Path,
) -> None:
    nan = [math.nan] * 3
    records = make_records(nan, nan, population=[5.0, 6.0, 7.0])
    for trial in make_trials(tmp_path, evaluation={"center": False}):
        write_trial(trial, records, 7.0)
    figure = draw_figure(tmp_path)
    label = "mean return of the population (unperturbed policy not evaluated)"
    assert " ".join(figure.axes[0].get_ylabel().split()) == label
    assert figure.axes[0].lines[0].get_ydata()[-1] == 7
    assert "not evaluated" in figure.axes[2].texts[-1].get_text()
    write_learning(tmp_path / "b", seeds=4, algorithms={"snes": {}})
    figure = draw_figure(tmp_path)
    assert legend_texts(figure) == ["openai_es† (3 seeds)", "snes (4 seeds)"]
    label = "return of the unperturbed policy\n(†: mean of training episodes)"
    assert figure.axes[0].get_ylabel() == label
    alone = drawings(tmp_path, panels=["rank"])["CartPole-v1"]
    assert [label.split()[0] for label in alone.labels] == ["snes"]
    assert reading(alone.make()).endswith(": openai_es")


# The last row of an agent is written when its policy is known, whether or not others were.
@pytest.mark.parametrize(("evaluated", "last"), [(True, 9.0), (False, math.nan), (False, 9.0)])
def test_an_agents_returns_are_those_after_its_steps(
    tmp_path: Path, evaluated: bool, last: float
) -> None:
    agents = {"climber": {"algorithm": "own_agents:Climber"}}
    training = [math.nan, 5.0, math.nan, 9.0]  # no episode ended in the others
    centers = [*([5.0, 6.0, 7.0] if evaluated else [math.nan] * 3), last]
    for trial in make_trials(tmp_path, algorithms=agents):
        write_trial(trial, make_records(centers, [math.nan] * 4, training), 9.0)
    axes = draw_figure(tmp_path).axes[0]
    points = np.array(axes.lines[0].get_data())
    first = [100, 5] if evaluated else [200, 5]  # 100 steps each
    np.testing.assert_allclose([points[:, 0], points[:, -1]], [first, [400, 9]])
    assert axes.get_ylabel().startswith("return of" if evaluated else "mean return")


@pytest.mark.parametrize(
    ("scores", "levels", "names"),
    [
        ({"random": RANDOM, "solved": 475.0}, [22, 475], ["random\npolicy", "solved"]),
        ({}, [300], ["PPO\n(not\ncomparable)"]),
        ({"references": (PPO.model_copy(update={"comparable": True}),)}, [300], ["PPO"]),
    ],
)
def test_scores_are_marked_by_name_and_a_reference_stands_in_for_solved(
    tmp_path: Path, scores: dict[str, Any], levels: list[float], names: list[str]
) -> None:
    write_runs(tmp_path, [[0.0, 400.0]], 400.0)
    figure = draw_figure(tmp_path, Scores(**{"references": (PPO,), **scores}))
    for axes in figure.axes[:2]:
        assert [line.get_ydata()[0] for line in axes.lines[2:]] == levels
    assert [[text.get_text() for text in each.texts] for each in figure.axes[:2]] == [[], names]
    stacked = drawing_of(tmp_path, Scores(**{"references": (PPO,), **scores})).make((4.0, 8.0))
    for axes in stacked.axes[:2]:
        assert [line.get_ydata()[0] for line in axes.lines[2:]] == levels
        assert [text.get_text() for text in axes.texts] == names


def heights(figure: Figure, values: Sequence[float]) -> list[float]:
    """The heights of values in the first panel, from 0 (bottom) to 1 (top)."""
    axes = figure.axes[0]
    pixels = axes.transData.transform([(0.0, value) for value in values])
    return [float(y) for _, y in axes.transAxes.inverted().transform(pixels)]


def test_the_returns_of_a_function_stand_on_a_logarithmic_axis(tmp_path: Path) -> None:
    write_runs(tmp_path, [[-(10.0**-power) for power in range(-3, 10)]] * 3)
    figure = draw_figure(tmp_path, NO_SCORES, FUNCTION)
    assert figure.axes[0].get_ylabel().endswith("\n(log scale up to −10⁻⁹)")
    assert [axes.get_yscale() for axes in figure.axes] == ["symlog", "symlog", "linear"]
    assert figure.axes[0].lines[0].get_ydata()[-1] == pytest.approx(-1e-9)
    places = heights(figure, [-1e3, -1.0, -1e-3, -1e-6, -1e-9])
    assert np.diff(places) == pytest.approx(np.full(4, np.diff(places).mean()), rel=1e-6)
    assert 0 < places[0] < places[-1] < 1
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert 3 <= len(ticks) <= 8
    assert any("10⁻" in tick for tick in ticks)


def test_a_panel_alone_has_the_axis_that_it_has_among_others(tmp_path: Path) -> None:
    scores = (-1e-3, -1e-6, -1e-9)
    for score, sigma in zip(scores, (0.1, 0.2, 0.3), strict=True):
        algorithms = {f"openai_es sigma={sigma}": {"algorithm": "openai_es", "sigma": sigma}}
        runs, environments = [[-10.0, score]] * 3, [FUNCTION]
        write_runs(tmp_path, runs, score, algorithms=algorithms, environments=environments)
    stem = FUNCTION.replace("/", "_")
    limits = {}
    for panels in (["steps"], ["time"], ["steps", "time", "rank"]):
        figure = drawings(tmp_path, (), panels)[stem].make()
        limits[tuple(panels)] = figure.axes[0].get_ylim()
    assert len(set(limits.values())) == 1, limits
    axes = drawings(tmp_path)[f"{stem}-sigma"].make().axes[0]
    apart = np.diff(axes.yaxis.get_transform().transform(scores))
    assert apart == pytest.approx([3e-9, 3e-9])  # three decades each, in units of the smallest


def test_algorithms_format_and_size_of_choice(tmp_path: Path) -> None:
    write_learning(tmp_path, algorithms={"mine": {"algorithm": "openai_es"}, "snes": {}})
    out, output = tmp_path / "out", Output(("svg", "pdf"), (3.5, 6.0))
    svg, pdf = draw(tmp_path, out, ["snes"], output)[0].paths
    assert (svg, pdf) == (out / "CartPole-v1.svg", out / "CartPole-v1.pdf")
    text, content = svg.read_text(), pdf.read_bytes()
    assert ("snes" in text, "mine" in text) == (True, False)
    assert 'width="252pt" height="432pt"' in text  # 72 points per inch
    assert "<text" in text
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content  # which venues reject
    assert b"/MediaBox [ 0 0 252 432 ]" in content
    draw(tmp_path, out, ["snes"], output)
    assert pdf.read_bytes() == content
    with pytest.raises(UsageError, match="'sne'.*'snes'"):
        draw(tmp_path, out, ["sne"])
    drawn = drawings(tmp_path, ["openai_es"])["CartPole-v1"]
    assert [label.split()[0] for label in drawn.labels] == ["mine"]


def test_a_figure_that_the_user_saves_has_the_fonts_of_a_written_one(tmp_path: Path) -> None:
    write_learning(tmp_path)
    saved = [tmp_path / "curves.pdf", tmp_path / "curves.svg"]
    for path in saved:
        esbench.plot(tmp_path, panels="steps").savefig(path)
    assert b"/Type3" not in saved[0].read_bytes()
    assert "<text" in saved[1].read_text()


@pytest.mark.parametrize(
    ("panels", "size"),
    [
        (["steps"], (3.3, 2.6)),
        (["steps", "time", "rank"], (5.4, 2.6)),
        (["steps", "time", "rank"], (3.3, 6.0)),
    ],
)
def test_chosen_panels_fit_a_column_of_a_paper(
    tmp_path: Path, panels: list[Panel], size: tuple[float, float]
) -> None:
    write_learning(tmp_path, algorithms={"openai_es": {}, "snes": {}})
    figure = drawings(tmp_path, panels=panels)["CartPole-v1"].make(size)
    assert len(figure.axes) == len(panels)
    figure.draw_without_rendering()
    tops = [axes.get_window_extent().y1 for axes in figure.axes]
    assert len({round(top) for top in tops}) == (len(panels) if size[1] > size[0] else 1)
    x_labels, y_labels = ([getattr(a, f"{n}axis").label for a in figure.axes] for n in "xy")
    whole = figure.bbox
    for text in (*figure.texts, *x_labels, *y_labels):
        box = text.get_window_extent()
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1
    boxes = [box for text in x_labels if (box := text.get_window_extent()).width]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_the_type_of_a_slide_is_larger_and_has_room(tmp_path: Path) -> None:
    write_learning(tmp_path, algorithms={name: {} for name in list(STYLES)[:8]})
    sizes, drawing = [], drawings(tmp_path)["CartPole-v1"]
    for size in (5.4, 3.0), (6.6, 3.0), (12.8, 7.2), (12.8, 3.0):
        with style(size[0]):
            figure = drawing.make(size)
        sizes.append(figure.axes[0].xaxis.label.get_fontsize())
        extents = [figure.legends[0], *(axes.xaxis.label for axes in figure.axes)]
        for box in (each.get_window_extent() for each in extents):
            assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
    assert sizes[0] == sizes[1] == 9
    assert 11 < sizes[2] == sizes[3] < 14


@pytest.mark.parametrize("algorithms", [[*"abcd"], list(STYLES)[:9]])
@pytest.mark.parametrize("size", [(3.3, 2.6), (7.0, 4.0)])
def test_the_axes_take_most_of_the_height_of_a_figure_for_a_paper(
    tmp_path: Path, size: tuple[float, float], algorithms: list[str]
) -> None:
    share = 0.5 if len(algorithms) <= 4 else 0.37
    environments = ["CartPole-v1", "Acrobot-v1"]
    names = {name: {"algorithm": "snes"} for name in algorithms}
    write_learning(tmp_path, 1, algorithms=names, environments=environments)
    found = drawings(tmp_path, panels=["steps"])
    assert set(found) == {*environments, "ecdf", "profile"}
    for drawing in found.values():
        with style(size[0]):
            (axes,) = drawing.make(size).axes
        assert axes.get_window_extent().height >= share * axes.figure.bbox.height


def test_a_filled_marker_is_the_final_score_at_the_end_of_training(tmp_path: Path) -> None:
    for trial, score in zip(make_trials(tmp_path), (90.0, 100.0, 110.0), strict=True):
        write_trial(trial, make_records(learning(6, 100.0, 0), seconds=60.0), score)
    axes = draw_figure(tmp_path).axes
    assert axes[1].get_xlabel() == "wall-clock time (min)"
    found = []
    for panel in axes:
        drawn = [np.asarray(line.get_xydata(), dtype=float) for line in panel.lines]
        found.append([points[0].tolist() for points in drawn if len(points) == 1])
    assert found == [[[600, 100]], [[6, 100]], []]


def test_only_figures_of_choice_are_drawn(tmp_path: Path) -> None:
    write_learning(tmp_path, environments=["CartPole-v1", "Acrobot-v1"])
    assert list(drawings(tmp_path, figures=["ecdf", "Acrobot-v1"])) == ["Acrobot-v1", "ecdf"]
    with pytest.raises(UsageError, match="'ecd'.*'ecdf'"):
        draw(tmp_path, figures=["ecd"])
    assert not (tmp_path / "figures").exists()


def test_nothing_is_written_if_one_figure_has_no_room(tmp_path: Path) -> None:
    write_learning(tmp_path, environments=["Acrobot-v1"])
    many = {f"a_long_name_{n}": {"algorithm": "snes"} for n in range(12)}
    write_learning(tmp_path, seeds=1, algorithms=many)
    output = Output(("png",), (5.4, 2.4))
    assert drawings(tmp_path)["Acrobot-v1"].size(output.size)
    with pytest.raises(UsageError, match=r"5\.4x2\.4: no room for 1 panel .* at least \d"):
        draw(tmp_path, output=output)
    assert not (tmp_path / "figures").exists()


def test_styles_do_not_depend_on_the_chosen_algorithms(tmp_path: Path) -> None:
    write_learning(tmp_path, algorithms={name: {"algorithm": "snes"} for name in "abcd"})

    def styles(*names: str) -> dict[Any, Any]:
        axes = drawings(tmp_path, names)["CartPole-v1"].make().axes[0]
        lines = [line for line in axes.lines if str(line.get_label()) in "abcd"]
        return {
            each.get_label(): (each.get_color(), each.get_linestyle(), each.get_marker())
            for each in lines
        }

    everything = styles()
    assert len(set(everything.values())) == 4
    for name in "bd":
        assert styles(name).items() < everything.items()


@pytest.mark.parametrize("text", ["3", "1x3", "nanx3", "3x999", "axb", ""])
def test_a_size_is_width_and_height_in_inches(text: str) -> None:
    assert parse_size("6.6x3") == (6.6, 3.0)
    with pytest.raises(UsageError, match=f"--size {text}:"):
        parse_size(text)


@pytest.mark.parametrize(
    "labels",
    [
        list(STYLES),
        ["openai_es with a learning rate of 0.05, sigma 0.1 and 64 members " * 3, "ars"],
        [CJK * 24, "ars"],
    ],
)
def test_the_legend_has_room_for_every_label(tmp_path: Path, labels: list[str]) -> None:
    algorithms = {label: {"algorithm": "snes"} for label in labels}
    write_learning(tmp_path, seeds=1, algorithms=algorithms)
    figure = draw_figure(tmp_path)
    assert len(legend_texts(figure)) == len(labels)
    legend = figure.legends[0].get_window_extent()
    width, height = figure.get_size_inches() * figure.dpi
    assert 0 <= legend.x0 < legend.x1 <= width
    assert legend.y0 >= 0
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert not box.overlaps(legend)
        assert box.height > 0.3 * height


def test_styles_of_other_labels_are_stable_and_never_collide() -> None:
    alone = assign_styles({"mine": "mine"})
    both = assign_styles({"openai_es": "openai_es", "mine": "mine"})
    assert both["openai_es"] == STYLES["openai_es"]
    assert assign_styles({"mine": "mine"}) == alone
    names = [f"label {number}" for number in range(39)]
    chosen = list(assign_styles(dict(zip(names, names, strict=True))).values())
    assert len({(style.line, style.marker) for style in chosen}) == 39
    assert len({(style.line, style.color) for style in chosen[:16]}) == 16
    first, second = assign_styles({"pgpe linear": "pgpe", "pgpe mlp": "pgpe"}).values()
    assert first == STYLES["pgpe"]
    assert (second.color, second.marker) != (first.color, first.marker)


def test_nothing_to_draw_and_no_place_to_write_are_errors(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path / "run"):
        write_trial(trial, make_records([1.0]), error="Traceback")
    with pytest.raises(UsageError, match="nothing to draw in .* no trial has two generations"):
        draw(tmp_path / "run")
    write_learning(tmp_path / "run", seeds=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        draw(tmp_path / "run", tmp_path / "file")
