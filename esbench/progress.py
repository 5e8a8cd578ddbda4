"""How a running grid looks: a live display in a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Any, Final, Self, final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from esbench.grid import Trial
from esbench.record import GenerationRecord
from esbench.runner import Outcome
from esbench.units import format_steps

PLAIN_SECONDS: Final = 10.0
MARKS: Final[dict[Outcome, tuple[str, str]]] = {
    "done": ("done", "green"),
    "skipped": ("skip", "dim"),
    "failed": ("FAIL", "bold red"),
    "elsewhere": ("busy", "yellow"),
}


@final
class Meter:
    """Speed, best return and time left of the running trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.generation = 0
        self.env_steps = 0
        self.best = -math.inf
        self._first_steps: int | None = None
        self._start = time.monotonic()

    def update(self, record: GenerationRecord) -> None:
        """Take in a generation; the speed counts from the second one of this run on."""
        value = record.center_return
        if math.isnan(value):
            value = record.population_return_mean
        self.generation = record.generation
        self.env_steps = record.env_steps
        self.best = max(self.best, value)
        if self._first_steps is None:
            self._first_steps, self._start = record.env_steps, time.monotonic()

    @property
    def steps_per_second(self) -> float:
        """Training steps a second of this run; NaN before the second generation."""
        elapsed = time.monotonic() - self._start
        if self._first_steps is None or self.env_steps == self._first_steps or elapsed == 0:
            return math.nan
        return (self.env_steps - self._first_steps) / elapsed

    @property
    def seconds_left(self) -> float:
        """Until the budget is spent, at this speed."""
        return max(0, self.trial.spec.budget.env_steps - self.env_steps) / self.steps_per_second

    def text(self) -> str:
        """Return generation, speed, best return of the centre and time left."""
        best = "-" if math.isinf(self.best) else f"{self.best:.1f}"
        return (
            f"gen {self.generation:>4}  {format_steps(self.steps_per_second):>7} steps/s  "
            f"best {best:>8}  ETA {_clock(self.seconds_left)}"
        )


class GridDisplay(ABC):
    """Base of the displays; a context manager and a ``runner.Watcher``."""

    def __init__(self, console: Console, trials: int) -> None:
        self.console = console
        self.trials = trials
        self.ended = 0
        self.meter: Meter | None = None
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial begins or goes on."""
        self.meter = Meter(trial)
        self._started = time.monotonic()
        self.begin(trial, f"resumed after generation {resumed_at}" if resumed_at else "")

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""
        assert self.meter is not None
        self.meter.update(record)
        self.advance(self.meter)

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """The held-out episodes begin."""
        self.advance(self.meter or Meter(trial))

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is over."""
        self.ended += 1
        if outcome == "done" and self.meter is not None:
            took = time.monotonic() - self._started
            detail = (
                f"{detail:<15} {format_steps(self.meter.env_steps):>6} steps  "
                f"{self.meter.generation:>4} generations  {took:6.1f} s"
            )
        self.end(trial, outcome, detail)

    @abstractmethod
    def begin(self, trial: Trial, note: str) -> None:
        """Show that a trial begins."""

    @abstractmethod
    def advance(self, meter: Meter) -> None:
        """Show how far the trial is."""

    @abstractmethod
    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Show how a trial ended."""

    @abstractmethod
    def stop(self) -> None:
        """Take the display down."""


@final
class PlainDisplay(GridDisplay):
    """One line when a trial begins and ends, and one every ten seconds; ``quiet``: only ends."""

    def __init__(self, console: Console, trials: int, quiet: bool = False) -> None:
        super().__init__(console, trials)
        self._quiet = quiet
        self._last = time.monotonic()

    def begin(self, trial: Trial, note: str) -> None:
        """Print that a trial begins."""
        self._last = time.monotonic()
        if not self._quiet:
            suffix = f" ({note})" if note else ""
            self._print(f"[{self.ended + 1}/{self.trials}] {trial.name}{suffix}")

    def advance(self, meter: Meter) -> None:
        """Print how far the trial is, every ten seconds."""
        if not self._quiet and time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            self._print(f"      {meter.text()}")

    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Print how a trial ended."""
        self._print(f"{MARKS[outcome][0]:<5} {trial.name:<40} {detail}")

    def stop(self) -> None:
        """Nothing to take down."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@final
class LiveDisplay(GridDisplay):
    """A bar for the grid and one for the running trial; ended trials scroll by above."""

    def __init__(self, console: Console, trials: int) -> None:
        super().__init__(console, trials)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            _Info(),
            console=console,
            transient=True,
        )
        self._progress.start()
        self._grid = self._progress.add_task("all trials", total=trials, info=f"0/{trials}")
        self._bar = self._progress.add_task("", total=None, visible=False, info="")

    def begin(self, trial: Trial, note: str) -> None:
        """Show the trial's bar."""
        self._progress.reset(
            self._bar,
            description=trial.name,
            total=trial.spec.budget.env_steps,
            visible=True,
            info=note or "starting",
        )

    def advance(self, meter: Meter) -> None:
        """Move the trial's bar."""
        done = min(meter.env_steps, meter.trial.spec.budget.env_steps)
        info = meter.text()
        if done == meter.trial.spec.budget.env_steps:
            info = f"gen {meter.generation:>4}  best {meter.best:.1f}  scoring"
        self._progress.update(self._bar, completed=done, info=info)

    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Print a line above the bars and move the grid's."""
        mark, style = MARKS[outcome]
        line = Text.assemble((f"{mark:<5} ", style), f"{trial.name:<40} {detail}")
        self._progress.print(line, soft_wrap=True)
        self._progress.update(self._grid, completed=self.ended, info=f"{self.ended}/{self.trials}")

    def stop(self) -> None:
        """Take the bars down."""
        self._progress.stop()


@final
class _Info(ProgressColumn):
    """The text beside a bar."""

    def render(self, task: Task) -> Text:
        """Return the task's text."""
        info: Any = task.fields["info"]
        return Text(str(info), style="cyan")


def _clock(seconds: float) -> str:
    if math.isnan(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
