import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fake_trials import write_runs, write_scores
from report_folder import ALGORITHMS, ENVIRONMENTS, FAILURE, GENERATIONS, write_folder

from esbench.core.json_text import Json
from esbench.publish.figures.style import STYLES
from esbench.publish.html.plotly_chart import DASHES
from esbench.publish.html.report import HEALTH_MEASURES, render, report_contents, write_report
from esbench.publish.tables.score_table import score_table, sheet
from esbench.results.statistics.curves import uniform_curve_band


class PageReader(HTMLParser):
    """The texts of a page, without those of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))


def curves(figure: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of a chart, without their bands."""
    return (trace for trace in figure["data"] if trace["mode"] == "lines+markers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("report") / "runs")


@pytest.fixture(scope="module")
def shown(folder: Path) -> Json:
    return report_contents(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def texts(page: str) -> list[str]:
    return PageReader(page).texts


def test_equal_trials_give_equal_bytes(folder: Path, page: str, shown: Json) -> None:
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    assert render(shown) == page


def test_messages_are_no_markup_and_nothing_can_be_fetched(page: str, texts: list[str]) -> None:
    assert FAILURE not in page
    assert any(FAILURE in text for text in texts)
    assert len(re.findall("^<script>", page, flags=re.M)) == 2
    assert "default-src 'none'" in page


def test_the_page_has_every_number_of_the_table(folder: Path, texts: list[str]) -> None:
    table = sheet(score_table(folder))
    wanted = [text for row in table.body for text in row]
    starts = [i for i, text in enumerate(texts) if text == table.body[0][0]]
    assert any(texts[start : start + len(wanted)] == wanted for start in starts)


def test_every_health_measure_is_drawn(shown: Json) -> None:
    for environment in shown["environments"]:
        charts = environment["health"]
        assert [chart["title"] for chart in charts] == list(HEALTH_MEASURES)
        lines = [line for chart in charts for line in curves(chart["figure"])]
        assert all(len(line["x"]) <= GENERATIONS for line in lines)
        assert {line["name"] for line in lines} == {
            "cma_es (4 seeds)",
            "openai_es (4 seeds)",
            "snes (2 seeds)",
        }


def test_unfinished_trials_are_listed(shown: Json) -> None:
    assert shown["facts"]["Trials"] == "20 done, 2 partial, 2 failed"
    (cell,) = (cell for cell in shown["cells"] if cell["name"] == "snes on CartPole-v1")
    done, second, partial, failed = cell["trials"]
    assert [done["Status"], second["Status"], partial["Status"]] == ["done", "done", "partial"]
    assert failed["Status"] == f"failed: {FAILURE}"
    assert partial["Generations"] == "9"
    assert done["Last digest"] == "0" * 12
    assert second["Folder"] == "CartPole-v1/snes/seed-1"


def test_every_setting_and_what_made_it(shown: Json) -> None:
    assert len(shown["cells"]) == len(ENVIRONMENTS) * len(ALGORITHMS)
    assert shown["cells"][0]["settings"]["policy.settings.hidden"] == "[4]"
    assert "seed" not in shown["cells"][0]["settings"]
    assert shown["origins"] == [
        {
            "Command": "esbench run --env CartPole-v1 --algorithm openai_es --seeds 0-2",
            "Processor": "Test CPU, 2 cores",
            "Platform": "test",
        }
    ]


def test_the_summary_counts_the_sick(shown: Json) -> None:
    *best, health = shown["sentences"]
    assert best == []  # a cell of each environment has too few seeds
    assert re.findall(r"\d+", health) == ["2", "22", "2"]  # two have failed


def test_the_best_are_named_with_their_score_and_seeds_and_those_tied_with_them(
    tmp_path: Path,
) -> None:
    for name, lowest in (("openai_es", 480), ("snes", 478), ("ars", 9)):
        write_scores(tmp_path, range(lowest, lowest + 8), algorithms={name: {}})
    first, *_ = report_contents(tmp_path)["sentences"]
    named, _, beside = first.partition(";")
    assert "openai_es (8 seeds)" in named
    assert "483.5" in named
    assert "snes" in beside
    assert "ars" not in first


def test_the_band_of_chance_is_that_of_the_ranked_cells(tmp_path: Path) -> None:
    write_runs(tmp_path, [[1.0] * 75] * 4, 1.0)
    (environment,) = report_contents(tmp_path)["environments"]
    (band,) = environment["learning"][2]["figure"]["layout"]["shapes"]
    assert (band["y0"], band["y1"]) == uniform_curve_band(10, 4, 3)  # 75 generations in 25 points


def test_the_command_says_where_it_is(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "runs", [400.0, 410.0])
    assert esbench("report", "runs") == (0, "runs/report.html\n", "")
    code, out, err = esbench("report", "runs", "--out", "a/b.html", "--title", "A & B")
    assert (code, out, err) == (0, "a/b.html\n", "")
    assert "<title>A &amp; B</title>" in (tmp_path / "a/b.html").read_text(encoding="utf-8")
    code, out, err = esbench("report", "nowhere")
    assert (code, out) == (2, "")
    assert "'nowhere'" in err


@pytest.mark.parametrize("line", DASHES)
def test_every_style_of_a_line_has_a_swatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    write_scores(tmp_path, [1.0, 2.0, 3.0])
    known = STYLES["openai_es"]
    monkeypatch.setitem(STYLES, "openai_es", replace(known, line=line))
    assert write_report(tmp_path).stat().st_size
