from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
from command_line import Run
from fake_trials import make_records, make_trials, write_scores, write_trial
from report_folder import ALGORITHMS, ENVIRONMENTS, FAILURE, GENERATIONS, write_folder

from esbench.analysis.generations import uniform_curve_band
from esbench.analysis.statistics import iqm
from esbench.errors import UsageError
from esbench.reporting.figures import performance_profile as profiles
from esbench.reporting.figures import target_ecdf as ecdf
from esbench.reporting.html.charts import HEALTH_MEASURES, ReportChart
from esbench.reporting.html.contents import ReportContents, report_contents
from esbench.reporting.html.page import render, write_report
from esbench.reporting.tables.score_table import normalized_scores, score_table, sheet
from esbench.reporting.tables.summary import overall
from esbench.store.cells import cells


class PageReader(HTMLParser):
    """The attributes, texts and charts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.figures: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self._hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in {"script", "style"}
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.figures += [json.loads(value or "") for name, value in attrs if name == "data-figure"]

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))


def curves(figure: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of a chart, without their bands."""
    return (trace for trace in figure["data"] if trace["mode"] == "lines+markers")


def only_curve(chart: ReportChart) -> dict[str, Any]:
    (found,) = curves(chart.figure)
    return found


def x_label(figure: dict[str, Any]) -> str:
    return str(figure["layout"]["xaxis"]["title"]["text"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("report") / "runs")


@pytest.fixture(scope="module")
def shown(folder: Path) -> ReportContents:
    return report_contents(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(page: str) -> PageReader:
    return PageReader(page)


def test_equal_trials_give_equal_bytes(folder: Path, page: str, shown: ReportContents) -> None:
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    assert render(shown) == page


def test_nothing_is_fetched(read: PageReader, page: str) -> None:
    sources = [
        value
        for _, name, value in read.attributes
        if name in {"src", "href", "xlink:href", "action", "srcset"}
    ]
    assert sources
    assert all(value.startswith(("#", "data:")) for value in sources)
    assert "default-src 'none'" in page


def test_messages_are_no_markup(page: str, read: PageReader) -> None:
    assert FAILURE not in page
    assert any(FAILURE in text for text in read.texts)
    assert len(re.findall("^<script>", page, flags=re.M)) == 2


def test_the_page_has_every_number_of_the_table(folder: Path, read: PageReader) -> None:
    table = sheet(score_table(folder))
    wanted = [text for row in table.body for text in row]
    starts = [i for i, text in enumerate(read.texts) if text == table.body[0][0]]
    assert any(read.texts[start : start + len(wanted)] == wanted for start in starts)


def test_curves_are_of_the_done_seeds(folder: Path, read: PageReader) -> None:
    by_steps = [figure for figure in read.figures if x_label(figure) == "environment steps"]
    figures = by_steps[1:]  # the first is over all environments
    assert len(figures) == len(ENVIRONMENTS)
    for environment, figure in zip(ENVIRONMENTS, figures, strict=True):
        lines = {line["meta"]: line for line in curves(figure)}
        for cell in cells(folder):
            if cell.environment != environment:
                continue
            done = [trial.columns("center_return", "env_steps") for trial in cell.trials]
            starts = [run["center_return"][0] for run in done if len(run["env_steps"]) > 9]
            line = lines[ALGORITHMS.index(cell.algorithm)]
            npt.assert_allclose(line["y"][0], iqm(starts), rtol=1e-4)


def test_every_health_measure_is_drawn(shown: ReportContents) -> None:
    for environment in shown.environments:
        charts = environment["health"]
        assert [chart.title for chart in charts] == [measure.title for measure in HEALTH_MEASURES]
        lines = [line for chart in charts for line in curves(chart.figure)]
        assert all(len(line["x"]) <= GENERATIONS for line in lines)
        assert {line["name"] for line in lines} == {
            "cma_es (4 seeds)",
            "openai_es (4 seeds)",
            "snes (2 seeds)",
        }


def test_the_step_of_an_update_is_in_radii_of_the_population(tmp_path: Path) -> None:
    first, second = make_trials(tmp_path, seeds=[0, 1])
    write_trial(first, make_records([1.0, 2.0]), 2.0)
    (environment,) = report_contents(tmp_path).environments
    # Without a checkpoint the number of parameters, and so the radius, is unknown.
    (sigma,) = environment["health"]
    npt.assert_array_equal(only_curve(sigma)["y"], [0.1, 0.1])
    first.folder.path.rename(tmp_path.parent / "elsewhere")
    write_trial(second, make_records([1.0, 2.0]), 2.0, parameters=100)
    (environment,) = report_contents(tmp_path).environments
    npt.assert_allclose(
        only_curve(environment["health"][0])["y"], [0.01, 0.01]
    )  # 0.01 / (0.1 * 10)


def test_unfinished_trials_are_listed(shown: ReportContents) -> None:
    assert shown.facts["Trials"] == "20 done, 2 partial, 2 failed"
    (cell,) = (cell for cell in shown.cells if cell["name"] == "snes on CartPole-v1")
    done, second, partial, failed = cell["trials"]
    assert [done["Status"], second["Status"], partial["Status"]] == ["done", "done", "partial"]
    assert failed["Status"] == f"failed: {FAILURE}"
    assert partial["Generations"] == "9"
    assert done["Last digest"] == "0" * 12
    assert second["Folder"] == "CartPole-v1/snes/seed-1"


def test_every_setting_and_what_made_it(shown: ReportContents) -> None:
    assert len(shown.cells) == len(ENVIRONMENTS) * len(ALGORITHMS)
    assert shown.cells[0]["settings"]["policy.settings.hidden"] == "[4]"
    assert "seed" not in shown.cells[0]["settings"]
    assert shown.origins == [
        {
            "Command": "esbench run --env CartPole-v1 --algorithm openai_es --seeds 0-2",
            "Processor": "Test CPU, 2 cores",
            "Platform": "test",
        }
    ]


def test_the_summary_names_the_best_and_the_sick(shown: ReportContents, tmp_path: Path) -> None:
    *best, health = shown.sentences
    assert [sentence.partition(":")[0] for sentence in best] == list(ENVIRONMENTS)
    assert re.findall(r"\d+", health) == ["20", "4"]
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0] * 40, [0.0] * 40), 1.0)
    sick = report_contents(tmp_path, "My runs")
    assert sick.title == "My runs"
    assert re.findall(r"\d+", sick.sentences[-1]) == ["1", "1"]
    assert {finding["trial"] for finding in sick.findings} == {"CartPole-v1/openai_es/seed-0"}


def test_the_best_are_named_with_their_score_and_seeds(tmp_path: Path) -> None:
    both = {"algorithms": {"openai_es": {}, "snes": {}, "ars": {}}}
    scores = {
        "openai_es": (500.0, 500.0, 500.0),
        "snes": (500.0, 500.0, math.nan),
        "ars": (9.0,) * 3,
    }
    for trial in make_trials(tmp_path, **both):
        score = scores[trial.labels["algorithm"]][trial.spec.seed]
        write_trial(trial, make_records([1.0, 2.0]), score)
    shown = report_contents(tmp_path)
    best, health = shown.sentences
    for fact in ("CartPole-v1", "openai_es (3 seeds)", "snes (2 of 3 seeds)", "500.0"):
        assert fact in best
    assert "9 trials" in health
    statuses = [trial["Status"] for cell in shown.cells for trial in cell["trials"]]
    assert statuses.count("done, diverged") == 1


def test_the_summary_names_those_not_significantly_different_from_the_best(tmp_path: Path) -> None:
    algorithms = {"openai_es": {}, "snes": {}, "ars": {}}
    start = {"openai_es": 480.0, "snes": 478.0, "ars": 9.0}
    for trial in make_trials(tmp_path, algorithms=algorithms, seeds=list(range(8))):
        score = start[trial.labels["algorithm"]] + trial.spec.seed
        write_trial(trial, make_records([1.0, 2.0]), score)
    first, *_ = report_contents(tmp_path).sentences
    best, _, tied = first.partition(";")
    assert "openai_es (8 seeds)" in best
    assert "483.5" in best
    assert "snes" in tied
    assert "ars" not in tied.replace("snes", "")


def test_the_overall_table_has_the_numbers_of_the_summary(
    folder: Path, shown: ReportContents
) -> None:
    totals = overall(normalized_scores(score_table(folder)))
    assert len(totals) == len(ALGORITHMS)
    for (number, row), item in zip(shown.overall.rows, totals, strict=True):
        assert row[0] == ALGORITHMS[number] == item.name
        values = (item.iqm, item.mean, item.median, item.optimality_gap)
        assert [row[1], *row[3:]] == [f"{value:.2f}" for value in values]


def test_charts_across_environments_keep_their_ends(folder: Path, shown: ReportContents) -> None:
    found = cells(folder)
    reached, above = shown.charts
    for chart, wanted in (
        (reached, ecdf.ecdf_curves(ecdf.scored_runs(found))),
        (above, profiles.profile_curves(profiles.final_scores(found))),
    ):
        for line, curve in zip(curves(chart.figure), wanted, strict=True):
            assert line["name"] == curve.label
            npt.assert_allclose(np.array(line["x"])[[0, -1]], curve.x[[0, -1]], rtol=1e-4)
            npt.assert_allclose(np.array(line["y"])[[0, -1]], curve.share[[0, -1]], atol=1e-4)


def test_time_is_in_the_unit_of_the_axis(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0, 2.0, 3.0], seconds=120.0), 3.0)
    (environment,) = report_contents(tmp_path).environments
    chart = environment["learning"][1]
    assert "(min)" in x_label(chart.figure)
    assert only_curve(chart)["x"][-1] == pytest.approx(4.0)  # before the third generation


def test_solved_and_the_random_policy_are_marked(shown: ReportContents) -> None:
    notes = shown.environments[0]["learning"][0].figure["layout"]["annotations"]
    assert [note["text"] for note in notes] == ["random policy", "solved"]


def test_the_band_of_chance_is_that_of_the_ranked_cells(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path, seeds=[0, 1, 2, 3]):
        write_trial(trial, make_records([1.0] * 75), 1.0)
    (environment,) = report_contents(tmp_path).environments
    (band,) = environment["learning"][2].figure["layout"]["shapes"]
    assert (band["y0"], band["y1"]) == uniform_curve_band(10, 4, 3)  # 75 generations in 25 points


def test_generations_without_a_step_leave_a_gap_and_no_chart_is_empty(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    records = make_records([1.0] * 100)
    moved = [replace(r, update_norm=0.5 if r.generation % 10 == 1 else 0.0) for r in records]
    write_trial(trial, moved, 1.0, parameters=25)
    (environment,) = report_contents(tmp_path).environments
    (chart,) = (c for c in environment["health"] if c.title == HEALTH_MEASURES[0].title)
    values = [value for value in only_curve(chart)["y"] if value is not None]
    npt.assert_allclose(values, [0.5 / (0.1 * 5)] * 10)


def test_a_function_has_a_logarithmic_axis(tmp_path: Path) -> None:
    for trial in make_trials(
        tmp_path, environments=["esbench/Sphere-v0"], policy={"template": "vector"}
    ):
        write_trial(trial, make_records([-100.0, -1.0, -0.01]), -0.01)
    (environment,) = report_contents(tmp_path).environments
    chart = environment["learning"][0]
    assert chart.figure["layout"]["yaxis"]["type"] == "log"
    heights = np.log10(only_curve(chart)["y"])
    npt.assert_allclose(heights[[0, -1]], [2, -2], atol=1e-4)


def test_one_generation_gives_no_chart(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0]))
    shown = report_contents(tmp_path)
    assert shown.environments == [{"name": "CartPole-v1", "learning": [], "health": []}]
    assert 'class="plot"' not in render(shown)


def test_without_the_center_there_is_no_rank(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0], evaluation={"center": False})
    write_trial(trial, make_records([1.0, 2.0, 3.0]), 3.0)
    (environment,) = report_contents(tmp_path).environments
    assert len(environment["learning"]) == 2
    assert all("not evaluated" in chart.title for chart in environment["learning"])


def test_the_command_says_where_it_is(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "runs", [400.0, 410.0])
    assert esbench("report", "runs") == (0, "runs/report.html\n", "")
    code, out, err = esbench("report", "runs", "--out", "a/b.html", "--title", "A & B")
    assert (code, out, err) == (0, "a/b.html\n", "")
    assert "<title>A &amp; B</title>" in (tmp_path / "a/b.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "no folder 'nowhere'"),
        (["."], "no trial in '.'"),
    ],
)
def test_bad_input_is_refused(esbench: Run, arguments: list[str], complaint: str) -> None:
    code, out, err = esbench("report", *arguments)
    assert (code, out) == (2, "")
    assert complaint in err


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    write_scores(tmp_path, [400.0])
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UsageError, match="taken"):
        write_report(tmp_path, tmp_path / "taken" / "report.html")
    with pytest.raises(UsageError, match="CartPole-v1"):
        write_report(tmp_path, tmp_path / "CartPole-v1")
