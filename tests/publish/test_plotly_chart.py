import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

from esbench.core.json_text import Json
from esbench.publish.figures.chart import Chart, Curve
from esbench.publish.figures.style import STYLES
from esbench.publish.html.plotly_chart import make_chart as plotly

X = np.linspace(0.0, 100.0, 7)
Y = np.array([1.0, 3.0, 2.0, 5.0, 8.0, 13.0, 21.0])


def line(y: np.ndarray, label: str = "snes (4 seeds)") -> Curve:
    return Curve("snes", label, STYLES["snes"], X, y, y - 0.5, y + 0.5)


def make_chart(curves: list[Curve], x_label: str = "steps", **more: Any) -> Json:
    return plotly(Chart(title="Return", x_label=x_label, y_label="return", curves=curves, **more))


def parts(chart: Json) -> tuple[Json, Json]:
    """The band and the line of a chart of one algorithm."""
    band, curve = chart["figure"]["data"]
    return band, curve


def test_a_line_has_its_points_and_a_band_from_low_to_high() -> None:
    band, curve = parts(make_chart([line(Y)]))
    npt.assert_array_equal(curve["x"], X.round(3))
    npt.assert_array_equal(curve["y"], Y)
    assert [text.split()[0] for text in curve["text"]] == [str(value) for value in Y]
    npt.assert_array_equal(band["y"][:7], Y + 0.5)
    npt.assert_array_equal(band["y"][7:14], Y[::-1] - 0.5)
    assert band["meta"] == curve["meta"] == "snes"


def test_a_gap_is_null_and_splits_the_band() -> None:
    y = Y.copy()
    y[2] = np.nan
    chart = make_chart([line(y)])
    band, curve = parts(chart)
    assert curve["y"][2] is None
    assert [index for index, value in enumerate(band["y"]) if value is None] == [4, 13]
    assert json.loads(json.dumps(chart["figure"], allow_nan=False)) == chart["figure"]


def test_a_curve_without_a_known_value_is_drawn_empty() -> None:
    (curve,) = make_chart([line(Y * np.nan)])["figure"]["data"]
    assert curve["y"] == [None] * len(Y)


def test_log_below_zero_draws_the_distance_from_zero_downwards() -> None:
    y = -np.geomspace(1e6, 1e-6, 7)
    chart = make_chart([line(y)], nearest_zero=-1e-3, levels=[(0, "0")])
    _, curve = parts(chart)
    npt.assert_allclose(curve["y"], np.maximum(-y, 1e-3))
    npt.assert_allclose([float(text.split()[0]) for text in curve["text"]], y)
    axis = chart["figure"]["layout"]["yaxis"]
    assert (axis["type"], axis["autorange"]) == ("log", "reversed")
    assert chart["figure"]["layout"]["annotations"][0]["y"] == pytest.approx(-3)


def test_bars_on_a_log_axis_below_zero_end_at_the_interval() -> None:
    ticks = dict(zip(X, "abcdefg", strict=True))
    skewed = replace(line(-Y), low=-Y - 2, high=-Y + 0.75)
    (curve,) = make_chart([skewed], nearest_zero=-0.5, ticks=ticks)["figure"]["data"]
    bars = curve["error_y"]
    npt.assert_allclose(np.add(curve["y"], bars["array"]), Y + 2)
    npt.assert_allclose(np.subtract(curve["y"], bars["arrayminus"]), np.maximum(Y - 0.75, 0.5))


def test_marks_and_chance_are_shapes() -> None:
    marks = [(1.0, "random\npolicy"), (13.0, "costs $1 & <u>")]
    chart = make_chart([line(Y)], levels=marks, places=[(50.0, "here")], chance=(0.3, 0.7))
    layout = chart["figure"]["layout"]
    band, *levels, upright = layout["shapes"]
    assert (band["y0"], band["y1"]) == (0.3, 0.7)
    assert upright["x0"] == upright["x1"] == 50.0
    assert [(level["y0"], level["y1"]) for level in levels] == [(1.0, 1.0), (13.0, 13.0)]
    texts = [note["text"] for note in layout["annotations"]]
    assert texts == ["random<br>policy", "costs $1 &amp; &lt;u&gt;", "here"]


def test_names_of_marks_stand_beside_the_curves_and_apart() -> None:
    layout = make_chart([line(Y)], levels=[(1.0, "random"), (1.2, "solved"), (9.0, "PPO")])[
        "figure"
    ]["layout"]
    assert [(note["x"], note["xanchor"]) for note in layout["annotations"]] == [(1, "left")] * 3
    assert [note["yanchor"] for note in layout["annotations"]] == ["top", "bottom", "middle"]
    assert layout["margin"]["r"] > 40


def test_a_mark_that_would_squeeze_the_curves_is_a_text_only() -> None:
    chart = make_chart([line(Y)], levels=[(1.0, "low"), (4800.0, "solved")])
    layout = chart["figure"]["layout"]
    assert [shape["y0"] for shape in layout["shapes"]] == [1.0]
    inside, beyond = layout["annotations"]
    assert (inside["y"], "yref" in inside) == (1.0, False)
    assert (beyond["y"], beyond["yref"]) == (1.0, "paper")
    assert "4800" in beyond["text"]


def test_named_values_have_bars_and_a_legend() -> None:
    ticks = dict(zip(X, "abcdefg", strict=True))
    figure = make_chart([line(Y)], ticks=ticks, log_x=True)["figure"]
    axis = figure["layout"]["xaxis"]
    assert (axis["type"], axis["tickvals"], axis["ticktext"]) == ("log", list(X), list("abcdefg"))
    assert figure["layout"]["showlegend"]
    (curve,) = figure["data"]
    assert curve["customdata"] == list("abcdefg")
    assert curve["error_y"]["array"] == curve["error_y"]["arrayminus"] == [0.5] * 7


def test_labels_are_no_markup() -> None:
    _, curve = parts(make_chart([line(Y, '<b>"a" & b</b>')], "<i>"))
    assert curve["name"] == '&lt;b&gt;"a" &amp; b&lt;/b&gt;'
    assert "<i>" not in curve["hovertemplate"]
