from __future__ import annotations

import json
import math
import re
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
from esbench.reporting.html.contents import Contents, contents
from esbench.reporting.html.page import render, write_report
from esbench.reporting.tables.score_table import score_table, sheet
from esbench.store.seed_groups import cells


class Reader(HTMLParser):
    """The attributes, the texts and the data of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.data: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "script" and ("type", "application/json") in attrs:
            self._open = "json"

    def handle_data(self, data: str) -> None:
        if self._open == "json" and data.strip():
            self.data.append(json.loads(data))
        elif self._open not in {"script", "style"} and data.strip():
            self.texts.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("report") / "runs")


@pytest.fixture(scope="module")
def shown(folder: Path) -> Contents:
    return contents(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    return Reader(page)


def test_it_lies_in_the_folder_and_equal_trials_give_equal_bytes(
    folder: Path, page: str, shown: Contents
) -> None:
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    assert render(shown) == page


def test_nothing_is_fetched(read: Reader, page: str) -> None:
    sources = [
        value
        for _, name, value in read.attributes
        if name in {"src", "href", "xlink:href", "action", "srcset"}
    ]
    assert sources
    assert all(value.startswith(("#", "data:")) for value in sources)
    style = re.sub(r"url\(#[^)]*\)", "", page)
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


def test_what_people_write_is_no_markup(page: str, read: Reader) -> None:
    assert FAILURE not in page
    assert any(FAILURE in text for text in read.texts)
    assert page.count("<script") == 1 + len(read.data)


def test_every_number_of_the_table_is_there(folder: Path, read: Reader) -> None:
    table = sheet(score_table(folder))
    wanted = [text for row in table.body for text in row]
    at = [i for i, text in enumerate(read.texts) if text == table.body[0][0]]
    assert any(read.texts[start : start + len(wanted)] == wanted for start in at)


def test_curves_are_of_the_seeds_that_are_done(folder: Path, read: Reader) -> None:
    charts = [data for data in read.data if data["x"] == "environment steps" and not data["log"]]
    assert len(charts) == len(ENVIRONMENTS)
    for environment, chart in zip(ENVIRONMENTS, charts, strict=True):
        for cell in cells(folder):
            if cell.environment != environment:
                continue
            number = ALGORITHMS.index(cell.algorithm)
            (series,) = (one for one in chart["series"] if one["algorithm"] == number)
            done = [trial.columns("center_return", "env_steps") for trial in cell.trials]
            starts = [run["center_return"][0] for run in done if len(run["env_steps"]) > 9]
            # The first of 100 points is the first of as many generations interpolated.
            npt.assert_allclose(series["y"][0], iqm(starts), rtol=1e-4)


def test_ranks_stand_before_the_band_of_chance(page: str) -> None:
    (chart, *_) = re.findall(r"<figcaption>Rank.*?</figure>", page, flags=re.S)
    assert "fill: var(--muted)" in chart


def test_every_measure_of_health_is_drawn(read: Reader) -> None:
    charts = [data for data in read.data if data["x"] == "generation"]
    assert len(charts) == len(ENVIRONMENTS) * 8
    assert all(len(series["x"]) <= GENERATIONS for data in charts for series in data["series"])


def test_the_step_of_an_update_is_in_radii_of_the_population(tmp_path: Path) -> None:
    first, second = make_trials(tmp_path, seeds=[0, 1])
    write_trial(first, make_records([1.0, 2.0]), 2.0)
    (environment,) = contents(tmp_path).environments
    # Without a checkpoint nobody knows the number of parameters, and so no radius.
    assert [chart.title for chart in environment.health] == ["Deviation of the population (sigma)"]
    (series,) = environment.health[0].data["series"]
    npt.assert_array_equal(series["y"], [0.1, 0.1])
    first.folder.path.rename(tmp_path.parent / "elsewhere")
    write_trial(second, make_records([1.0, 2.0]), 2.0, parameters=100)
    (environment,) = contents(tmp_path).environments
    (series,) = environment.health[0].data["series"]
    npt.assert_allclose(series["y"], [0.01, 0.01])  # 0.01 / (0.1 * 10)


def test_what_is_not_done_is_told(shown: Contents) -> None:
    assert shown.facts["Trials"] == "20 done, 2 partial, 2 failed"
    (cell,) = (cell for cell in shown.settings if cell.name == "snes on CartPole-v1")
    assert [trial.status for trial in cell.trials] == ["done", "done", "partial", "failed"]
    assert cell.trials[3].error == FAILURE
    assert cell.trials[2].generations == 9
    assert cell.trials[0].digest == "0" * 12
    assert cell.trials[1].folder == "CartPole-v1/snes/seed-1"


def test_every_setting_and_what_made_it(shown: Contents) -> None:
    assert len(shown.settings) == len(ENVIRONMENTS) * len(ALGORITHMS)
    assert shown.settings[0].settings["policy.settings.hidden"] == "[4]"
    assert "seed" not in shown.settings[0].settings
    assert shown.origins == [
        {
            "Command": "esbench run --env CartPole-v1 --algorithm openai_es --seeds 0-2",
            "Processor": "Test CPU, 2 cores",
            "Platform": "test",
        }
    ]


def test_the_summary_names_the_best_and_the_sick(shown: Contents, tmp_path: Path) -> None:
    heads = [sentence.partition(":")[0] for sentence in shown.sentences]
    assert heads == [*ENVIRONMENTS, "Health"]
    assert shown.sentences[-1] == "Health: no warning in 20 trials; 4 too short to judge."
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0] * 40, [0.0] * 40), 1.0)
    sick = contents(tmp_path, "My runs")
    assert sick.title == "My runs"
    assert sick.sentences[-1] == "Health: 1 of 1 trial with a warning."
    assert {finding.trial for finding in sick.findings} == {"CartPole-v1/openai_es/seed-0"}


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
    shown = contents(tmp_path)
    best, health = shown.sentences
    assert best == (
        "CartPole-v1: openai_es (3 seeds) and snes (2 of 3 seeds) are best alike with 500.0"
        "; with fewer than 3 seeds nothing can be told apart."
    )
    assert health == "Health: with 9 trials too short nothing can be judged."
    diverged = [trial.status for cell in shown.settings for trial in cell.trials]
    assert diverged.count("done, diverged") == 1


def test_who_is_not_told_apart_from_the_best_is_tied_with_it(tmp_path: Path) -> None:
    algorithms = {"openai_es": {}, "snes": {}, "ars": {}}
    start = {"openai_es": 480.0, "snes": 478.0, "ars": 9.0}
    for trial in make_trials(tmp_path, algorithms=algorithms, seeds=list(range(8))):
        score = start[trial.labels["algorithm"]] + trial.spec.seed
        write_trial(trial, make_records([1.0, 2.0]), score)
    first, *_ = contents(tmp_path).sentences
    assert first == "CartPole-v1: openai_es (8 seeds) is best with 483.5; not told apart: snes."


def test_the_sum_over_all_environments_is_a_table(shown: Contents, page: str) -> None:
    assert [item.iqm for _, item in shown.overall] == sorted(
        (item.iqm for _, item in shown.overall), reverse=True
    )
    (table,) = re.findall(r"Optimality gap</th>.*?</table>", page, flags=re.S)
    lines = re.findall(r"<tr .*?</tr>", table)
    for (number, item), line in zip(shown.overall, lines, strict=True):
        cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", line)]
        assert cells[0] == ALGORITHMS[number]
        assert cells[1] == f"{item.iqm:.2f}"
        assert cells[3:] == [f"{v:.2f}" for v in (item.mean, item.median, item.optimality_gap)]


def test_charts_across_environments_keep_their_ends(folder: Path, read: Reader) -> None:
    found = cells(folder)
    reached, above = (
        next(data for data in read.data if data["x"] == name and data["log"] == log)
        for name, log in (("environment steps", True), ("normalized score", False))
    )
    for line, series in zip(
        ecdf.ecdf_lines(ecdf.scored_runs(found)), reached["series"], strict=True
    ):
        assert series["label"] == line.label
        npt.assert_allclose([series["x"][0], series["x"][-1]], line.env_steps[[0, -1]], rtol=1e-4)
        npt.assert_allclose([series["y"][0], series["y"][-1]], line.share[[0, -1]], atol=1e-4)
        npt.assert_allclose(
            series["y"], np.interp(series["x"], line.env_steps, line.share), atol=0.05
        )
    lines = profiles.profile_lines(profiles.scored(found))
    for line, series in zip(lines, above["series"], strict=True):
        npt.assert_allclose([series["y"][0], series["y"][-1]], line.share[[0, -1]], atol=1e-4)
        assert series["y"][0] >= series["y"][-1]


def test_time_is_in_the_unit_that_the_axis_names(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0, 2.0, 3.0], seconds=120.0), 3.0)
    (environment,) = contents(tmp_path).environments
    chart = environment.learning[1].data
    assert chart["x"] == "wall-clock time (min)"
    assert chart["series"][0]["x"][-1] == pytest.approx(4.0)  # before the third generation


def test_solved_and_random_actions_are_marked(page: str) -> None:
    (chart, *_) = re.findall(r"<figcaption>Return.*?</figure>", page, flags=re.S)
    assert re.findall(r'class="mark">.*?>([\w ]+)</text>', chart) == ["random policy", "solved"]


def test_the_band_of_chance_is_that_of_the_cells_that_are_ranked(tmp_path: Path) -> None:
    for trial in make_trials(tmp_path, seeds=[0, 1, 2, 3]):
        write_trial(trial, make_records([1.0] * 75), 1.0)
    (environment,) = contents(tmp_path).environments
    chart = environment.learning[2]
    _, top, _, bottom = chart.data["bounds"]
    low, high = uniform_curve_band(10, 4, 3)  # 75 generations in 25 points
    (path,) = re.findall(r'<path d="([^"]*)"[^>]*?style="fill: var\(--muted\)', chart.svg)
    heights = {float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path)}
    wanted = [bottom - (share + 0.03) / 1.06 * (bottom - top) for share in (low, high)]
    npt.assert_allclose(sorted(heights, reverse=True), wanted, atol=0.1)


def test_health_is_of_the_runs_that_are_done(shown: Contents) -> None:
    labels = {
        series["label"]
        for environment in shown.environments
        for chart in environment.health
        for series in chart.data["series"]
    }
    assert labels == {"cma_es (4 seeds)", "openai_es (4 seeds)", "snes (2 seeds)"}


def test_generations_without_a_step_leave_a_gap_and_no_chart_is_empty(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    records = make_records([1.0] * 100)
    moved = [replace(r, update_norm=0.5 if r.generation % 10 == 1 else 0.0) for r in records]
    write_trial(trial, moved, 1.0, parameters=25)
    (environment,) = contents(tmp_path).environments
    (chart,) = (one for one in environment.health if one.title.startswith("Step"))
    values = [value for value in chart.data["series"][0]["y"] if value is not None]
    assert len(values) == 10
    npt.assert_allclose(values, 0.5 / (0.1 * 5))


def test_a_function_has_a_logarithmic_axis(tmp_path: Path) -> None:
    for trial in make_trials(
        tmp_path, environments=["esbench/Sphere-v0"], policy={"template": "vector"}
    ):
        write_trial(trial, make_records([-100.0, -1.0, -0.01]), -0.01)
    (environment,) = contents(tmp_path).environments
    (series,) = environment.learning[0].data["series"]
    decades, heights = np.log10(-np.array(series["y"])), np.array(series["at"])
    assert np.ptp(decades) > 3.9
    npt.assert_allclose(heights, np.polyval(np.polyfit(decades, heights, 1), decades), atol=1.0)


def test_without_a_curve_it_says_so(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0]))
    assert "No trial has two generations yet" in render(contents(tmp_path))


def test_without_the_centre_there_is_no_rank(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0], evaluation={"center": False})
    write_trial(trial, make_records([1.0, 2.0, 3.0]), 3.0)
    titles = [chart.title for chart in contents(tmp_path).environments[0].learning]
    assert titles == ["Mean return of the population (unperturbed policy not evaluated)"] * 2


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
