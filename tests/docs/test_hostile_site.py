"""The site shows what a leaderboard file of a stranger says, and takes none of it for markup."""

import os
import runpy
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import results_pages
from checkout import ROOT
from fake_entries import fake_suite
from hostile_texts import HOSTILE
from programs import chromium

from esbench.core.escape import one_line
from esbench.results.entries import Entry, as_file

pytestmark = pytest.mark.skipif("ESBENCH_SITE" not in os.environ, reason="Sphinx is not installed")
CONF = ROOT / "docs" / "conf.py"
HARMLESS = [f"text {number}" for number in range(len(HOSTILE))]
HARMLESS_LABELS = ("one", "two", "three")
LABELS = ("../../<b>`label`|x](y)", "{include} /etc/passwd", "index of @all #1 $x$")


class Structure(HTMLParser):
    """The tags of a page with the names of their attributes, its addresses and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(f"{tag} {name}" for name, _ in attrs)}
        self.addresses |= {value or "" for name, value in attrs if name in {"href", "src"}}

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_entries(
    known: list[Entry], texts: list[str], labels: tuple[str, ...]
) -> Iterator[Entry]:
    """Entries of one environment that name texts wherever a file holds text of its author."""
    for entry, label in zip(known, labels, strict=False):
        environment = labels[-1]
        spec = entry.spec | {"environment": {**entry.spec["environment"], "id": environment}}
        cell = {"algorithm": label, "environment": environment, "policy": label, "spec": spec}
        origin = entry.origins[0].model_copy(
            update={
                "hardware": {"cpu": " ".join(texts), "cores": texts[0]},
                "versions": dict(zip(texts, reversed(texts), strict=True)),
            }
        )
        changes = {
            "cell": entry.cell.model_copy(update=cell),
            "commands": tuple(texts),
            "origins": (origin,),
        }
        yield entry.model_copy(update=changes)


def build(folder: Path, entries: list[Entry]) -> dict[str, Structure]:
    """The pages of a site with the markup of the documentation, by name."""
    from sphinx.application import Sphinx

    source, board = folder / "source", folder / "board"
    board.mkdir(parents=True)
    for entry in entries:
        (board / entry.file_name).write_bytes(as_file(entry))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_pages, "suite_names", lambda: ["mujoco-mlp"])
        results_pages.generate(board, source / "results")
        patch.setenv("PYTHONPATH", "")
        patch.syspath_prepend("")
        conf = runpy.run_path(str(CONF))
    settings = {
        "extensions": ["myst_parser", "sphinx_design", "formulas"],
        "html_theme": "basic",
        "root_doc": "results/suites/index",
        "exclude_patterns": ["results/suites/[!i]*"],
        **{key: value for key, value in conf.items() if key.startswith("myst_")},
    }
    settings["html_math_renderer"] = conf["html_math_renderer"]
    out = folder / "html"
    with warnings.catch_warnings(action="ignore"):
        app = Sphinx(
            source, None, out, folder / "trees", "html", settings, status=None, warning=None
        )
        app.build()
    return {
        str(path.relative_to(out)): Structure(path.read_text(encoding="utf-8"))
        for kind in ("algorithms", "environments")
        for path in (out / "results" / kind).glob("*.html")
    }


def test_a_hostile_file_adds_no_markup_to_the_site_and_loses_no_text(tmp_path: Path) -> None:
    known = fake_suite("mujoco-mlp", seeds=3)
    harmless = hostile_entries(known, HARMLESS, HARMLESS_LABELS)
    pages = build(tmp_path, [*harmless, *hostile_entries(known, list(HOSTILE), LABELS)])
    assert len(pages) == 10  # six labels, two environments and two indexes
    plain = [pages[name] for name in pages if Path(name).stem in HARMLESS_LABELS]
    tags = set().union(*(page.tags for page in plain))
    addresses = set().union(*(page.addresses for page in plain))
    shown = ""
    for name, page in pages.items():
        assert page.tags <= tags, name
        assert {each for each in page.addresses if ":" in each} <= addresses, name
        assert "root:" not in page.text, name
        shown += " ".join(page.text.split())
    assert [text for text in (*HOSTILE, *LABELS) if one_line(text) not in shown] == []
    with chromium("--disable-gpu") as browser:
        page = browser.new_page()
        wrong: list[str] = []
        page.add_init_script("window.taken = () => { window.isTaken = true; }")
        page.on("request", lambda each: each.url.startswith("file:") or wrong.append(each.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name in pages:
            page.goto((tmp_path / "html" / name).as_uri())
            assert page.evaluate("window.isTaken") is None
        assert wrong == []
