"""What a chart shows, whatever draws it: curves, marks and axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.units import counted
from esbench.publish.figures.style import Style
from esbench.results.statistics.curves import Band

MARKERS: Final = 5  # on a line
FILLED: Final = 0.5  # least share of an axis that the data take
SHARES: Final = ((0, 0.25, 0.5, 0.75, 1), ("none", "1/4", "half", "3/4", "all"))
MOST_NAMES: Final = 3  # environments in a heading; more are counted


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """The curve of one algorithm, whose ``label`` is its text in the legend.

    Arrays are [points]. ``y`` is NaN in a gap. ``low`` and ``high`` bound the pointwise 95 %
    interval, NaN without one.
    """

    name: str
    label: str
    style: Style
    x: Floats
    y: Floats
    low: Floats
    high: Floats


def band_curve(name: str, label: str, style: Style, band: Band, unit: float = 1.0) -> Curve:
    """The curve of a band; x is divided by ``unit``."""
    return Curve(name, label, style, band.x / unit, band.iqm, band.low, band.high)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Chart:
    """Curves, marks and axes.

    Attributes:
        title: what it shows, without the environments.
        reading: how to read its curves.
        environments: those that the curves are about.
        levels: values of y to mark, with their names.
        places: values of x to mark, with their names.
        chance: a range of y to shade.
        is_share: y goes from none to all.
        is_whole: x counts something.
        log_x, log_y: the axis is logarithmic.
        nearest_zero: y is logarithmic below this negative number, and not distinguished above it.
        x_range: the ends of x, by default those of the curves.
        ticks: names of the values of x; intervals are bars.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    reading: str = ""
    environments: Sequence[str] = ()
    levels: Sequence[tuple[float, str]] = ()
    places: Sequence[tuple[float, str]] = ()
    chance: tuple[float, float] | None = None
    is_share: bool = False
    is_whole: bool = False
    log_x: bool = False
    log_y: bool = False
    nearest_zero: float | None = None
    x_range: tuple[float, float] | None = None
    ticks: Mapping[float, str] | None = None

    @property
    def heading(self) -> str:
        """The title with the environments."""
        many = len(self.environments) > MOST_NAMES
        names = ", ".join(self.environments)
        return f"{self.title}: {counted(len(self.environments), 'environment') if many else names}"

    @property
    def values(self) -> Floats:
        """All values of y, with the ends of their intervals."""
        parts = [part for curve in self.curves for part in (curve.y, curve.low, curve.high)]
        return np.concatenate(parts) if parts else np.zeros(0)


def is_banded(curves: Iterable[Curve]) -> bool:
    """Whether some curve has an interval."""
    return any(not np.isnan(curve.low).all() for curve in curves)


def fitting(values: Iterable[float], data: npt.ArrayLike) -> list[float]:
    """The values that an axis can show while the data, of any shape, take at least half of it.

    All of them if the data are constant.
    """
    finite = np.asarray(data, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    ends = [finite.min(), finite.max()] if finite.size else [0.0, 0.0]
    extent, kept = ends[1] - ends[0], []
    for value in sorted(values, key=lambda value: max(ends[0] - value, value - ends[1])):
        if extent >= FILLED * (max(*ends, value) - min(*ends, value)) or not extent:
            ends.append(value)
            kept.append(value)
    return kept
