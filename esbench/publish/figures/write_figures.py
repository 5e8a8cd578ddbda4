"""All figures of an output folder, as files or as one figure for a notebook."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from esbench.core.errors import UsageError, unknown
from esbench.core.files import distinct_names
from esbench.publish.figures import across
from esbench.publish.figures.chart import chart_drawing, charts_drawing
from esbench.publish.figures.drawing import DEFAULT_OUTPUT, DPI, Drawing, Output, Size, wrap_texts
from esbench.publish.figures.environment_charts import PANELS, Panel, learning_charts, sweep_charts
from esbench.publish.figures.style import cell_styles, style
from esbench.results.cell import cells_named
from esbench.results.sources import read_folder


@final
class Written(NamedTuple):
    """The files of a figure, and how to read it if it does not say so itself."""

    paths: list[Path]
    caption: str


def draw(
    root: Path,
    out: Path | None = None,
    algorithms: Sequence[str] = (),
    output: Output = DEFAULT_OUTPUT,
    panels: Sequence[Panel] = PANELS,
    figures: Sequence[str] = (),
) -> list[Written]:
    """Write the figures of ``root``, by default to its folder "figures".

    There is one for each environment and for each setting swept in it, "ecdf" if an environment
    has frozen random and reference scores, and "profile" if two environments have. ``algorithms``
    are names as in tables, or else labels or names of algorithms for all of their rows; by default
    all. Styles do not depend on the choice, except in sweeps. ``panels`` are those of the figures
    of environments. ``figures`` are names of figures, by default all.

    Raises:
        UsageError: no trial has two generations yet, an algorithm has no trial, there is no such
            figure, the size is too small, or a file cannot be written.
    """
    folder = root / "figures" if out is None else out
    found = drawings(root, algorithms, panels, figures)
    for drawing in found.values():
        drawing.size(output.size)  # refused before any file is written
    return [
        Written(drawing.write(folder, name, output), drawing.caption if output.size else "")
        for name, drawing in found.items()
    ]


def parse_panels(text: str) -> list[Panel]:
    """The panels of "steps,rank"; UsageError for a name that is no panel."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PANELS:
            raise unknown("panel", name, PANELS)
    return [panel for panel in PANELS if panel in names]


def drawings(
    root: Path,
    algorithms: Sequence[str] = (),
    panels: Sequence[Panel] = PANELS,
    figures: Sequence[str] = (),
) -> dict[str, Drawing]:
    """The figures of ``draw`` by name; UsageError as there."""
    found = read_folder(root)
    styles = cell_styles(found)
    for name in algorithms:
        if not cells_named(found, name):
            raise unknown(f"algorithm in {root}", name, {cell.name for cell in found})
    chosen = found
    if algorithms:
        wanted = [cell for name in algorithms for cell in cells_named(found, name)]
        chosen = [cell for cell in found if cell in wanted]
    drawn, stems = {}, distinct_names(cell.environment for cell in found)
    for environment, members in itertools.groupby(found, attrgetter("environment")):
        everything, stem = list(members), stems[environment]
        group = [cell for cell in everything if cell in chosen]
        charts, _ = learning_charts(group, styles)
        if charts:
            drawn[stem] = charts_drawing(environment, [charts[panel] for panel in panels])
        for setting, chart in sweep_charts(everything, group).items():
            drawn[f"{stem}-{setting}"] = chart_drawing(chart)
    if not drawn:
        raise UsageError(
            f"nothing to draw in {str(root)!r}: no trial has two generations with a return yet"
        )
    for name, make in (("ecdf", across.target_ecdf), ("profile", across.performance_profile)):
        if overall := make(chosen, styles):
            drawn[name] = chart_drawing(overall)
    for name in figures:
        if name not in drawn:
            raise unknown(f"figure of {root}", name, drawn)
    return {name: drawing for name, drawing in drawn.items() if not figures or name in figures}


@final
class CombinedFigure(Figure):
    """A figure that displays itself in a notebook, although pyplot does not know it."""

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Write it in its style, with fonts as in the files of ``draw``."""
        with style():
            super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


def combined_figure(
    root: Path,
    algorithms: Sequence[str] = (),
    size: Size | None = None,
    panels: Sequence[Panel] = PANELS,
    figures: Sequence[str] = (),
) -> CombinedFigure:
    """The figures of ``draw`` below each other, each of the given size; UsageError as there."""
    parts = list(drawings(root, algorithms, panels, figures).values())
    sizes = [part.size(size) for part in parts]
    widths, heights = zip(*sizes, strict=True)
    with style(max(widths)):
        figure = CombinedFigure(figsize=(max(widths), sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        places = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False).flat
        for place, part, own in zip(places, parts, sizes, strict=True):
            part.fill(place, own, "" if size else part.caption)
        wrap_texts(figure)
        figure.draw_without_rendering()  # ticks take their style when they are first drawn
    return figure
