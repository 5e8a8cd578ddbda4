"""Figures that are not drawn yet, and the parts that all of them share."""

from __future__ import annotations

import functools
import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from esbench.core.errors import UsageError
from esbench.core.escape import printable
from esbench.core.units import counted
from esbench.publish.figures.style import COLUMN, FONT, WIDTH, growth, style
from esbench.store.outputs import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.text import Text

Suffix: TypeAlias = Literal["png", "svg", "pdf"]
Size: TypeAlias = tuple[float, float]  # width and height [inches]

DPI: Final = 150
SMALLEST: Final = 2.0
LONGEST: Final = (1.35, 0.92)  # length of a label in its panel's, and of a title in the width
MIN_LINE: Final = 12  # characters
LARGEST: Final = 40.0
SUFFIXES: Final[tuple[Suffix, ...]] = ("png", "svg")
METADATA: Final[dict[Suffix, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
LEGEND_ROW: Final = 0.19
ROOM: Final = (1.8, 1.5)  # least width and height of a panel with its labels [inches]
LEGEND_WIDTH: Final = (14.4, 18.5)  # characters per inch, and those in a column of a page
LEGEND_LINE: Final = 9  # characters that take as much room as the line beside a label


@final
@dataclass(frozen=True)
class Output:
    """The formats of a figure's files, and its size; by default that of its content."""

    suffixes: Sequence[Suffix] = SUFFIXES
    size: Size | None = None


DEFAULT_OUTPUT: Final = Output()


@final
@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure that is not drawn yet.

    Attributes:
        height: in inches, without the legend.
        labels: of the legend.
        draw: fills an empty figure of a size, and returns the lines of the legend by their labels.
        panels: their number. They are below each other in a figure that is higher than wide.
        caption: how to read it. A figure of a given size does not contain it.
    """

    height: float
    labels: Sequence[str]
    draw: Callable[[FigureBase, Size], Mapping[str, Any]]
    panels: int = 1
    caption: str = ""

    def size(self, wanted: Size | None = None) -> Size:
        """The size of the whole figure: the wanted one, or that of its content.

        Raises:
            UsageError: the wanted size has no room for the panels and the legend.
        """
        if wanted is None:
            return WIDTH, self.height + self._legend_height(WIDTH)
        width, height = wanted
        columns, rows = (1, self.panels) if is_stacked(wanted) else (self.panels, 1)
        wide = max(ROOM[0] * columns, width)
        high = max(ROOM[1] * rows + self._legend_height(wide), height)
        if wanted != (wide, high):
            least = "x".join(f"{math.ceil(round(10 * side, 6)) / 10:g}" for side in (wide, high))
            raise UsageError(
                f"--size {width:g}x{height:g}: no room for {counted(self.panels, 'panel')} and "
                f"{counted(len(self.labels), 'label')}; expected at least {least}, or another shape"
            )
        return wanted

    def _legend_height(self, width: float) -> float:
        if not self.labels:
            return 0.0
        columns = _columns(self.labels, width)
        line = _characters(width) - LEGEND_LINE
        row = LEGEND_ROW * growth(width)
        if columns > 1:
            return row * -(-len(self.labels) // columns)
        return row * sum(max(1, math.ceil(len(label) / line)) for label in self.labels)

    def make(self, wanted: Size | None = None) -> Figure:
        """The figure, in the current style of matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        size = self.size(wanted)
        figure = Figure(figsize=size, layout="constrained")  # pyplot does not know it
        FigureCanvasAgg(figure)
        self.fill(figure, size, self.caption if wanted is None else "")
        wrap_texts(figure)
        return figure

    def fill(self, figure: FigureBase, size: Size, caption: str) -> None:
        """Draw into an empty figure of a size; characters without a glyph become escapes."""
        from matplotlib.text import Text

        _place_legend(figure, size, self.draw(figure, size), caption)
        for text in figure.findobj(Text):
            text.set_text("".join(map(_with_glyph, printable(text.get_text()))))

    def files(self, output: Output = DEFAULT_OUTPUT) -> dict[str, bytes]:
        """The bytes of its files by suffix; equal content gives equal bytes."""
        contents: dict[str, bytes] = {}
        with style(self.size(output.size)[0]):
            figure = self.make(output.size)
            for suffix in output.suffixes:
                buffer = io.BytesIO()
                figure.savefig(buffer, format=suffix, dpi=DPI, metadata=METADATA[suffix])
                contents[suffix] = buffer.getvalue()
        return contents

    def write(self, folder: Path, name: str, output: Output = DEFAULT_OUTPUT) -> list[Path]:
        """Write its files, and return them; UsageError if that is not possible."""
        contents = {folder / f"{name}.{key}": value for key, value in self.files(output).items()}
        for path, content in contents.items():
            write_bytes(path, content)
        return list(contents)


def parse_size(text: str) -> Size:
    """The size of "6.6x3.2"; UsageError for other text."""
    width, _, height = text.partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        size = math.nan, math.nan
    if not all(SMALLEST <= side <= LARGEST for side in size):
        raise UsageError(
            f"--size {text}: expected width and height such as 6.6x3.2, each from {SMALLEST:g} to "
            f"{LARGEST:g} inches"
        )
    return size


def is_stacked(size: Size) -> bool:
    """Whether the panels of a figure of this size are below each other."""
    return size[1] > size[0]


def _with_glyph(each: str) -> str:
    """A character, or its escape sequence if the font of figures lacks it."""
    return each if each == "\n" or ord(each) in _glyphs() else ascii(each)[1:-1]


@functools.cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(FONT)).get_charmap())


def wrap_texts(figure: Figure) -> None:
    """Break the lines of titles and labels that are longer than their figure or panel.

    So are those of a legend that is wider than its figure.
    """
    figure.draw_without_rendering()
    width = figure.bbox.width
    for part in (figure, *figure.subfigs):
        for text in [*part.texts, *(legend.get_title() for legend in part.legends)]:
            _wrap(text, width * LONGEST[1])
        for legend in part.legends:
            extent, texts = legend.get_window_extent().width, legend.get_texts()
            if extent > width:
                longest = max(map(_length, texts)) - (extent - width * LONGEST[1])
                for text in texts:
                    _wrap(text, longest)
                figure.draw_without_rendering()  # the legend takes its room from the panels
    for axes in figure.axes:
        _wrap(axes.xaxis.label, axes.bbox.width)
        _wrap(axes.yaxis.label, axes.bbox.height * LONGEST[0])


def _wrap(text: Text, longest: float) -> None:
    """Break the lines of a text so that none is longer than ``longest`` pixels."""
    lines = text.get_text().split("\n")
    most = max(map(len, lines))
    while (length := _length(text)) > longest and most > MIN_LINE:
        most = max(MIN_LINE, min(most - 1, int(most * longest / length)))
        text.set_text("\n".join(part for line in lines for part in textwrap.wrap(line, most)))


def _length(text: Text) -> float:
    """The length of the longest line of a horizontal or vertical text [pixels]."""
    extent = text.get_window_extent()
    return max(extent.width, extent.height)


def legend_lines(axes: Axes) -> dict[str, Any]:
    """The lines of ``axes`` that a legend shows, by their labels."""
    handles, labels = axes.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def _place_legend(figure: FigureBase, size: Size, lines: Mapping[str, Any], title: str) -> None:
    """Add a legend of lines by their labels below the figure, if there are any."""
    if lines:
        figure.legend(
            list(lines.values()),
            list(lines),
            loc="outside lower center",
            ncols=_columns(list(lines), size[0]),
            handlelength=2.8,  # in font sizes, for a whole period of each line
            columnspacing=1.5,
            frameon=False,
            title=title,
        )


def _columns(labels: Sequence[str], width: float) -> int:
    """The number of legend columns that fit the width of the figure [inches]."""
    longest = max(map(len, labels)) + LEGEND_LINE
    most = max(1, min(len(labels), round(_characters(width)) // longest))
    return -(-len(labels) // -(-len(labels) // most))  # equally long ones


def _characters(width: float) -> float:
    """How many characters of a legend fit a width [inches]."""
    return LEGEND_WIDTH[width < COLUMN] * width / growth(width)
