import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkout import LEADERBOARD, ROOT
from fake_entries import fake_suite
from past_checks import write_check
from playwright.sync_api import Browser, Locator, Page
from programs import chromium
from report_folder import ALGORITHMS, ENVIRONMENTS, write_folder

from esbench.publish.history import history
from esbench.publish.html.history_page import history_page
from esbench.publish.html.leaderboard_page import as_page
from esbench.publish.html.report import write_report
from esbench.publish.leaderboard.films import films_folder, read_films
from esbench.publish.leaderboard.table import leaderboard_rows
from esbench.publish.tables.table_notes import TUNED
from esbench.results.entries import read_entry
from esbench.results.reported_scores import read_reported

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
    """The algorithms of the visible rows of the score table, without the mark of tuned ones."""
    cells = page.locator("#scores tbody tr:visible td:nth-child(2)")
    return [text.strip(f" {TUNED}") for text in cells.all_inner_texts()]


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


def board_column(page: Page, environment: str, column: int) -> list[str]:
    """The texts of a column of the visible rows of an environment."""
    cells = page.locator(
        f'.board tr[data-environment="{environment}"]:visible td:nth-child({column})'
    )
    return [text.strip() for text in cells.all_inner_texts()]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a leaderboard with a film, and with several protocols and a missing number."""
    folder = tmp_path_factory.mktemp("board") / "leaderboard"
    entries = fake_suite("mujoco-mlp")
    spec = entries[0].spec
    grown = spec | {"environment": {**spec["environment"], "max_episode_steps": [[0, 9]]}}
    cell = entries[0].cell.model_copy(update={"spec": grown})
    entries[0] = entries[0].model_copy(update={"cell": cell})
    runs = tuple(run.model_copy(update={"best_center": None}) for run in entries[1].runs)
    entries[1] = entries[1].model_copy(update={"runs": runs})
    film = next(each for each in read_films(LEADERBOARD) if each.environment == "CartPole-v1")
    filmed = read_entry(LEADERBOARD / film.row)
    shutil.copytree(films_folder(LEADERBOARD), films_folder(folder))
    file = folder.with_suffix(".html")
    reported = read_reported(ROOT / "results" / "published")
    file.write_text(as_page(leaderboard_rows([*entries, filmed]), folder, reported))
    return file


def test_the_leaderboard_filters_sorts_and_shows_films(browser: Browser, board: Path) -> None:
    size = {"width": 1240, "height": 900}
    with opened(browser, board, viewport=size, permissions=["clipboard-write"]) as page:
        table = page.locator("main .scroll").first
        assert table.evaluate("node => node.scrollWidth <= node.clientWidth")
        count = table.locator("tr[data-environment]").count()
        for name, value, shown in (
            ("Environment", "Hopper-v5", 6),
            ("Protocol", "growing episodes", 1),
            ("Steps", "500 k", 1),
            ("Policy", "mlp 64-64", 12),
        ):
            page.get_by_label(name).select_option(value)
            assert table.locator("tr[data-environment]:visible").count() == shown, name
            groups = table.locator("th.group:visible").all_inner_texts()
            assert len(groups) == (2 if shown == 12 else 1)
            page.get_by_label(name).select_option("")
        assert table.locator("tr[data-environment]:visible").count() == count
        reported = page.locator("#reported tbody tr:visible")
        every = reported.count()
        page.get_by_label("Environment").select_option("Hopper-v5")
        assert [text.split("\t")[0] for text in reported.all_inner_texts()] == ["Hopper-v3"]
        link = reported.get_by_role("link")
        assert link.get_attribute("href") == link.inner_text()
        page.get_by_label("Environment").select_option("CartPole-v1")
        assert page.locator("#reported").is_hidden()
        page.get_by_label("Environment").select_option("")
        assert reported.count() == every > 1
        headings = table.locator("thead th").all_inner_texts()
        assert headings[:2] == ["Algorithm", "Score"]
        assert table.locator("thead button").all_inner_texts() == headings

        def order(heading: str) -> str | None:
            return table.get_by_role("columnheader", name=heading).get_attribute("aria-sort")

        scores = board_column(page, "Hopper-v5", 2)
        page.get_by_role("button", name="Score").click()
        assert order("Score") == "ascending"
        assert board_column(page, "Hopper-v5", 2) == scores[::-1]
        place = headings.index("Best seen") + 1
        for key, expected in (("Enter", "descending"), ("Space", "ascending")):
            page.get_by_role("button", name="Best seen").press(key)
            assert (order("Best seen"), order("Score")) == (expected, None)
            *texts, last = board_column(page, "HalfCheetah-v5", place)
            numbers = [float(text) for text in texts]
            assert numbers == sorted(numbers, reverse=expected == "descending")
            assert last == "-"  # a missing number is last in both orders
        page.get_by_role("button", name="Algorithm").click()
        names = board_column(page, "Hopper-v5", 1)
        assert names == sorted(names)
        groups = table.locator("th.group").all_inner_texts()
        assert [text.split("\n")[0] for text in groups] == [
            "CartPole-v1", "HalfCheetah-v5", "Hopper-v5"
        ]  # fmt: skip
        assert "v4" in groups[1]

        table.get_by_role("button", name="replay").click()
        command = table.locator("[data-copy]").get_attribute("data-copy") or ""
        assert command.startswith("esbench verify --replay ")
        table.get_by_role("button", name="copied").wait_for()
        table.get_by_role("link", name="film").click()
        film = page.locator(".made figure img")
        film.scroll_into_view_if_needed()
        assert film.evaluate("image => image.decode().then(() => image.naturalWidth)") == 320
        assert page.locator(".replay code").inner_text() == command


@pytest.mark.parametrize("width", [PHONE["width"], 1280])
def test_the_legend_of_a_history_is_above_the_names_of_changes(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    for number, score in enumerate([500.0] * 4 + [100.0] * 8):
        scores = [score + number + seed / 8 for seed in range(8)]
        write_check(tmp_path / "checks", number, scores)
    page_file = tmp_path / "h.html"
    page_file.write_text(history_page(history([tmp_path / "checks"])), encoding="utf-8")
    with opened(browser, page_file, viewport={"width": width, "height": 900}) as page:
        name, legend = (page.locator(each).first for each in (".annotation", ".legend"))
        boxes = name.bounding_box(), legend.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["y"] + boxes[1]["height"] <= boxes[0]["y"] + 1


def test_a_phone_shows_every_name_and_score_of_the_leaderboard(
    browser: Browser, board: Path
) -> None:
    with opened(browser, board, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        cells = ".board tr[data-environment] td:nth-child(-n + 2), .board th.group div, select"
        boxes = [cell.bounding_box() for cell in page.locator(cells).all()]
        assert len(boxes) > 30
        for box in boxes:
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
        page.locator(".board").evaluate("table => table.parentElement.scrollLeft = 500")
        name = page.locator(".board tr[data-environment] td").first.bounding_box()
        assert name is not None
        assert 0 <= name["x"] < 30  # the name stays
        page.get_by_role("link", name="film").click()
        film = page.locator(".made figure img")
        film.scroll_into_view_if_needed()
        box = film.bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= PHONE["width"]
        assert box["width"] > 200
