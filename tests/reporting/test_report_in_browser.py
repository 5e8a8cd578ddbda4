"""The report in a real browser: Chromium without a screen."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, sync_playwright
from programs import require
from report_folder import ALGORITHMS, ENVIRONMENTS, write_folder

from esbench.reporting.html.page import write_report

SCREENSHOTS = Path("results/screenshots")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}
Open = Callable[..., Page]


def executable(playwright: Playwright) -> str:
    own = playwright.chromium.executable_path
    found = own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), "")
    require(bool(found), f"a browser ({', '.join(NAMES)})")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = executable(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_folder(tmp_path_factory.mktemp("report") / "runs"))


@pytest.fixture
def report(browser: Browser, file: Path) -> Iterator[Open]:
    """Open the report; a console message, an error or a network request is a failure."""
    wrong: list[str] = []
    pages: list[Page] = []

    def open_(**settings: Any) -> Page:
        page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | settings))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked(request.url))
        page.set_default_timeout(60_000)  # a loaded machine parses Plotly slowly
        pages.append(page)
        page.goto(file.as_uri())
        return page

    def asked(url: str) -> None:
        if not url.startswith(("data:", file.as_uri())):
            wrong.append(url)

    yield open_
    for page in pages:
        page.close()
    assert wrong == []


def chip(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation").get_by_role("button", name=name, exact=True)


def draw_all(page: Page) -> int:
    """Scroll every chart into view; the number of charts."""
    charts = page.locator("figure.chart")
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        chart.locator(".scatterlayer .trace").first.wait_for(state="attached")
    page.evaluate("scrollTo(0, 0)")
    return charts.count()


def drawn(page: Page) -> set[str]:
    """The algorithms whose lines are visible in the charts."""
    numbers: list[int] = page.evaluate(
        """[...document.querySelectorAll(".plot.js-plotly-plot")]
            .flatMap(plot => plot.data.filter(trace => trace.visible).map(trace => trace.meta))"""
    )
    return {ALGORITHMS[number] for number in numbers}


def rows(page: Page) -> list[str]:
    """The algorithms of the visible rows of the score table."""
    cells = page.locator("#scores tbody tr:visible td:nth-child(2)")
    return [text.strip() for text in cells.all_inner_texts()]


def keep(page: Page, name: str, **settings: Any) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", **settings)


def test_all_charts_are_visible(report: Open) -> None:
    page = report()
    assert page.title() == "runs"
    assert draw_all(page) == 2 + len(ENVIRONMENTS) * 10
    assert drawn(page) == set(ALGORITHMS)
    for chart in page.locator("figure.chart").all():
        box = chart.locator(".main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 200
        assert chart.locator(".scatterlayer path.js-line").count() >= len(ALGORITHMS)
    keep(page, "report", full_page=True)


def test_a_click_isolates_an_algorithm_and_another_one_shows_all(report: Open) -> None:
    page = report()
    draw_all(page)
    everything = rows(page)
    assert set(everything) == drawn(page) == set(ALGORITHMS)
    chip(page, "snes").click()
    assert rows(page) == ["snes"] * len(ENVIRONMENTS)
    assert drawn(page) == {"snes"}
    assert chip(page, "snes").get_attribute("aria-pressed") == "true"
    chip(page, "cma_es").click(modifiers=["Control"])
    assert set(rows(page)) == drawn(page) == {"cma_es", "snes"}
    chip(page, "cma_es").click()
    assert set(rows(page)) == drawn(page) == {"cma_es"}
    keep(page, "isolated", full_page=True)
    chip(page, "cma_es").click()
    assert rows(page) == everything
    chip(page, "snes").focus()
    page.keyboard.press("Enter")
    assert set(rows(page)) == {"snes"}
    page.locator("#all").click()
    assert rows(page) == everything
    assert drawn(page) == set(ALGORITHMS)
    assert page.locator("#all").is_hidden()


def test_a_chart_drawn_after_isolating_shows_only_that_algorithm(report: Open) -> None:
    page = report()
    chip(page, "snes").click()
    draw_all(page)
    assert drawn(page) == {"snes"}


def aim(chart: Locator, algorithm: str, point: int) -> dict[str, Any]:
    """Move the mouse to a point of an algorithm's line; its coordinates and text."""
    chart.scroll_into_view_if_needed()
    chart.locator(".scatterlayer .trace").first.wait_for(state="attached")
    where: dict[str, Any] = chart.locator(".plot").evaluate(
        """(plot, [number, point]) => {
            const line = plot.data.find(t => t.meta === number && t.mode === "lines+markers");
            const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
            return {
                x: box.x + xaxis._offset + xaxis.d2p(line.x[point]),
                y: box.y + yaxis._offset + yaxis.d2p(line.y[point]),
                text: line.text[point],
            };
        }""",
        [ALGORITHMS.index(algorithm), point],
    )
    chart.page.mouse.move(where["x"], where["y"])
    return where


@pytest.mark.parametrize("selector", ["#environment-2 figure.chart", "figure.chart"])
def test_hovering_shows_the_numbers_and_a_click_isolates(report: Open, selector: str) -> None:
    page = report()
    chart = page.locator(selector).first
    where = aim(chart, "openai_es", 60)
    label = chart.locator(".hoverlayer .hovertext")
    label.wait_for()
    text = label.text_content() or ""
    (name,) = (name for name in set(rows(page)) if text.startswith(name))  # the nearest curve
    if name == "openai_es":
        assert text.endswith(where["text"])
        value, low, high = map(float, re.findall(r"-?[\d.]+", where["text"]))
        assert low <= value <= high
    page.mouse.click(where["x"], where["y"])
    assert set(rows(page)) == {name}


def brightness(page: Page, selector: str, property_: str) -> float:
    color: str = page.locator(selector).first.evaluate(
        f"element => getComputedStyle(element)['{property_}']"
    )
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3


CHART_COLORS = ((".plot .xtick text", "fill"), (".plot path.js-line", "stroke"))


def is_readable(page: Page) -> bool:
    """Whether texts and the first algorithm's lines stand out from the background."""
    paper = brightness(page, "body", "backgroundColor")
    parts = (("body", "color"), *CHART_COLORS)
    return all(abs(brightness(page, *part) - paper) > 120 for part in parts)


def test_dark_and_light(report: Open) -> None:
    for scheme, other in (("light", "dark"), ("dark", "light")):
        page = report(color_scheme=scheme)
        page.locator(".plot path.js-line").first.wait_for(state="attached")
        assert (brightness(page, "body", "backgroundColor") < 60) == (scheme == "dark")
        assert is_readable(page)
        keep(page, scheme)
        page.emulate_media(color_scheme=other)
        assert (brightness(page, "body", "backgroundColor") < 60) == (scheme == "light")
        assert is_readable(page)


def test_a_phone_can_read_it(report: Open) -> None:
    page = report(viewport=PHONE, has_touch=True, is_mobile=True)
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    for box in (chart.bounding_box() for chart in page.locator(".plot .main-svg").all()):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    heights: list[float] = page.evaluate(
        "[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect())"
        ".filter(b => b.width).map(b => Math.min(b.width, b.height))"
    )
    assert min(heights) > 5
    toolbar = page.locator("nav").bounding_box()
    assert toolbar is not None
    assert toolbar["height"] < 70
    chart = page.locator("#environment-2 figure.chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".nsewdrag").first.tap()
    assert sorted(set(rows(page))) == sorted(ALGORITHMS)
    keep(page, "phone")


def test_paper_has_everything(report: Open) -> None:
    page = report(color_scheme="dark")
    shown = page.pdf(format="A4")
    assert shown.startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".plot.js-plotly-plot").count() == page.locator("figure.chart").count()
    assert brightness(page, "body", "backgroundColor") > 200
    assert is_readable(page)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert brightness(page, "body", "backgroundColor") < 60
    assert is_readable(page)


def test_without_scripts_the_tables_are_there(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert len(rows(page)) == len(ALGORITHMS) * len(ENVIRONMENTS)
    assert page.locator("noscript:visible").count() == page.locator("figure.chart").count()
    context.close()
