"""The leaderboard as one HTML page that sorts, filters, and shows films and commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.json_text import Json
from esbench.core.units import format_duration, format_number, format_steps
from esbench.grids.environment_files import environment_versions
from esbench.publish.html.report import template
from esbench.publish.leaderboard.films import film_address, films_of, read_films
from esbench.publish.leaderboard.reported_rows import reported_sheet
from esbench.publish.leaderboard.table import (
    BEST,
    COLUMNS,
    LeaderboardRow,
    leaderboard_sheet,
    policy_words,
    settings_words,
)
from esbench.publish.tables.render_table import INTERVAL, TEXTS
from esbench.results.entries import Entry
from esbench.results.reported_scores import ReportedRow, task_of
from esbench.results.statistics.curves import Band
from esbench.results.statistics.quantile_bounds import QUANTILES

LEADERBOARD: Final = Path("results/leaderboard")
WIDTH: Final = 96.0  # of a small curve, in pixels
HEIGHT: Final = 30.0
FILTERS: Final = ("environment", "algorithm", "policy", "steps", "protocol")
FIRST: Final = ("Algorithm", "Score", INTERVAL, BEST, "Policy")  # columns, if they are there
WHOLE: Final = "whole episodes"


def as_page(
    rows: Sequence[LeaderboardRow],
    leaderboard: Path = LEADERBOARD,
    reported: Sequence[ReportedRow] = (),
) -> str:
    """The rows as one HTML file, which needs no network; equal rows and films, equal bytes.

    Commands name the folder of the ``leaderboard``, and the films are beside it. The scores that
    others report have a table of their own below.
    """
    sheet = leaderboard_sheet(rows)
    films, is_default = read_films(leaderboard), leaderboard == LEADERBOARD
    header = sorted(
        (name for name in sheet.header if name != "Environment"),
        key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST),
    )
    bands = [row.entry.curves.band() if row.entry.curves else None for row in rows]
    alike: dict[str, list[Band]] = {row.cell.environment: [] for row in rows}
    for row, band in zip(rows, bands, strict=True):
        alike[row.cell.environment] += [band] if band else []
    shown: list[Json] = []
    for row, texts, band in zip(rows, sheet.body, bands, strict=True):
        written, values = dict(zip(sheet.header, texts, strict=True)), _values(row)
        filters = (
            row.cell.environment,
            row.cell.label,
            policy_words(row.entry),
            format_steps(row.cell.budget),
            protocol_words(row.entry),
        )
        file = str(leaderboard / row.entry.file_name)
        shown.append(
            {
                "filters": dict(zip(FILTERS, filters, strict=True)),
                "title": row.cell.title,
                "cells": [(name, written[name], values.get(name)) for name in header],
                "curve": _paths(band, alike[row.cell.environment]),
                "facts": _facts(row),
                "seeds": _seeds(row.entry),
                "policies": row.entry.policies_state,
                "replay": shlex.join(["esbench", "verify", "--replay", file])
                if row.entry.policies
                else "",
                "films": [
                    {"caption": each.caption, "address": film_address(each, leaderboard)}
                    for each in films_of(row.entry, films)
                ],
            }
        )
    choices = {name: sorted({item["filters"][name] for item in shown}) for name in FILTERS}
    choices["steps"] = list(dict.fromkeys(map(format_steps, sorted({r.cell.budget for r in rows}))))
    return template("leaderboard.html").render(
        header=header,
        texts=TEXTS,
        notes=sheet.notes,
        rows=shown,
        reported=reported_sheet(reported) if reported else None,
        reported_tasks=[row.task for row in reported],
        tasks={name: task_of(name) for name in alike},
        choices=choices,
        whole=WHOLE,
        environment_versions={name: environment_versions(name) for name in alike},
        command=shlex.join(
            ["esbench", "verify", "--sample", "1", *[str(leaderboard)] * (not is_default)]
        ),
    )


def protocol_words(entry: Entry) -> str:
    """How episodes and rewards of training differ from those that are scored."""
    spec: dict[str, Any] = entry.spec
    environment, limit = spec["environment"], spec["environment"].get("max_episode_steps")
    words = [f"episodes of {format_steps(limit)} steps" if isinstance(limit, int) else ""]
    words += ["growing episodes"] if isinstance(limit, list) else []
    words += [
        text
        for name, text in (
            ("reward_shift", "shifted rewards"),
            ("reward_clip", "clipped rewards"),
            ("action_noise", "noisy actions"),
        )
        if environment.get(name)
    ]
    words += ["chosen by validation"] if spec["evaluation"].get("validation") else []
    return ", ".join(filter(None, words)) or WHOLE


def _values(row: LeaderboardRow) -> dict[str, float]:
    """The numbers that columns are sorted by; an interval by its lower end."""
    found: dict[str, float] = {}
    for column in COLUMNS:
        if column.heading and column.heading not in TEXTS:
            value = column.of(row)
            number = float(value[0] if isinstance(value, tuple) else value)
            found |= {column.heading: number} if math.isfinite(number) else {}
    return found


def _facts(row: LeaderboardRow) -> dict[str, str]:
    cell, entry = row.cell, row.entry
    reference = f"{format_number(entry.cell.reference_score)} ({entry.cell.reference_source})"
    facts = {
        "Policy": policy_words(entry),
        "Policies": entry.policies_state,
        "Training": protocol_words(entry),
        "Settings": settings_words(entry) or "defaults",
        "Command": "; ".join(entry.commands),
        "Commit": ", ".join(row.commits),
        "Hardware": ", ".join(row.hardware),
        "Wall-clock time": format_duration(cell.mean_cost("wall_time_s")),
        "Random policy": format_number(cell.random_score),
        "Reference": reference,
        "Versions": ", ".join(f"{name} {text}" for name, text in row.versions.items()),
        "File": entry.file_name,
    }
    return {name: text for name, text in facts.items() if text}


def _seeds(entry: Entry) -> list[dict[str, str]]:
    """One table row per seed, with the quantiles of its held-out returns."""
    return [
        {
            "Seed": str(trial.seed),
            "Score": format_number(score),
            **{
                f"{100 * share:.0f} %": format_number(value)
                for share, value in zip(QUANTILES, run.quantiles, strict=True)
            },
            "Last digest": (trial.last_digest or "")[:12],
        }
        for trial, score, run in zip(entry.cell.trials, entry.scores, entry.runs, strict=True)
    ]


def _paths(shown: Band | None, alike: Sequence[Band]) -> Json | None:
    """The points of a small curve, IQM and band, with axes that fit all ``alike``."""
    values = [b[np.isfinite(b)] for each in alike for b in (each.low, each.high)]
    if shown is None or not any(each.size for each in values):
        return None
    end = max(float(each.x[-1]) for each in alike)
    low, high = (float(limit(np.concatenate(values))) for limit in (np.min, np.max))
    scale = (HEIGHT - 2) / ((high - low) or 1)

    def points(line: Floats) -> list[str]:
        return [
            f"{x / end * WIDTH:.1f},{HEIGHT - 1 - (y - low) * scale:.1f}"
            for x, y in zip(shown.x, line, strict=True)
            if math.isfinite(y)
        ]

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "line": " ".join(points(shown.iqm)),
        "band": " ".join([*points(shown.high), *reversed(points(shown.low))]),
    }
