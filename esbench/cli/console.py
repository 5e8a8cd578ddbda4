"""The console, and how it shows text, tables and the progress of a running grid."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, final

from rich import box
from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table
from rich.text import Text

from esbench.app.display import COLUMNS, Display, GridProgress, Mark, Tell, TrialProgress
from esbench.core.escape import printable
from esbench.core.units import counted
from esbench.publish.tables.render_table import INTERVAL, TEXTS, Sheet

NAME_WIDTH: Final = 24  # of an algorithm in a table that is printed in pieces
LONG_HEADING: Final = 16


@final
class _PrintableHook(RenderHook):
    """Lets a console print labels and messages of others without what controls a terminal."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What is printed in place of the ``renderables``."""
        return [_Printable(each) for each in renderables]


@final
@dataclass(frozen=True)
class _Printable:
    what: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.what, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment._replace(text=text)


def make_console(*, stderr: bool = False) -> Console:
    """The console on standard output or error, with colors if it is a terminal.

    Text in brackets is no markup, since it may be of others.
    """
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    console = Console(
        force_terminal=None if terminal else False, stderr=stderr, markup=False, emoji=False
    )
    console.push_render_hook(_PrintableHook())
    return console


def show(*parts: str | Text | Table, stderr: bool = False) -> None:
    """Print lines, which have no markup and are not wrapped, and tables."""
    console = make_console(stderr=stderr)
    for part in parts:
        line = Text(part) if isinstance(part, str) else part
        console.print(line, soft_wrap=isinstance(line, Text))


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
            console=console, transient=True, get_renderable=lambda: Group(*self.lines())
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

    def advanced(self) -> None:
        """The table draws itself again and again."""

    def _print(self, text: RenderableType) -> None:
        """Print above the table; only a terminal has lines that end between words."""
        self.console.print(text, soft_wrap=not self.is_live)

    def show(self, mark: Mark, name: str, text: str) -> None:
        """Print a line about a trial, or two lines in a narrow terminal."""
        first = Text(f"{mark:<5}", STYLES[mark])
        line = Text.assemble(first, f" {self.padded(name)} {text}")
        if self.is_live and line.cell_len > self.console.width:
            lines = Table.grid(padding=(0, 1))
            lines.add_row(first, f"{name}\n{re.sub(' {2,}', '  ', text)}")
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


@final
class Terminal(Display):
    """Shows progress in the terminal: a spinner on standard error, and tables of running trials.

    With ``stderr`` all is on standard error, since standard output has a result for programs.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr
        self._status: Status | None = None
        self.progress: TerminalProgress | None = None  # that of the last grid

    def say(self, *lines: str) -> None:
        """Print lines on standard output."""
        if self._status is None:
            show(*lines, stderr=self._stderr)
            return
        self._status.stop()  # while it spins, rich sends all output to standard error
        show(*lines, stderr=self._stderr)
        self._status.start()

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Tell]:
        """Show a spinner with a text on standard error, if that is a terminal."""
        with make_console(stderr=True).status(Text(f"{what} ...")) as status:
            self._status = status
            try:
                yield lambda text: status.update(Text(f"{text} ..."))
            finally:
                self._status = None

    def grid(self, trials: int, quiet: bool = False, warns: bool = True) -> TerminalProgress:
        """The progress of that many trials."""
        self.progress = TerminalProgress(make_console(stderr=self._stderr), trials, quiet, warns)
        return self.progress


def print_sheet(sheet: Sheet, console: Console | None = None, *, split: bool = False) -> None:
    """Print a table and its notes; ``split`` puts pieces that fit the console below each other."""
    console = console or make_console()
    if not split and sum(_widths(sheet)) > console.width + 1:
        sheet = _grouped(sheet)
    for columns in _pieces(sheet, console.width) if split else [range(len(sheet.header))]:
        console.print(sheet_table(sheet, columns, console.width), *([""] if split else []))
    for note in sheet.notes:  # words stay whole in a terminal, and a command to copy one line
        console.print(Text(note), soft_wrap=not console.is_terminal or note.startswith("Made by"))


def sheet_table(sheet: Sheet, columns: Sequence[int], width: int) -> Table:
    """Some columns of a sheet; intervals take two lines if the table is wider than ``width``."""
    too_wide = sum(_widths(sheet)[column] for column in columns) > width + 1
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for column in columns:
        name = _heading(sheet.header[column])
        if name in TEXTS:
            limit = None if len(columns) == len(sheet.header) else NAME_WIDTH
            table.add_column(name, overflow="fold", max_width=limit)
        else:
            heading = name.replace("% ", "%\n") if too_wide else name
            table.add_column(heading, justify="right", no_wrap=True, overflow="fold")
    for number, cells in enumerate(sheet.body):
        if number == len(sheet.body) - sheet.separated:
            table.add_section()
        row: list[RenderableType] = []
        for column in columns:
            text = cells[column]
            if too_wide and sheet.header[column] == INTERVAL:
                text = text.replace(", ", ",\n")
                row.append(text)
                continue
            first, line_break, below = text.partition("\n")
            style = "bold" if (number, column) in sheet.best else ""
            row.append(Text.assemble((first, style), (line_break + below, "dim")))
        table.add_row(*row)
    return table


def _grouped(sheet: Sheet) -> Sheet:
    """A narrower table: each environment is a line above its algorithms instead of a column."""
    if list(sheet.header[:2]) != ["Environment", "Algorithm"]:
        return sheet
    body: list[list[str]] = []
    bold = set()
    for number, (environment, algorithm, *cells) in enumerate(sheet.body):
        if not number or environment != sheet.body[number - 1][0]:
            bold.add((len(body), 0))
            body.append([environment, *[""] * len(cells)])
        bold |= {(len(body), column - 1) for row, column in sheet.best if row == number}
        body.append([f"  {algorithm}", *cells])
    return dataclasses.replace(sheet, header=sheet.header[1:], body=body, best=frozenset(bold))


def _pieces(sheet: Sheet, width: int) -> list[list[int]]:
    """The columns in groups that fit the width, each with the first column."""
    widths = _widths(sheet)
    room = width + 1 - min(widths[0], NAME_WIDTH + 1)
    pieces: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        used = sum(widths[other] for other in pieces[-1][1:])
        if used and used + widths[column] > room:
            pieces.append([0])
        pieces[-1].append(column)
    return pieces


def _widths(sheet: Sheet) -> list[int]:
    """The width of each column and the space after it, in characters."""
    columns = zip(map(_heading, sheet.header), *sheet.body, strict=True)
    return [1 + max(len(line) for text in texts for line in text.split("\n")) for texts in columns]


def _heading(name: str) -> str:
    """A column's name; a long name has one line per word, as "Mountain Car Continuous-v0"."""
    return name if len(name) <= LONG_HEADING else re.sub(r"(?<=[a-z/])(?=[A-Z])", "\n", name)
