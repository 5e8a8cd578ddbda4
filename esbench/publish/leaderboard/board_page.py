"""The leaderboard as one HTML file, with filters; it needs no network and no large library."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.json_text import Json
from esbench.core.registry import DISTRIBUTION
from esbench.core.units import format_duration, format_number, format_steps
from esbench.publish.html.report import template
from esbench.publish.leaderboard.entries import Entry
from esbench.publish.leaderboard.table import (
    LeaderboardRow,
    leaderboard_sheet,
    policy_words,
    settings_words,
)
from esbench.publish.tables.render_table import TEXTS
from esbench.results.statistics.curves import Band
from esbench.results.statistics.quantile_bounds import QUANTILES

WIDTH: Final = 120.0  # of a small curve, in pixels
HEIGHT: Final = 30.0
FILTERS: Final = ("environment", "algorithm", "policy", "budget")


def render(rows: Sequence[LeaderboardRow], folder: str = "") -> str:
    """The page of some rows; equal ones give equal bytes.

    ``folder`` is that of the leaderboard, if it is not the default one.
    """
    sheet = leaderboard_sheet(rows)
    bands = [row.entry.curves.band() if row.entry.curves else None for row in rows]
    alike: dict[str, list[Band]] = {row.cell.environment: [] for row in rows}
    for row, band in zip(rows, bands, strict=True):
        alike[row.cell.environment] += [band] if band else []
    shown: list[Json] = [
        {
            "filters": {
                "environment": row.cell.environment,
                "algorithm": row.cell.label,
                "policy": policy_words(row.entry),
                "budget": format_steps(row.cell.budget),
            },
            "title": row.cell.title,
            "cells": cells,
            "curve": _paths(band, alike[row.cell.environment]),
            "facts": _facts(row),
            "seeds": _seeds(row.entry),
        }
        for row, cells, band in zip(rows, sheet.body, bands, strict=True)
    ]
    budgets = sorted({row.cell.budget for row in rows})
    choices = {name: sorted({item["filters"][name] for item in shown}) for name in FILTERS}
    choices["budget"] = list(dict.fromkeys(map(format_steps, budgets)))
    return template("leaderboard.html").render(
        header=sheet.header,
        texts=TEXTS,
        notes=sheet.notes,
        rows=shown,
        choices=choices,
        command=shlex.join(["esbench", "verify", "--sample", "1", *([folder] if folder else [])]),
        version=version(DISTRIBUTION),
    )


def _facts(row: LeaderboardRow) -> dict[str, str]:
    cell, entry = row.cell, row.entry
    reference = f"{format_number(cell.reference_score)} ({entry.cell.reference_source})"
    facts = {
        "Policy": policy_words(entry),
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
