"""Progress as lines of text, and as a table in a notebook: the default of public functions."""

from __future__ import annotations

import contextlib
from typing import final

from esbench.app.display import Display, GridProgress, Mark, Tell, tell
from esbench.app.notebook import NotebookProgress, in_notebook


@final
class PlainDisplay(Display):
    """Lines of text."""

    def say(self, *lines: str) -> None:
        """Print lines on standard output."""
        tell(*lines)

    def working(self, what: str) -> contextlib.AbstractContextManager[Tell]:
        """Show nothing."""
        return contextlib.nullcontext(lambda _: None)

    def grid(self, trials: int, quiet: bool = False, warns: bool = True) -> GridProgress:
        """The progress of that many trials, which a notebook draws."""
        if in_notebook() and not quiet:
            return NotebookProgress(trials, warns)
        return PlainProgress(self, trials, quiet, warns)


@final
class PlainProgress(GridProgress):
    """The progress as lines of text."""

    def __init__(self, display: Display, trials: int, quiet: bool, warns: bool) -> None:
        super().__init__(trials, quiet, warns)
        self._display = display

    def show(self, mark: Mark, name: str, text: str) -> None:
        """Print a line about a trial."""
        self.say(f"{mark:<5} {self.padded(name)} {text}")

    def say(self, text: str, style: str = "") -> None:
        """Print a line that begins with no mark."""
        self._display.say(text)

    def advanced(self) -> None:
        """Nothing is drawn again."""
