"""All figures of an output folder as one figure, for notebooks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from esbench.publish.figures.all_figures import drawings
from esbench.publish.figures.drawing import DPI, Size, wrap_texts
from esbench.publish.figures.environment_figure import PANELS, Panel
from esbench.publish.figures.style import style


@final
class CombinedFigure(Figure):
    """A figure that displays itself in a notebook, although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with style():
            self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


def combined_figure(
    root: Path,
    algorithms: Sequence[str] = (),
    size: Size | None = None,
    panels: Sequence[Panel] = PANELS,
) -> CombinedFigure:
    """The figures of ``draw`` below each other, each of the given size; UsageError as there."""
    parts = list(drawings(root, algorithms, panels).values())
    sizes = [part.size(size) for part in parts]
    widths, heights = zip(*sizes, strict=True)
    with style():
        figure = CombinedFigure(figsize=(max(widths), sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        places = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False).flat
        for place, part, own in zip(places, parts, sizes, strict=True):
            part.fill(place, own)
        wrap_texts(figure)
        figure.draw_without_rendering()  # ticks take their style when they are first drawn
    return figure
