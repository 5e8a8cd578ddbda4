"""The progress of training in a notebook: a bar and a table in the output of the cell.

IPython draws them; esbench does not need it.
"""

from __future__ import annotations

import contextlib
import html
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

from esbench.app.display import COLUMNS, GridProgress, Mark, shown_return, tell
from esbench.core.escape import printable
from esbench.core.units import counted, format_number

if TYPE_CHECKING:
    from esbench.engine.engine import Engine
    from esbench.experiment.trainer import Trainer
    from esbench.experiment.watchers import Callback

REDRAWN: Final = 0.5  # seconds between two drawings
CELL: Final = "padding: 0 .8em 0 0; text-align: left; white-space: nowrap"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@final
class NotebookProgress(GridProgress):
    """The progress of trials, which is drawn again in its place in the notebook."""

    def __init__(self, trials: int, warns: bool = True) -> None:
        super().__init__(trials, quiet=False, warns=warns, is_live=True)
        self._ended: list[tuple[Mark, str, str]] = []
        self._drawn = self.now()
        self._handle: Any = None

    def __enter__(self) -> Self:
        self._handle = import_module("IPython.display").display(self, display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update(self)
        self.running.clear()

    def show(self, mark: Mark, name: str, text: str) -> None:
        """Add a row about a trial."""
        self._ended.append((mark, name, text))
        self._draw()

    def say(self, text: str, style: str = "") -> None:
        """Print a line on standard output."""
        tell(text)

    def advanced(self) -> None:
        """Draw what has changed, unless that was done a moment ago."""
        if self.now() - self._drawn >= REDRAWN:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self.now()
        self._handle.update(self)

    def __repr__(self) -> str:
        heading = [self._heading] if self._heading else []
        lines = [*heading, *(f"{mark:<5}{name}  {text}" for mark, name, text in self._ended)]
        return "\n".join([*lines, *(f"{one.name}  {one.line()}" for one in self.running.values())])

    def _repr_html_(self) -> str:
        done = len(self.outcomes) + sum(one.share for one in self.running.values())
        heading = self._heading or f"{done:.0%}"
        bar = f"<progress value='{done:.3f}' max='{self.trials}'></progress> {heading}"
        parts = [f"<div>{bar}</div>"]
        if self._ended:
            rows = ((mark, name, *re.split(" {2,}", text)) for mark, name, text in self._ended)
            parts.append(_table(rows))
        if self.running:
            running = [
                (one.name, *one.cells().values(), one.activity) for one in self.running.values()
            ]
            parts.append(_table(running, ("trial", *COLUMNS, "")))
        return "".join(parts)

    @property
    def _heading(self) -> str:
        if self.trials == 1:
            return ""
        return f"{len(self.outcomes)} of {counted(self.trials, 'trial')}"


def _table(rows: Iterable[Iterable[str]], heading: Iterable[str] = ()) -> str:
    """An HTML table of texts."""
    lines = [("th", heading), *(("td", row) for row in rows)]
    text = "".join(
        f"<tr>{''.join(f'<{tag} style={CELL!r}>{_escaped(each)}</{tag}>' for each in cells)}</tr>"
        for tag, cells in lines
    )
    return f"<table>{text.replace('<tr></tr>', '')}</table>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


@contextlib.contextmanager
def training_shown(trainer: Trainer, pool: Engine) -> Iterator[Callback]:
    """A block with the progress of a trainer; yields what is called with every record."""
    from esbench.experiment.trials import trial_at

    spec = trainer.spec
    trial = trial_at(spec, spec.environment.id, spec.algorithm.name, "default", Path())
    before = pool.progress
    with NotebookProgress(1) as progress:
        progress.begin(trial, trainer.history)
        pool.progress = lambda done, total: progress.episodes_done(trial, done, total)
        try:
            yield lambda record: progress.generation_done(trial, record)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            progress.running[trial.name].activity = "interrupted" if interrupted else "failed"
            raise
        finally:
            pool.progress = before
        last = progress.running[trial.name].record
        text = "" if last is None else f"return {format_number(shown_return(last))}"
        progress.trial_ended(trial, "done", text)
