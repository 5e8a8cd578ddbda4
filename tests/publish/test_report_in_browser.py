from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_entries import fake_suite
from past_checks import write_check, write_levels
from playwright.sync_api import Browser, Locator, Page
from programs import chromium
from report_folder import ALGORITHMS, ENVIRONMENTS, write_folder

from esbench.publish.history import history
from esbench.publish.html.history_page import write_history
from esbench.publish.html.report import write_report
from esbench.publish.leaderboard.table import as_page, leaderboard_rows

QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(*QUIET) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_folder(tmp_path_factory.mktemp("report") / "runs"))


@contextmanager
def opened(browser: Browser, file: Path, **settings: Any) -> Iterator[Page]:
    """Open the report; a console message, an error or a network request is a failure."""
    wrong: list[str] = []
    page = browser.new_page(**settings)
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url))
    page.set_default_timeout(60_000)  # a loaded machine parses Plotly slowly
    page.goto(file.as_uri())
    yield page
    page.close()
    assert [text for text in wrong if not text.startswith(("data:", file.as_uri()))] == []


@pytest.fixture(scope="module")
def desktop(browser: Browser, file: Path) -> Iterator[Page]:
    """The report on a wide screen with all charts drawn; a test leaves all algorithms visible."""
    with opened(browser, file, viewport={"width": 1280, "height": 900}) as page:
        draw_all(page)
        yield page


def chip(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation").get_by_role("button", name=name, exact=True)


def draw_all(page: Page) -> None:
    for chart in page.locator("figure.chart").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".scatterlayer .trace").first.wait_for(state="attached")
    page.evaluate("scrollTo(0, 0)")


def drawn(page: Page) -> set[str]:
    """The algorithms whose lines are visible in the charts."""
    names: list[str] = page.evaluate(
        """[...document.querySelectorAll(".plot.js-plotly-plot")]
            .flatMap(plot => plot.data.filter(trace => trace.visible).map(trace => trace.meta))"""
    )
    return set(names)


def rows(page: Page) -> list[str]:
    """The algorithms of the visible rows of the score table."""
    cells = page.locator("#scores tbody tr:visible td:nth-child(2)")
    return [text.strip() for text in cells.all_inner_texts()]


def test_all_charts_are_visible(desktop: Page) -> None:
    assert desktop.title() == "runs"
    charts = desktop.locator("figure.chart").all()
    assert len(charts) == 2 + len(ENVIRONMENTS) * 10
    assert drawn(desktop) == set(ALGORITHMS)
    for chart in charts:
        box = chart.locator(".main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 200
        assert chart.locator(".scatterlayer path.js-line").count() >= len(ALGORITHMS)


def test_a_click_isolates_an_algorithm_and_another_one_shows_all(desktop: Page) -> None:
    everything = rows(desktop)
    assert set(everything) == drawn(desktop) == set(ALGORITHMS)
    chip(desktop, "snes").click()
    assert rows(desktop) == ["snes"] * len(ENVIRONMENTS)
    assert drawn(desktop) == {"snes"}
    assert chip(desktop, "snes").get_attribute("aria-pressed") == "true"
    chip(desktop, "cma_es").click(modifiers=["Control"])
    assert set(rows(desktop)) == drawn(desktop) == {"cma_es", "snes"}
    chip(desktop, "cma_es").click()
    assert set(rows(desktop)) == drawn(desktop) == {"cma_es"}
    chip(desktop, "cma_es").click()
    assert rows(desktop) == everything
    chip(desktop, "snes").focus()
    desktop.keyboard.press("Enter")
    assert set(rows(desktop)) == {"snes"}
    desktop.locator("#all").click()
    assert rows(desktop) == everything
    assert drawn(desktop) == set(ALGORITHMS)
    assert desktop.locator("#all").is_hidden()


def test_a_phone_can_read_it(browser: Browser, file: Path) -> None:
    settings = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    with opened(browser, file, **settings) as page:
        chip(page, "snes").tap()
        draw_all(page)
        assert drawn(page) == {"snes"}  # also in the charts drawn after the tap
        page.locator("#all").tap()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        for box in (chart.bounding_box() for chart in page.locator(".plot .main-svg").all()):
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
        chart = page.locator("#environment-2 figure.chart").first
        chart.scroll_into_view_if_needed()
        chart.locator(".nsewdrag").first.tap()
        assert set(rows(page)) == set(ALGORITHMS)


def test_printing_draws_all_charts(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        assert page.pdf(format="A4").startswith(b"%PDF")
        assert page.locator(".plot.js-plotly-plot").count() == page.locator("figure.chart").count()


def test_without_scripts_the_tables_are_there(browser: Browser, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as page:
        assert len(rows(page)) == len(ALGORITHMS) * len(ENVIRONMENTS)
        assert page.locator("noscript:visible").count() == page.locator("figure.chart").count()


def test_filters_of_the_leaderboard_hide_other_rows(browser: Browser, tmp_path: Path) -> None:
    entries = fake_suite("mujoco-mlp")
    hopper = [entry for entry in entries if entry.cell.environment == "Hopper-v5"]
    page_file = tmp_path / "leaderboard.html"
    page_file.write_text(as_page(leaderboard_rows(entries)))
    with opened(browser, page_file, viewport={"width": 1240, "height": 900}) as page:
        table = page.locator("main .scroll").first
        assert table.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert table.locator("tr[data-environment]:visible").count() == len(entries)
        page.get_by_label("Environment").select_option("Hopper-v5")
        assert table.locator("th.group:visible").all_text_contents() == ["Hopper-v5"]
        assert table.locator("tr[data-environment]:visible").count() == len(hopper)
        page.get_by_label("Environment").select_option("")
        assert table.locator("tr[data-environment]:visible").count() == len(entries)


def test_a_point_of_the_history_is_a_link_to_its_commit(browser: Browser, tmp_path: Path) -> None:
    write_levels(tmp_path / "checks", [0.0, 0.0, -4.0], repeated=2)
    write_check(tmp_path / "checks", 2, [1.0, 2.0], algorithm="<img src=x onerror=alert(1)>")
    found = history([tmp_path / "checks"])
    file = write_history(found, tmp_path / "h.html", "https://github.com/me/agents/commit/")
    address = f"https://github.com/me/agents/commit/{4:040x}"
    with opened(browser, file, viewport={"width": 1280, "height": 900}) as page:
        assert page.title() == "Checks of me/agents"
        draw_all(page)
        changes = page.locator("#changes tbody tr")
        assert changes.count() == 1
        links = [link.get_attribute("href") for link in changes.locator("a").all()]
        assert links == [
            address,
            "#cell-2-4",
            f"https://github.com/me/agents/compare/{3:040x}...{4:040x}",
        ]
        page.evaluate(
            """addEventListener("click", (event) => {
                const link = event.target.closest("a");
                if (link) document.body.dataset.followed = link.href;
                event.preventDefault();
            })"""
        )
        plot = page.locator("#cell-2 .plot").first
        plot.scroll_into_view_if_needed()
        points = plot.locator(".scatterlayer .points path")
        box = points.nth(4).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.locator("#cell-2 .hovertext").wait_for()  # Plotly knows the point
        page.mouse.down()
        page.mouse.up()
        page.locator(f"body[data-followed='{address}']").wait_for(timeout=10_000)
        assert page.locator("#cell-2-4").is_hidden()
        page.evaluate("location.hash = 'cell-2-4'")
        page.locator("#cell-2-4").wait_for(state="visible")
