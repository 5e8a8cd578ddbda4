"""Tables as data frames of numbers, for scripts and notebooks; ``attrs`` holds what to read first.

The numbers are those of the printed tables, in full precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from esbench.publish.tables.comparison import Sides, as_json, as_latex, as_markdown, outcome
from esbench.publish.tables.score_sheet import footnotes
from esbench.publish.tables.score_table import ScoreRow, shared_name
from esbench.publish.tables.wide_table import ACROSS, wide_sheet

if TYPE_CHECKING:
    import pandas as pd

_SCORE_COLUMNS: Final = (
    *("environment", "algorithm", "policy", "score", "low", "high", "tail", "standing", "seeds"),
    *("unfinished", "env_steps", "wall_time_s", "random_score", "reference_score", "normalized"),
)


def score_frame(rows: Sequence[ScoreRow], by: str | None = None) -> pd.DataFrame:
    """One row per environment and algorithm; the setting ``by`` has a column of its name."""
    import pandas as pd

    frame = pd.DataFrame([{key: getattr(row, key) for key in _SCORE_COLUMNS} for row in rows])
    if any(not math.isnan(row.selected) for row in rows):
        frame["selected"] = [row.selected for row in rows]
    if by is not None:
        frame["algorithm"] = [shared_name(row, by) for row in rows]
        frame.insert(2, by, [row.setting for row in rows])
        frame = frame.drop(columns="policy")  # part of the name
    frame.attrs["notes"] = footnotes(rows)
    return frame


def wide_frame(rows: Sequence[ScoreRow], *, tail: bool = False) -> pd.DataFrame:
    """One row per algorithm, the best first; one column of scores per environment.

    With ``tail``, each is followed by a column "ENVIRONMENT tail".
    """
    import pandas as pd

    sheet = wide_sheet(rows)
    names = [cells[0] for cells in sheet.body[: len(sheet.body) - sheet.separated]]
    environments = [key for key in sheet.header[1:] if key != ACROSS]
    suffixes = ("", " tail") if tail else ("",)
    table: dict[str, dict[str, float]] = {
        e + suffix: {} for e in environments for suffix in suffixes
    }
    for row in rows:
        for suffix, value in zip(suffixes, (row.score, row.tail), strict=False):
            table[row.environment + suffix][row.name] = value
    frame = pd.DataFrame(table, index=pd.Index(names, name="algorithm"))
    frame.attrs["notes"] = sheet.notes
    return frame


def export_comparison(sides: Sides, format_: str) -> str:
    """A comparison as markdown, latex, csv or json; the last two in full precision."""
    match format_:
        case "markdown":
            return as_markdown(sides)
        case "latex":
            return as_latex(sides)
        case "csv":
            return comparison_frame(sides).to_csv(index=False)
        case _:
            return as_json(sides)


def comparison_frame(sides: Sides) -> pd.DataFrame:
    """One row per environment, or per environment and algorithm."""
    import pandas as pd

    rows = []
    for pair in sides.pairs:
        item = pair.comparison
        row: dict[str, Any] = {"environment": pair.environment}
        for side, name, score, tail, seeds in (
            ("a", pair.first_name, item.first, pair.tails[0], item.runs[0]),
            ("b", pair.second_name, item.second, pair.tails[1], item.runs[1]),
        ):
            row |= {side: name, f"{side}_score": score, f"{side}_tail": tail}
            row |= {f"{side}_seeds": seeds}
        for key in ("difference", "improvement"):
            value, low, high = asdict(getattr(item, key)).values()
            row |= {key: value, f"{key}_low": low, f"{key}_high": high}
        rows.append(row | {"p_value": pair.p_value, "effect_size": item.effect_size})
    frame = pd.DataFrame(rows)
    frame.attrs |= {"outcome": outcome(sides), "notes": list(sides.notes)}
    return frame
