"""Prints the scores of policies, and the comparison of two sides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from esbench.cli.console import print_sheet, show
from esbench.core.arrays import Vector
from esbench.core.units import NONE, counted

if TYPE_CHECKING:  # slow to import
    from esbench.publish.tables.comparison_table import Sides


def returns_text(returns: Vector) -> str:
    """Mean, standard deviation and range of the returns of episodes as text.

    If a return is not finite, the number of such episodes.
    """
    if bad := np.count_nonzero(~np.isfinite(returns)):
        return f"mean {NONE} ({bad} of {counted(returns.size, 'episode')} not finite)"
    mean, std = float(np.mean(returns)), float(np.std(returns))
    low, high = float(np.min(returns)), float(np.max(returns))
    digits = 2 if not mean or abs(mean) >= 1 else 2 - math.floor(math.log10(abs(mean)))
    return (
        f"mean {mean:.{digits}f}, std {std:.{digits}f}, min {low:.{digits}f}, "
        f"max {high:.{digits}f} over {returns.size} episodes"
    )


def print_comparison(sides: Sides, *, tail: bool = False) -> None:
    """Print two sides next to each other, and which one is better."""
    from esbench.publish.tables.comparison_table import outcome, sheet

    show(f"A: {sides.first}\nB: {sides.second}\n")
    print_sheet(sheet(sides, tail=tail))
    show(Text(f"{outcome(sides)}.", "bold"))
