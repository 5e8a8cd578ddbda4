from __future__ import annotations

import json
import re

import numpy as np
import numpy.testing as npt
import pytest

from esbench.reporting.figures.style import STYLES
from esbench.reporting.html.charts import Chart, Drawing, Place, Series, draw, swatch

X = np.linspace(0.0, 100.0, 7)
Y = np.array([1.0, 3.0, 2.0, 5.0, 8.0, 13.0, 21.0])


def series(y: np.ndarray, algorithm: int = 0, style: str = "openai_es") -> Series:
    return Series(Place(algorithm, STYLES[style]), style, X, y, y - 1, y + 1)


def path_of(svg: str, algorithm: int) -> np.ndarray:
    """Return the points [points, 2] of an algorithm's line, as a browser would draw them."""
    group = rf'<g class="curve" data-algorithm="{algorithm}"> <path d="([^"]*)"[^>]*?fill: none'
    (line,) = re.findall(group, svg)
    return np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", line), dtype=float)


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_what_is_read_off_lies_where_the_line_is_drawn(scale: str) -> None:
    y = -Y if scale == "symlog" else Y
    drawing = draw(Chart("Return", "steps", [series(y)], scale=scale), "a")  # type: ignore[arg-type]
    points, (read,) = path_of(drawing.svg, 0), drawing.data["series"]
    npt.assert_allclose(read["at"], points[:, 1], atol=0.06)
    left, top, right, bottom = drawing.data["bounds"]
    first, last = drawing.data["span"]
    across = left + (np.array(read["x"]) - first) / (last - first) * (right - left)
    npt.assert_allclose(across, points[:, 0], atol=0.1)
    assert np.all((points[:, 1] > top - 0.1) & (points[:, 1] < bottom + 0.1))
    npt.assert_array_equal(read["y"], y)
    npt.assert_array_equal(read["low"], y - 1)
    npt.assert_array_equal(read["high"], y + 1)


def test_a_logarithmic_horizontal_axis_is_read_off_by_logarithms() -> None:
    x = np.geomspace(10.0, 1000.0, 7)
    line = Series(Place(0, STYLES["snes"]), "snes", x, Y, Y, Y)
    drawing = draw(Chart("Reached", "steps", [line], x_log=True), "a")
    left, _, right, _ = drawing.data["bounds"]
    first, last = np.log(drawing.data["span"])
    across = left + (np.log(x) - first) / (last - first) * (right - left)
    npt.assert_allclose(across, path_of(drawing.svg, 0)[:, 0], atol=0.1)
    assert drawing.data["log"] is True


def test_a_gap_is_null_and_json_has_no_nan() -> None:
    y = Y.copy()
    y[2] = np.nan
    (read,) = draw(Chart("Return", "steps", [series(y)]), "a").data["series"]
    assert read["y"][2] is None
    assert read["at"][2] is None
    assert json.loads(json.dumps(read, allow_nan=False)) == read


def test_what_a_logarithmic_axis_cannot_show_is_nowhere() -> None:
    y = Y.copy()
    y[0] = 0.0
    (read,) = draw(Chart("Sigma", "generation", [series(y)], scale="log"), "a").data["series"]
    assert read["y"][0] == 0.0
    assert read["at"][0] is None


def corners_of(svg: str) -> np.ndarray:
    """Return the corners [corners, 2] of the first interval that is filled."""
    (path, *_) = re.findall(r'data-algorithm="0"> <defs> <path id="[^"]*" d="([^"]*)"', svg)
    return np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path), dtype=float)


def test_the_interval_is_filled_from_low_to_high() -> None:
    drawing = draw(Chart("Return", "steps", [series(Y)]), "a")
    points = path_of(drawing.svg, 0)
    unit = (points[0, 1] - points[-1, 1]) / (Y[-1] - Y[0])
    heights = np.ptp(corners_of(drawing.svg)[:, 1])
    assert heights == pytest.approx(unit * (Y[-1] + 1 - (Y[0] - 1)), abs=0.1)


@pytest.mark.parametrize("end", [0.1, 0.1 + 1e-16, 0.12, 1e-9])
def test_a_logarithmic_axis_has_numbers_whatever_it_spans(end: float) -> None:
    y = np.geomspace(0.1, end, 7)
    line = Series(Place(0, STYLES["snes"]), "snes", X, y, y, y)
    drawing = draw(Chart("Sigma", "generation", [line], scale="log"), "a")
    (read,) = drawing.data["series"]
    left, top, _, bottom = drawing.data["bounds"]
    assert all(top < at < bottom for at in read["at"])
    texts = re.findall(
        r'<text style="[^"]*text-anchor: end[^"]*" x="([\d.]+)" y="([\d.]+)"', drawing.svg
    )
    inside = [float(y) for x, y in texts if float(x) < left and top < float(y) < bottom + 8]
    assert len(inside) >= 2


def test_room_about_the_lines_is_on_the_scale_they_are_drawn_on() -> None:
    y = -np.geomspace(1e6, 1e-6, 7)
    line = Series(Place(0, STYLES["snes"]), "snes", X, y, y, y)
    drawing = draw(Chart("Value", "steps", [line], scale="symlog", linear_below=1e-6), "a")
    (read,) = drawing.data["series"]
    _, top, _, bottom = drawing.data["bounds"]
    # Above the best there is a twentieth of the axis, and not a mirrored half.
    assert read["at"][-1] - top < 0.15 * (bottom - top)


def test_a_line_unlike_the_others_is_named_below() -> None:
    labels = [
        "snes (4 seeds)",
        "ars (2 of 3 seeds)",
        "cem (1 seed, unfinished)",
        "xnes\N{DAGGER} (2 seeds)",
    ]
    lines = [Series(Place(n, STYLES["snes"]), label, X, Y, Y, Y) for n, label in enumerate(labels)]
    drawing = draw(Chart("Return", "steps", lines), "a")
    assert drawing.notes == labels[1:]
    assert [read["label"] for read in drawing.data["series"]] == labels


def test_marks_are_drawn_where_they_are() -> None:
    chart = Chart("Return", "steps", [series(Y)], marks=[(13.0, "solved")], upright=(50.0,))
    drawing = draw(chart, "a")
    at = path_of(drawing.svg, 0)[5, 1]
    assert 'class="mark"' in drawing.svg
    assert re.search(rf"L [\d.]+ {at:.2f} \" clip", drawing.svg)


def test_every_colour_is_a_variable_of_the_page() -> None:
    styles = ["openai_es", "cma_es", "ars", "pgpe", "snes", "cem", "ns_es", "random_search"]
    chart = Chart(
        "Return",
        "steps",
        [series(Y + place, place, style) for place, style in enumerate(styles)],
        marks=[(3.0, "random\npolicy")],
        chance=(1.0, 2.0),
    )
    svg = draw(chart, "a").svg
    colours = re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)
    assert {colour for colour in colours if not colour.startswith("var(--")} == {"none"}
    bands = re.findall(r'data-algorithm="\d"> <defs>.*?</g>', svg)
    assert len(bands) == len(styles)
    # A band that says nothing of its colour would be black, on a dark page too.
    assert all("fill: var(--line-" in band for band in bands)


def test_texts_are_no_markup() -> None:
    chart = Chart('<b>"a" & b</b>', "<i>", [series(Y)], marks=[(2.0, "costs $1 & $2 <u>")])
    svg = draw(chart, "a").svg
    assert not re.search("<[biu]>", svg)
    assert "costs $1 &amp; $2 &lt;u&gt;" in svg


def parts(drawing: Drawing) -> set[str]:
    return set(re.findall(r' id="([^"]+)"', drawing.svg))


def test_parts_of_two_drawings_have_names_of_their_own() -> None:
    chart = Chart("Return", "steps", [series(Y)])
    assert parts(draw(chart, "a"))
    assert not parts(draw(chart, "a")) & parts(draw(chart, "b"))
    assert draw(chart, "a") == draw(chart, "a")
    symbol = swatch(STYLES["openai_es"], "s")
    assert symbol.startswith('<symbol id="s"')
    assert "var(--line-4)" in symbol
