"""The look of all figures: line styles, legend and output files."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import numpy as np

from esbench.analysis.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

DPI: Final = 150
WIDTH: Final = 6.6  # inches
LEGEND_ROW: Final = 0.19
LEGEND_WIDTH: Final = 95  # characters
MARKERS: Final = 5  # on a line
MARK_COLOR: Final = "#888888"
TEXT_COLOR: Final = "#444444"


@final
@dataclass(frozen=True)
class Style:
    """The look of a line; its dashes and marker identify it without colour."""

    color: str
    line: str
    marker: str


# Okabe & Ito, "Color universal design", 2008, without yellow, which is too light on white.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE, GREY = COLORS = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#777777",
)
STYLES: Final = {
    "openai_es": Style(BLUE, "-", "o"),
    "random_search": Style(GREY, "--", "X"),
    "ars": Style(VERMILLION, "-.", "s"),
    "pgpe": Style(GREEN, "-", "^"),
    "pepg": Style(GREEN, "--", "v"),
    "snes": Style(PURPLE, "-", "D"),
    "xnes": Style(PURPLE, "--", "d"),
    "cem": Style(ORANGE, "-", "P"),
    "ns_es": Style(SKY, "-", "<"),
    "nsr_es": Style(SKY, "--", ">"),
    "nsra_es": Style(SKY, "-.", "8"),
    "genetic": Style(ORANGE, "-.", "p"),
    "cma_es": Style(BLACK, "-", "*"),
    "sep_cma_es": Style(BLACK, "--", "h"),
    "eggroll": Style(VERMILLION, "--", "H"),
}
_LOOKS: Final = tuple(itertools.product("oXs^vDdP<>8p*hH", ("-", "--", "-.")))

_RC: Final[Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "svg.hashsalt": "esbench",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def as_files(make: Callable[[], Figure]) -> dict[str, bytes]:
    """Render a figure to bytes by file suffix, "png" and "svg".

    Equal figures give equal bytes, whatever the user's matplotlibrc says.
    """
    import matplotlib

    contents = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        figure = make()
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=DPI, metadata=metadata)
            contents[suffix] = buffer.getvalue()
    return contents


def new_figure(height: float, labels: Sequence[str]) -> Figure:
    """Make an empty figure with room for a legend below.

    Args:
        height: inches, without the legend.
        labels: texts of the legend.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(labels) // _columns(labels))
    figure = Figure(figsize=(WIDTH, height + LEGEND_ROW * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def add_legend(figure: Figure, axes: Axes, title: str) -> None:
    """Add the legend of the lines of ``axes`` below the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_columns(labels),
        frameon=False,
        title=title,
        title_fontsize=8,
    )


def draw_curve(
    axes: Axes,
    x: Floats,
    y: Floats,
    low: Floats,
    high: Floats,
    style: Style,
    label: str,
    index: int,
    count: int,
    opacity: float,
) -> None:
    """Draw curve ``index`` of ``count`` and its band, if it has one; [points] each.

    Each line has a few markers, shifted so that those of different lines do not coincide.
    """
    every = max(1, len(x) // MARKERS)
    axes.plot(
        x,
        y,
        color=style.color,
        linestyle=style.line,
        marker=style.marker,
        markevery=(index * every // count, every),
        markerfacecolor="white",
        markeredgewidth=1.2,
        label=label,
        zorder=3,
    )
    if not np.isnan(low).all():
        axes.fill_between(x, low, high, color=style.color, alpha=opacity, linewidth=0)


def assign_styles(names: Sequence[tuple[str, str]]) -> list[Style]:
    """Choose a style for each line, given as (label of the algorithm, name of the line).

    Known algorithms have fixed styles. Other labels, and further lines of the same algorithm, take
    the style selected by the hash of their name or, if its marker is in use, the next free one.
    """
    chosen: dict[int, Style] = {}
    for index, (algorithm, _) in enumerate(names):
        style = STYLES.get(algorithm)
        if style is not None and style not in chosen.values():
            chosen[index] = style
    for index, (_, name) in enumerate(names):
        if index not in chosen:
            chosen[index] = _free_style(name, list(chosen.values()))
    return [chosen[index] for index in range(len(names))]


def _free_style(name: str, used: Sequence[Style]) -> Style:
    """The style selected by the hash of a name, or the next one whose marker is free."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    looks = [(style.marker, style.line) for style in used]
    markers, lines = [look[0] for look in looks], [look[1] for look in looks]
    colors = [style.color for style in used]
    marker, line = min(
        _rotated(_LOOKS, number),
        key=lambda look: (look in looks, markers.count(look[0]), lines.count(look[1])),
    )
    palette = _rotated(COLORS, number // len(_LOOKS))
    return Style(min(palette, key=colors.count), line, marker)


def _rotated(items: Sequence[T], start: int) -> list[T]:
    first = start % len(items)
    return [*items[first:], *items[:first]]


def _columns(labels: Sequence[str]) -> int:
    """The number of legend columns that fit the width of the figure."""
    return max(1, min(len(labels), LEGEND_WIDTH // (max(map(len, labels)) + 8)))
