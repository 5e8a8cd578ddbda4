"""The report in a real browser: Chromium without a screen."""

from __future__ import annotations

import math
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
STILL = """async () => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    await Promise.all(document.getAnimations().map(animation => animation.finished));
}"""
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
    """Open the report; whatever the console is told, fails or is asked of a network is wrong."""
    wrong: list[str] = []
    pages: list[Page] = []

    def open_(**settings: Any) -> Page:
        page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | settings))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked(request.url))
        page.set_default_timeout(10_000)
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


def opacities(page: Page) -> dict[str, float]:
    """Return the opacity of each algorithm's curves, which all share one."""
    page.evaluate(STILL)
    found: list[tuple[str, str]] = page.evaluate(
        "[...document.querySelectorAll('.curve')]"
        ".map(c => [c.dataset.algorithm, getComputedStyle(c).opacity])"
    )
    by_name = {ALGORITHMS[int(number)]: set[float]() for number, _ in found}
    for number, opacity in found:
        by_name[ALGORITHMS[int(number)]].add(float(opacity))
    assert all(len(values) == 1 for values in by_name.values())
    return {name: values.pop() for name, values in by_name.items()}


def rows(page: Page) -> list[str]:
    """Return the algorithms of the rows of scores that are seen."""
    cells = page.locator("#scores tbody tr:visible td:nth-child(2)")
    return [text.strip() for text in cells.all_inner_texts()]


def keep(page: Page, name: str, **settings: Any) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", **settings)


def test_all_charts_are_visible(report: Open) -> None:
    page = report()
    assert page.title() == "runs"
    charts = page.locator("figure.chart")
    assert charts.count() == 2 + len(ENVIRONMENTS) * 10
    for chart in charts.all():
        box = chart.locator("> svg").bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 200
        assert chart.locator("g.curve").count() >= len(ALGORITHMS)
    sizes: list[float] = page.evaluate(
        "[...document.querySelectorAll('figure .curve > path')]"
        ".map(p => p.getBoundingClientRect()).map(b => b.width + b.height)"
    )
    assert min(sizes) > 4
    inside: list[bool] = page.evaluate(
        """[...document.querySelectorAll("figure.chart script")].flatMap(script => {
            const {bounds, series} = JSON.parse(script.textContent);
            return series.map(one => one.at.filter(at => at !== null))
                .map(at => at.length > 1 && at.every(y => y >= bounds[1] && y <= bounds[3]));
        })"""
    )
    assert all(inside)
    keep(page, "report", full_page=True)


def test_a_click_isolates_an_algorithm_and_another_one_shows_all(report: Open) -> None:
    page = report()
    everything = rows(page)
    assert sorted(set(everything)) == list(ALGORITHMS)
    assert set(opacities(page).values()) == {1.0}
    chip(page, "snes").click()
    faint = opacities(page)
    assert faint["snes"] == 1.0
    assert max(faint["cma_es"], faint["openai_es"]) < 0.1
    assert rows(page) == ["snes"] * len(ENVIRONMENTS)
    assert chip(page, "snes").get_attribute("aria-pressed") == "true"
    chip(page, "cma_es").click(modifiers=["Control"])
    assert sorted(set(rows(page))) == ["cma_es", "snes"]
    chip(page, "cma_es").click()
    assert set(rows(page)) == {"cma_es"}
    keep(page, "isolated", full_page=True)
    chip(page, "cma_es").click()
    assert rows(page) == everything
    page.mouse.move(0, 0)
    assert set(opacities(page).values()) == {1.0}
    assert page.get_by_text("Show all").is_hidden()


def test_environments_are_filtered_too(report: Open) -> None:
    page = report()
    chip(page, "CartPole-v1").click()
    assert page.locator("section.environment:visible h2").all_inner_texts() == ["CartPole-v1"]
    assert len(rows(page)) == len(ALGORITHMS)
    chip(page, "snes").focus()
    page.keyboard.press("Enter")
    assert rows(page) == ["snes"]
    page.get_by_text("Show all").click()
    assert len(rows(page)) == len(ALGORITHMS) * len(ENVIRONMENTS)


def test_hovering_a_name_brings_its_curves_forward(report: Open) -> None:
    page = report()
    chip(page, "snes").hover()
    found = opacities(page)
    assert found["snes"] == 1.0
    assert max(found["cma_es"], found["openai_es"]) < 0.5


def test_numbers_are_read_off_a_chart_and_a_click_on_a_curve_isolates_it(report: Open) -> None:
    page = report()
    chart = page.locator("section.environment figure.chart").first
    chart.scroll_into_view_if_needed()
    data = chart.locator("script").evaluate("script => JSON.parse(script.textContent)")
    (series,) = (one for one in data["series"] if one["algorithm"] == ALGORITHMS.index("snes"))
    place = 80
    left, _, right, _ = data["bounds"]
    first, last = data["span"]
    across = left + (series["x"][place] - first) / (last - first) * (right - left)
    box = chart.locator("> svg").bounding_box()
    assert box is not None
    scale = box["width"] / 259.2
    x, y = box["x"] + across * scale, box["y"] + series["at"][place] * scale
    page.mouse.move(x, y)
    name, value, interval = page.locator("#readout .near").inner_text().split("\t")
    assert name == "snes (2 of 4 seeds)"
    assert float(value) == pytest.approx(series["y"][place], rel=1e-3)
    assert interval == ""  # two seeds
    page.mouse.click(x, y)
    assert set(rows(page)) == {"snes"}
    page.mouse.move(0, 0)
    assert page.locator("#readout").is_hidden()
    assert page.url.endswith("#algorithm=snes")
    page.reload()
    assert set(rows(page)) == {"snes"}


def aim(page: Page, chart: Locator, algorithm: str, place: int) -> dict[str, Any]:
    """Move the mouse to a point of an algorithm's line; return what its series says."""
    chart.scroll_into_view_if_needed()
    data = chart.locator("script").evaluate("script => JSON.parse(script.textContent)")
    wanted = ALGORITHMS.index(algorithm)
    series: dict[str, Any]
    (series,) = (one for one in data["series"] if one["algorithm"] == wanted)
    scale = math.log if data["log"] else float
    (left, _, right, _), (first, last) = data["bounds"], map(scale, data["span"])
    across = left + (scale(series["x"][place]) - first) / (last - first) * (right - left)
    box = chart.locator("> svg").bounding_box()
    assert box is not None
    unit = box["width"] / 259.2
    page.mouse.move(box["x"] + across * unit, box["y"] + series["at"][place] * unit)
    return series


def test_intervals_and_logarithmic_axes_are_read_off(report: Open) -> None:
    page = report()
    chart = page.locator("section.environment figure.chart").first
    series = aim(page, chart, "openai_es", 60)
    interval = page.locator("#readout tr").filter(has_text="openai_es").inner_text().split("\t")[2]
    low, high = map(float, re.findall(r"-?[\d.]+", interval))
    assert low < high
    assert (low, high) == pytest.approx((series["low"][60], series["high"][60]), rel=1e-3)
    chart = page.locator("#summary figure.chart").first
    assert chart.locator("script").evaluate("script => JSON.parse(script.textContent).log")
    series = aim(page, chart, "openai_es", 70)
    line = page.locator("#readout tr").filter(has_text="openai_es")
    assert float(line.inner_text().split("\t")[1]) == pytest.approx(series["y"][70], abs=0.02)


def test_the_keyboard_reads_numbers_off(report: Open) -> None:
    page = report()
    page.locator("section.environment figure.chart > svg").first.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#readout").inner_text()
    assert "environment steps" in first
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout").inner_text() != first
    page.keyboard.press("Tab")
    assert page.locator("#readout").is_hidden()


def brightness(page: Page, selector: str, property_: str) -> float:
    color: str = page.locator(selector).first.evaluate(
        f"element => getComputedStyle(element)['{property_}']"
    )
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3


def test_dark_and_light(report: Open) -> None:
    for scheme in ("light", "dark"):
        page = report(color_scheme=scheme)
        paper = brightness(page, "body", "backgroundColor")
        assert (paper < 60) == (scheme == "dark")
        for selector, property_ in (
            ("body", "color"),
            (".chart svg text", "fill"),
            (
                '.chart .curve[data-algorithm="0"] > path[style*="stroke: var"]',
                "stroke",
            ),  # cma_es is black on white
        ):
            assert abs(brightness(page, selector, property_) - paper) > 120
        keep(page, scheme)
        page.get_by_text("Light / dark").click()
        assert (brightness(page, "body", "backgroundColor") < 60) == (scheme == "light")


def test_a_phone_can_read_it(report: Open) -> None:
    page = report(viewport=PHONE, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    for box in (chart.bounding_box() for chart in page.locator("figure.chart").all()):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    heights: list[float] = page.evaluate(
        "[...document.querySelectorAll('.chart svg text')].map(t => t.getBoundingClientRect())"
        ".map(b => Math.min(b.width || b.height, b.height))"
    )
    assert min(heights) > 5
    toolbar = page.locator("nav").bounding_box()
    assert toolbar is not None
    assert toolbar["height"] < 70
    chart = page.locator("section.environment figure.chart > svg").first
    chart.scroll_into_view_if_needed()
    chart.tap()
    assert page.locator("#readout").is_visible()
    keep(page, "phone")


def test_paper_has_everything(report: Open) -> None:
    page = report(color_scheme="dark")
    chip(page, "snes").hover()
    shown = page.pdf(format="A4")
    assert shown.startswith(b"%PDF")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert brightness(page, "body", "color") < 60
    assert page.get_by_text("Light / dark").is_hidden()
    assert page.locator("#trials dl.settings").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#trials dl.settings").first.is_hidden()


def test_without_scripts_it_is_all_there(report: Open, browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("figure.chart svg g.curve:visible").count() > len(ALGORITHMS)
    assert len(rows(page)) == len(ALGORITHMS) * len(ENVIRONMENTS)
    context.close()
