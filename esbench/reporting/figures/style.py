"""How figures look: their styles, their legend, and their bytes, whatever they show."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from esbench.analysis.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

DPI: Final = 150
WIDTH: Final = 6.6  # inches
LEGEND_ROW: Final = 0.19
LEGEND_WIDTH: Final = 95  # characters
MARKERS: Final = 5  # a line


@final
@dataclass(frozen=True)
class Style:
    """How a line looks: without its colour, line and marker together still name it."""

    color: str
    line: str
    marker: str


# Okabe & Ito, "Color universal design", 2008, without yellow, which paper swallows.
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


@contextmanager
def drawing(settings: Any = MappingProxyType({})) -> Iterator[None]:
    """Draw as all figures are drawn, whatever a person's matplotlibrc says.

    Args:
        settings: further ones of matplotlib's, a mapping.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        matplotlib.rcParams.update(settings)
        yield


def as_files(make: Callable[[], Figure]) -> dict[str, bytes]:
    """Return a figure as bytes by file suffix, "png" and "svg"; equal figures give equal bytes."""
    contents = {}
    with drawing():
        figure = make()
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=DPI, metadata=metadata)
            contents[suffix] = buffer.getvalue()
    return contents


def new_figure(height: float, labels: Sequence[str]) -> Figure:
    """Return an empty figure with room for a legend below.

    Args:
        height: inches, without the legend.
        labels: of the lines, which the legend will have.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(labels) // _columns(labels))
    figure = Figure(figsize=(WIDTH, height + LEGEND_ROW * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def add_legend(figure: Figure, axes: Axes, title: str) -> None:
    """Put the legend of the lines of ``axes`` below the figure."""
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


def draw_line(
    axes: Axes, x: Floats, y: Floats, style: Style, label: str, index: int, count: int
) -> None:
    """Draw line ``index`` of ``count``; markers are few, and those of each at points of its own."""
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


def assign_styles(names: Sequence[tuple[str, str]]) -> list[Style]:
    """Return a style for each line of a figure, given as (algorithm's label, line's name).

    Known algorithms have theirs. Other labels, and further lines of the same algorithm, take the
    one that the hash of their name points at or, if its marker is in use, the next free.
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
    """Return the style that a name's hash points at, or the next with a marker not in use."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    markers = [style.marker for style in used]
    lines = [style.line for style in used]
    colors = [style.color for style in used]
    marker, line = min(
        _rotated(_LOOKS, number),
        key=lambda look: (look in zip(markers, lines, strict=True), *_counts(look, markers, lines)),
    )
    palette = _rotated(COLORS, number // len(_LOOKS))
    return Style(min(palette, key=colors.count), line, marker)


def _counts(look: tuple[str, str], markers: list[str], lines: list[str]) -> tuple[int, int]:
    return markers.count(look[0]), lines.count(look[1])


def _rotated(items: Sequence[T], start: int) -> list[T]:
    first = start % len(items)
    return [*items[first:], *items[:first]]


def _columns(labels: Sequence[str]) -> int:
    """Return how many columns a legend of these texts has room for."""
    return max(1, min(len(labels), LEGEND_WIDTH // (max(map(len, labels)) + 8)))
