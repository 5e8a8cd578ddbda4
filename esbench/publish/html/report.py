"""The HTML report of an output folder: one file with every chart, table and setting."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.escape import html
from esbench.core.extras import DISTRIBUTION
from esbench.core.json_text import Json
from esbench.core.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_share,
    format_steps,
)
from esbench.grids.trial_spec import flatten
from esbench.publish.diagnosis import Diagnosis, diagnose_trial, run_measurements
from esbench.publish.figures import across
from esbench.publish.figures.chart import Chart, band_curve
from esbench.publish.figures.environment_charts import learning_charts, sweep_charts
from esbench.publish.figures.style import Style, cell_styles
from esbench.publish.html.plotly_chart import make_chart, swatch
from esbench.publish.tables.render_table import (
    INTERVAL,
    TEXTS,
    Column,
    Sheet,
    interval_text,
    make_sheet,
)
from esbench.publish.tables.score_table import score_table, sheet
from esbench.publish.tables.table_notes import OVER_ALL
from esbench.results.cell import Cell, normalized_scores
from esbench.results.sources import read_folder
from esbench.results.statistics.curves import (
    GENERATION_POINTS,
    generation_curve,
    uniform_curve_band,
)
from esbench.results.statistics.estimates import Overall, overall
from esbench.results.statistics.health import RunMeasurements
from esbench.store.origin import user_code_of
from esbench.store.outputs import require_suffix, write_bytes
from esbench.store.trial_folder import Status, TrialFolder

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

NAME: Final = "report.html"
SUFFIXES: Final = (".html", ".htm")
STATUSES: Final[tuple[Status, ...]] = ("done", "running", "partial", "failed")
DIGEST: Final = 12  # characters of a digest that are shown
OVERALL: Final[tuple[Column[Overall], ...]] = (
    Column("name", heading="Algorithm"),
    Column("iqm", None, "IQM", format_share),
    Column("", attrgetter("low", "high"), INTERVAL, partial(interval_text, write=format_share)),
    Column("mean", None, "Mean", format_share),
    Column("median", None, "Median of the environments' means", format_share),
    Column("optimality_gap", None, "Optimality gap", format_share),
)
POINTS: Final = 100  # of a line across environments
HealthAxis: TypeAlias = Literal["linear", "log", "share"]
HEALTH_MEASURES: Final[dict[str, tuple[Callable[[RunMeasurements], Floats], HealthAxis]]] = {
    "Length of the updates above 0 (radii of the population)": (
        lambda run: np.where(run["update_norm"] > 0, run["update_norm"], np.nan) / run.radius,
        "log",
    ),
    "Cosine of the updates of two halves": (itemgetter("split_half_cosine"), "linear"),
    "Cosine of successive updates": (itemgetter("update_cosine"), "linear"),
    "Share of tied returns": (itemgetter("tied_returns"), "share"),
    "Deviation of the population (sigma)": (itemgetter("sigma"), "log"),
    "Distance from the start": (itemgetter("distance"), "linear"),
    "Drift of observation statistics": (itemgetter("observation_drift"), "log"),
}


def write_report(root: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the report of an output folder and return its path; equal trials give equal bytes.

    The file is by default ``root / "report.html"``, the title the folder's name.

    Raises:
        UsageError: there is no trial, one is not readable, or the file cannot be written.
    """
    path = root / NAME if out is None else out
    require_suffix(path, *SUFFIXES)
    return write_page(path, render(report_contents(root, title)))


def render(report: Json) -> str:
    """Render the page from ``report_contents``; labels and messages are escaped."""
    return template("page.html").render(report=report, texts=TEXTS)


def write_page(path: Path, page: str) -> Path:
    """Write a page and return its path; UsageError if this is not possible."""
    write_bytes(path, page.encode(errors="xmlcharrefreplace"))
    return path


def template(name: str) -> Template:
    """A template of this folder, which escapes what it shows, and needs no network."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("esbench.publish.html", "."),
        autoescape=True,
        finalize=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = json.dumps
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= {"version": version(DISTRIBUTION), "plotly": _plotly}
    return environment.get_template(name)


def _plotly() -> Markup:
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def report_contents(root: Path, title: str | None = None) -> Json:
    """What ``page.html`` shows, by the names used there; errors are those of ``write_report``."""
    found, rows = read_folder(root), score_table(root)
    styles = cell_styles(found)
    diagnoses = [(cell, diagnose_trial(trial)) for cell in found for trial in cell.trials]
    environments = itertools.groupby(found, lambda cell: cell.environment)
    table, totals = sheet(rows), overall(normalized_scores(rows))
    made = [_origin(description) for cell in found for description in cell.descriptions]
    origins = list({str(origin): origin for origin in made}.values())
    return {
        "title": root.resolve().name if title is None else title,
        "facts": _facts(found),
        "sentences": [*_best(rows), _health(diagnoses)],
        "algorithms": {name: swatch(style) for name, style in styles.items()},
        "overall": _table(make_sheet(OVERALL, totals), [item.name for item in totals]),
        "charts": _charts_across(found, styles),
        "scores": _table(table, [row.name for row in rows]),
        "notes": [note for note in table.notes if not note.startswith(OVER_ALL)],
        "environments": [_environment_charts(list(group), styles) for _, group in environments],
        "findings": _findings(diagnoses, root),
        "cells": [_cell(cell, origins, root) for cell in found],
        "origins": origins,
    }


def _table(sheet: Sheet, names: Sequence[str]) -> Json:
    return {
        "header": sheet.header,
        "rows": list(zip(names, sheet.body, strict=True)),
        "best": {row for row, _ in sheet.best},
    }


def _facts(found: Sequence[Cell]) -> dict[str, str]:
    trials = [trial for cell in found for trial in cell.trials]
    statuses = Counter(trial.status for trial in trials)
    spent = [trial.columns("env_steps", "cpu_time_s") for trial in trials]
    made = [item.get("created") for cell in found for item in cell.descriptions]
    days = sorted(str(time)[:10] for time in made if time)
    return {
        "Environments": str(len({cell.environment for cell in found})),
        "Algorithms": str(len({cell.name for cell in found})),
        "Trials": ", ".join(f"{statuses[name]} {name}" for name in STATUSES if statuses[name]),
        "Steps trained": format_steps(sum(float(run["env_steps"][-1:].sum()) for run in spent)),
        "CPU time": format_duration(sum(float(run["cpu_time_s"][-1:].sum()) for run in spent)),
        "Started": " to ".join(dict.fromkeys(days[:1] + days[-1:])) or NONE,
    }


def _best(rows: Sequence[Cell]) -> list[str]:
    """The best algorithm of each environment, and those tied with it."""
    found = []
    for environment, members in itertools.groupby(rows, lambda row: row.environment):
        group = [row for row in members if row.standing]
        if not group:
            continue
        equal = [row for row in group if row.score == group[0].score]
        tied = [row.name for row in group if row.standing == "tied" and row not in equal]
        names = " and ".join(f"{row.name} ({counted(len(row.scores), 'seed')})" for row in equal)
        verb = "is best" if len(equal) == 1 else "are equally good"
        beside = f"; not significantly different: {', '.join(tied)}" if tied else ""
        score = format_number(group[0].score)
        found.append(f"{environment}: {names} {verb} with {score}{beside}.")
    return found


def _health(diagnoses: Sequence[tuple[Cell, Diagnosis]]) -> str:
    total = len(diagnoses)
    short = sum(item.findings[0].name == "too_short" for _, item in diagnoses)
    sick = sum(item.level == "warning" for _, item in diagnoses)
    if short == total:
        return f"Health: {counted(total, 'trial')} too short to judge."
    judged = counted(total - short, "trial")
    text = f"{sick} of {judged} with a warning" if sick else f"no warning in {judged}"
    return f"Health: {text}{f'; {short} too short to judge' if short else ''}."


def _findings(diagnoses: Sequence[tuple[Cell, Diagnosis]], root: Path) -> list[Json]:
    findings: list[Json] = []
    for cell, item in diagnoses:
        about: Json = {
            "algorithm": cell.name,
            "trial": Path(item.trial).relative_to(root).as_posix(),
        }
        findings += [about | asdict(each) for each in item.findings if each.level != "ok"]
    return sorted(findings, key=lambda finding: finding["level"] != "warning")


def _cell(cell: Cell, origins: Sequence[Json], root: Path) -> Json:
    spec = {key: value for key, value in cell.spec.items() if key != "seed"}
    settings = {key: json.dumps(value) for key, value in flatten(spec).items()}
    trials = [
        {
            "Seed": str(description["spec"]["seed"]),
            **_trial(trial),
            "Made with": str(origins.index(_origin(description)) + 1),
            "Folder": trial.path.relative_to(root).as_posix(),
        }
        for trial, description in zip(cell.trials, cell.descriptions, strict=True)
    ]
    return {"algorithm": cell.name, "name": cell.title, "settings": settings, "trials": trials}


def _trial(trial: TrialFolder) -> dict[str, str]:
    spent, status = trial.columns("env_steps", "wall_time_s", "digest"), trial.status
    score = trial.result()["score"] if status == "done" else None
    generations = len(spent["digest"])
    if status == "failed":
        text = f"failed: {trial.last_error_line}"
    else:
        text = "done, diverged" if status == "done" and score is None else status
    return {
        "Status": text,
        "Score": NONE if score is None else format_number(score),
        "Steps": format_steps(spent["env_steps"][-1]) if generations else NONE,
        "Generations": str(generations),
        "Time": format_duration(spent["wall_time_s"][-1]) if generations else NONE,
        "Last digest": spent["digest"][-1][:DIGEST] if generations else NONE,
    }


def _origin(description: Json) -> dict[str, str]:
    """Versions, hardware, commit and command of a trial as text; unknown ones are left out."""
    hardware, versions = description.get("hardware") or {}, description.get("versions") or {}
    origin = {
        "Command": description.get("command"),
        "Commit": description.get("git_commit"),
        "Processor": hardware.get("cpu") and f"{hardware['cpu']}, {hardware.get('cores')} cores",
        "Platform": hardware.get("platform"),
        "User code": ", ".join(f"{name} {of}" for name, of in user_code_of(description).items()),
        "Versions": ", ".join(f"{name} {of}" for name, of in versions.items() if of),
    }
    return {key: str(value) for key, value in origin.items() if value}


def _charts_across(found: Sequence[Cell], styles: Mapping[str, Style]) -> list[Json]:
    """Make the charts over all environments with frozen scores; styles are by names of cells."""
    charts = [across.target_ecdf(found, styles), across.performance_profile(found, styles)]
    return [make_chart(_thinned(c)) for c in charts if c and len(c.environments) > 1]


def _environment_charts(group: Sequence[Cell], styles: Mapping[str, Style]) -> Json:
    """The charts of ``sweeps``, ``learning`` and ``health``.

    The last two are empty if no trial has two generations.
    """
    learning: list[Chart] = []
    health: list[Chart] = []
    panels, trials = learning_charts(group, styles)
    if panels:
        runs = {name: list(map(run_measurements, own)) for name, own in trials.items()}
        learning = [panels["steps"], panels["time"]]
        if (rank := panels["rank"]).curves:
            bands = [_chance(runs[curve.name]) for curve in rank.curves]
            chance = min(low for low, _ in bands), max(high for _, high in bands)
            learning.append(replace(rank, chance=chance, levels=()))
        health = _health_charts(runs, styles)
    sweeps = list(sweep_charts(group).values())
    charts = {"sweeps": sweeps, "learning": learning, "health": health}
    made = {kind: list(map(make_chart, own)) for kind, own in charts.items()}
    return {"name": group[0].environment, **made}


def _chance(runs: Sequence[RunMeasurements]) -> tuple[float, float]:
    """The 95 % band of a point of the rank curve if the ranks carry no information."""
    members = int(min(run["population_size"].min() for run in runs))
    generations = max(1, min(run.generations for run in runs) // GENERATION_POINTS)
    return uniform_curve_band(members, len(runs), generations)


def _health_charts(
    runs: Mapping[str, Sequence[RunMeasurements]], styles: Mapping[str, Style]
) -> list[Chart]:
    charts = []
    for title, (values, scale) in HEALTH_MEASURES.items():
        log, lines = scale == "log", []
        for name, members in runs.items():
            band = generation_curve(list(map(values, members)), gaps=True)
            visible = np.isfinite(band.iqm) & ((band.iqm > 0) | (not log))
            if visible.sum() > 1:
                label = f"{name} ({counted(len(members), 'seed')})"
                lines.append(band_curve(name, label, styles[name], band))
        if lines:
            chart = Chart(title=title, x_label="generation", y_label="", curves=lines, log_y=log)
            charts.append(replace(chart, is_share=scale == "share"))
    return charts


def _thinned(chart: Chart) -> Chart:
    """A chart whose curves have fewer points, their ends among them."""
    kept = np.unique(np.linspace(0, across.POINTS - 1, POINTS).round().astype(np.int64))
    parts = ("x", "y", "low", "high")
    curves = [
        replace(curve, **{name: getattr(curve, name)[kept] for name in parts})
        for curve in chart.curves
    ]
    return replace(chart, curves=curves)
