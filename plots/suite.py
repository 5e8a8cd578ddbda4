"""Draws the figures of a suite from the files of the leaderboard.

    python plots/suite.py SUITE [LEADERBOARD] [OUT]

writes ``SUITE-NAME.png`` for every figure to the folder OUT, by default the current one.
LEADERBOARD is ``results/leaderboard`` unless it is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from esbench.core.errors import UsageError
from esbench.publish.figures.drawing import Output
from esbench.publish.leaderboard.suites import read_suite, suite_drawings, suite_names
from esbench.results.entries import read_leaderboard

LEADERBOARD = Path(__file__).parents[1] / "results" / "leaderboard"


def draw(name: str, leaderboard: Path = LEADERBOARD, out: Path = Path()) -> list[Path]:
    """Write the figures and return their files; UsageError if the suite has no entry."""
    drawings = suite_drawings(read_suite(name, read_leaderboard(leaderboard)))
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}-{figure}.png" for figure in drawings]
    for path, drawing in zip(paths, drawings.values(), strict=True):
        path.write_bytes(drawing.files(Output(("png",)))["png"])
    return paths


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in suite_names():
        sys.exit(f"{' '.join(sys.argv[1:2])!r}: expected a suite: {', '.join(suite_names())}")
    try:
        draw(sys.argv[1], *map(Path, sys.argv[2:4]))
    except UsageError as error:
        sys.exit(f"{error}")
