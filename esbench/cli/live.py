"""Progress of a running grid: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Self, final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from esbench.app.display import COLUMNS, GridProgress, Mark, TrialProgress
from esbench.core.units import counted

STYLES: Final[dict[Mark, str]] = {
    "run": "",
    "wait": "yellow",
    "done": "green",
    "skip": "dim",
    "FAIL": "bold red",
    "busy": "yellow",
    "died": "yellow",
}
ACTIVITY_WIDTH: Final = 14  # "scoring 17/100"


@final
class TerminalProgress(GridProgress):
    """The progress in colors; in a terminal, also a bar of the grid and a table of its trials."""

    def __init__(self, console: Console, trials: int, quiet: bool, warns: bool) -> None:
        super().__init__(trials, quiet, warns, is_live=console.is_terminal and not quiet)
        self.console = console
        self._live = Live(
            console=console,
            transient=True,
            get_renderable=lambda: Group(*self.lines()),
        )

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print a line that begins with no mark."""
        self._print(Text(text, style))

    def _print(self, text: RenderableType) -> None:
        """Print above the table; only a terminal has lines that end between words."""
        self.console.print(text, soft_wrap=not self.is_live)

    def show(self, mark: Mark, name: str, text: str) -> None:
        """Print a line about a trial, or two lines in a narrow terminal."""
        first = Text(f"{mark:<5}", STYLES[mark])
        line = Text.assemble(first, f" {self.padded(name)} {text}")
        if self.is_live and line.cell_len > self.console.width:
            lines = Table.grid(padding=(0, 1))
            lines.add_row(first, Text(f"{name}\n{re.sub(' {2,}', '  ', text)}"))
            self._print(lines)
        else:
            self._print(line)

    def lines(self) -> Iterator[RenderableType]:
        """Yield the bar and the rows of the running trials."""
        ended, running = len(self.outcomes), list(self.running.values())
        # The bar counts a running trial by the share of its budget that is used.
        done = ended + sum(one.share for one in running)
        bar = Table.grid(padding=(0, 1))
        info = Text(f"{ended} of {counted(self.trials, 'trial')}", "cyan", no_wrap=True)
        bar.add_row(ProgressBar(self.trials, done), info)
        yield bar
        if running:
            yield from progress_rows(running, self.console.width)


def progress_rows(trials: list[TrialProgress], width: int) -> Iterator[Text]:
    """A heading and the running trials, in lines of ``width`` characters.

    The name of a trial has a line of its own, above its values, if both do not fit into one line.
    """
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *(one.cells() for one in trials)]
    sizes = {name: max(COLUMNS[name], *(len(row[name]) for row in rows)) for name in COLUMNS}
    gap = 2 if sum(sizes.values()) + 2 * len(sizes) <= width + 2 else 1
    heading, *values = ((" " * gap).join(f"{row[n]:>{sizes[n]}}" for n in sizes) for row in rows)
    longest = max(len(one.name) for one in trials)
    if one_line := longest + len(heading) + ACTIVITY_WIDTH + 4 <= width:
        heading = f"{'trial':<{longest}}  {heading}"
    yield Text(heading, "dim", no_wrap=True)
    for one, text in zip(trials, values, strict=True):
        activity = (f"  {one.activity}", "yellow")
        if one_line:
            yield Text.assemble(f"{one.name:<{longest}}  ", (text, "cyan"), activity, no_wrap=True)
        else:
            yield Text.assemble(one.name, activity)
            yield Text(text, "cyan", no_wrap=True)
