"""Draws ``history.png`` beside it: the past checks of an invented repository.

    python plots/history.py

Forty commits with eight seeds each; one seed in ten fails. Every third commit changes the digests.
Commit 24 lowers all scores, commit 32 makes training faster.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from esbench.core.seeding import Purpose, stream
from esbench.publish.figures.drawing import Output
from esbench.publish.figures.history_figure import history_drawing
from esbench.publish.history import history

COMMITS, SEEDS = 40, 8
DROP_AT, FASTER_AT = 24, 32
FIRST = datetime(2026, 1, 5, 12, tzinfo=UTC)


def main() -> None:
    """Write the figure."""
    with tempfile.TemporaryDirectory() as folder:
        write_checks(Path(folder))
        (cell,) = history([Path(folder)])
    content = history_drawing(cell).files(Output(("png",)))["png"]
    Path(__file__).with_suffix(".png").write_bytes(content)


def write_checks(folder: Path) -> None:
    """Write one file per commit, as ``esbench check --json`` does."""
    rng = stream(0, Purpose.SIMULATION)
    scores = [0.0] * SEEDS
    digest = ""
    for commit in range(COMMITS):
        name = hashlib.sha256(b"commit %d" % commit).hexdigest()[:40]
        if commit % 3 == 0:
            digest = name
            level = 480.0 - 25.0 * (commit >= DROP_AT)
            failed = rng.random(SEEDS) < 0.1
            scores = (level + 10 * rng.standard_normal(SEEDS) - 200 * failed).tolist()
        speed = 90_000 * (1 + 0.4 * (commit >= FASTER_AT)) * (1 + 0.05 * rng.standard_normal())
        date = (FIRST + timedelta(days=2 * commit)).isoformat()
        cell = {
            "environment": "CartPole-v1", "algorithm": "openai_es", "policy": "default",
            "episode_statistic": "mean", "seeds": list(range(SEEDS)), "scores": scores,
            "verdict": "regression" if commit >= DROP_AT else "no worse",
            "speeds": [speed] * SEEDS, "last_digests": [digest] * SEEDS, "origins": [],
        }  # fmt: skip
        check = {"format": 1, "commit": name, "commit_date": date, "created": date, "cells": [cell]}
        (folder / f"{name}.json").write_text(json.dumps(check), encoding="utf-8")


if __name__ == "__main__":
    main()
