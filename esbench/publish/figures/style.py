"""The look of all figures: colors, line styles and the settings of matplotlib."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from esbench.results.cell import Cell

MARK: Final[Any] = {"color": "#888888", "linestyle": ":", "linewidth": 1.2, "zorder": 2}
NOTE: Final[Any] = {"textcoords": "offset points", "fontsize": "small", "color": "#444444"}


@final
@dataclass(frozen=True)
class Style:
    """The look of a line; its dashes and marker identify it without color."""

    color: str
    line: str
    marker: str


# Okabe & Ito, "Color universal design", 2008, without yellow, which is too light on white.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE, GRAY = COLORS = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#777777",
)  # fmt: skip
WINE: Final = "#882255"  # Tol, "Color schemes", 2021: one more, for a table of nine algorithms
STYLES: Final = {
    "openai_es": Style(BLUE, "-", "o"),
    "random_search": Style(GRAY, "--", "X"),
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
    "sep_cma_es": Style(SKY, "--", "P"),
    "csa_es": Style(WINE, "-.", "v"),
    "eggroll": Style(VERMILLION, "--", "H"),
    "ppo": Style(GRAY, ":", "d"),
}
# Without octagons and a second hexagon, which look like circles.
_LOOKS: Final = tuple(itertools.product("oXs^vDdP<>p*H", ("-", "--", "-.")))
FONT: Final = "DejaVu Sans"  # comes with matplotlib: the same figure everywhere
_RC: Final[Any] = {
    "font.family": FONT,
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.titlesize": 9,
    "figure.titlesize": 10,
    "legend.fontsize": 9,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "pdf.fonttype": 42,  # TrueType: venues reject Type 3
    "svg.fonttype": "none",  # text that can be searched and edited
    "svg.hashsalt": "esbench",
    "text.parse_math": False,  # a label with dollar signs is no formula
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
WIDTH: Final = 6.6  # inches: that of a figure without a given size
COLUMN: Final = 4.5  # inches: narrower figures stand in one of two columns
_SMALL: Final[Any] = {
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


def growth(width: float) -> float:
    """How much larger the type of a figure of a width [inches] is, such as one of a slide."""
    return math.sqrt(max(1.0, width / WIDTH))


@contextlib.contextmanager
def style(width: float = COLUMN) -> Iterator[None]:
    """Set the style of a figure of a width [inches], whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        large = {key: _RC[key] * growth(width) for key in _SMALL}
        matplotlib.rcParams.update(_RC | (_SMALL if width < COLUMN else large))
        yield


def cell_styles(cells: Iterable[Cell]) -> dict[str, Style]:
    """The styles of the lines of cells by their names, whatever the order of the cells."""
    return assign_styles(dict(sorted((cell.name, cell.algorithm) for cell in cells)))


def assign_styles(algorithms: Mapping[str, str]) -> dict[str, Style]:
    """Choose a style for each line, from the label of its algorithm by the name of the line.

    Known algorithms have fixed styles. Other lines take the style selected by the hash of their
    name or, if its marker is in use, the next free one.
    """
    chosen: dict[str, Style] = {}
    for name, algorithm in algorithms.items():
        style = STYLES.get(algorithm)
        if style is not None and style not in chosen.values():
            chosen[name] = style
    for name in algorithms:
        if name not in chosen:
            chosen[name] = _free_style(name, list(chosen.values()))
    return {name: chosen[name] for name in algorithms}


def _free_style(name: str, used: Sequence[Style]) -> Style:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    looks = [(style.marker, style.line) for style in used]
    markers, lines = [style.marker for style in used], [style.line for style in used]
    colors = [style.color for style in used]
    start = number % len(_LOOKS)
    marker, line = min(
        (*_LOOKS[start:], *_LOOKS[:start]),
        key=lambda look: (look in looks, markers.count(look[0]), lines.count(look[1])),
    )
    alike = [style.color for style in used if style.line == line]
    start = number // len(_LOOKS) % len(COLORS)
    palette = (*COLORS[start:], *COLORS[:start])
    color = min(palette, key=lambda color: (alike.count(color), colors.count(color)))
    return Style(color, line, marker)
