"""The steps to published thresholds, beside those of the leaderboard."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from internals import Entry, markdown_code, policy_words
from markdown_text import markdown_table

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published" / "thresholds.toml"


def threshold_table(entries: Sequence[Entry], file: Path = PUBLISHED) -> str:
    """One row per threshold, one column per published method; ours are below theirs, in bold.

    Ours are those of linear policies, and of agents.
    """
    content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    methods: dict[str, str] = content["algorithms"]
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.cell.algorithm):
        if entry.spec["policy"] is None or policy_words(entry) == "linear":
            found.setdefault((entry.cell.environment, own_name(entry)), []).append(entry)
    lines = []
    for each in content["thresholds"]:
        name = f"{each['environment']}, {each['threshold']:,}"
        renamed = each["published_as"] != each["environment"]
        cells = [f"{name}<br>({each['published_as']} there)" if renamed else name]
        for method, own in methods.items():
            theirs = each["steps"].get(method, "")
            text = theirs if isinstance(theirs, str) else f"{theirs:,}"
            if own:
                rows = found.get((each["environment"], own), [])
                ours = [own_text(entry, each["threshold"]) for entry in rows] or ["-"]
                text = "<br>".join([text, *ours])
            cells.append(text)
        lines.append(cells)
    headings = ["Environment, threshold", *methods]
    return f"{{.results}}\n{markdown_table(headings, lines, numbers=list(methods))}"


def own_name(entry: Entry) -> str:
    """The name of an algorithm as in the file: that of ARS ends with its version."""
    algorithm: dict[str, Any] = entry.spec["algorithm"]
    version = (
        str(algorithm["settings"].get("version", ""))[:2] if algorithm["name"] == "ars" else ""
    )
    return f"{algorithm['name']} {version}".strip()


def own_text(entry: Entry, threshold: float) -> str:
    """The earliest step of a seed, how many pass the threshold, and the label of a variant."""
    steps = [steps_to(entry, place, threshold) for place in range(len(entry.runs))]
    passed = sum(map(math.isfinite, steps))
    earliest = f"{min(steps):,.0f}" if passed else "never"
    name, label = entry.spec["algorithm"]["name"], entry.cell.algorithm
    variant = "" if name == label else f" {markdown_code(label)}"
    return f"**{earliest}** ({passed}/{len(steps)}){variant}"


def steps_to(entry: Entry, place: int, threshold: float) -> float:
    """The steps until one seed passes a threshold in training or by its final score."""
    run, score = entry.runs[place], entry.scores[place]
    final = run.env_steps if score >= threshold else math.inf
    return min(run.best_so_far.steps_to(threshold), final)
