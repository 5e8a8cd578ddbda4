"""The built documentation: links, and some pages in a headless Chromium.

``tox -e docs`` builds the site and names it in ESBENCH_SITE; elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from playwright.sync_api import Browser
from programs import chromium

SITE = Path(os.environ.get("ESBENCH_SITE", ""))
PAGES = (
    "index.html",
    "reference/algorithms/openai_es.html",
    "gallery/index.html",
    "results/suites/control.html",
    "results/environments/CartPole-v1.html",
)
SCREENS = {
    "desktop, light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "phone, dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}

pytestmark = pytest.mark.skipif("ESBENCH_SITE" not in os.environ, reason="no site is built")


class Document(HTMLParser):
    """The targets and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.ids.add(value)
            if name in {"href", "src"} and value and tag != "use":
                self.links.add(value)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium("--disable-gpu") as found:
        yield found


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_errors(browser: Browser, name: str, screen: str) -> None:
    wrong: list[str] = []
    page = browser.new_page(**SCREENS[screen])  # type: ignore[arg-type]
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.on("request", lambda request: is_own(request.url) or wrong.append(request.url))
    page.goto((SITE / name).resolve().as_uri())
    assert page.locator("h1").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.close()
    assert wrong == []


def test_a_phone_shows_scores_that_sort_and_a_film(browser: Browser) -> None:
    page = browser.new_page(**SCREENS["phone, dark"])  # type: ignore[arg-type]
    page.goto((SITE / "results" / "environments" / "CartPole-v1.html").resolve().as_uri())
    table = page.locator("table.results").first
    cells = [cell.bounding_box() for cell in table.locator("td:nth-child(-n + 2)").all()]
    assert len(cells) > 20
    assert all(cell and cell["x"] + cell["width"] <= 390 for cell in cells)
    assert page.locator(".films img").first.evaluate("image => image.decode().then(() => true)")
    scores = table.locator("td:nth-child(2)")
    heading = table.get_by_role("button", name="Score")
    for key, order in (("Enter", "descending"), ("Enter", "ascending")):
        heading.press(key)
        numbers = [float(text.split()[0]) for text in scores.all_inner_texts()]
        assert numbers == sorted(numbers, reverse=order == "descending")
        assert table.locator(f"th[aria-sort={order}]").inner_text().startswith("Score")
    page.close()


@pytest.mark.parametrize("name", ["start.html", "results/index.html"])
def test_a_desktop_cuts_no_command_and_no_table(browser: Browser, name: str) -> None:
    page = browser.new_page(**SCREENS["desktop, light"])  # type: ignore[arg-type]
    page.goto((SITE / name).resolve().as_uri())
    blocks = page.locator("article pre, article .table-wrapper")
    assert blocks.count() > 0
    assert blocks.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")
    page.close()


def is_own(url: str) -> bool:
    return url.startswith(("file:", "data:"))


def test_no_internal_link_is_dead() -> None:
    documents = {path.resolve(): Document(path) for path in SITE.rglob("*.html")}
    assert len(documents) > 50
    dead = []
    for path, document in documents.items():
        for link in document.links:
            parts = urlparse(link)
            if parts.scheme:
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known, fragment = documents.get(goal), unquote(parts.fragment)
            if not goal.exists() or (fragment and known and fragment not in known.ids):
                dead.append(f"{path.relative_to(SITE.resolve())}: {link}")
    assert dead == []


def test_every_tutorial_shows_a_figure() -> None:
    pages = sorted((SITE / "gallery").glob("0*.html"))
    assert len(pages) == 7
    for path in pages:
        assert "_images/sphx_glr_" in path.read_text(encoding="utf-8")
