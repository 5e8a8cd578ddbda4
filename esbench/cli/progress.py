"""How a running grid looks: a live display in a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Self, final

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from esbench.store.generation_record import GenerationRecord
from esbench.training.run_trial import Outcome
from esbench.training.trials import Trial
from esbench.units import counted, format_number, format_steps

PLAIN_SECONDS: Final = 10.0
MARKS: Final[dict[Outcome, tuple[str, str]]] = {
    "done": ("done", "green"),
    "skipped": ("skip", "dim"),
    "failed": ("FAIL", "bold red"),
    "elsewhere": ("busy", "yellow"),
}
DIED: Final = ("died", "yellow")


@final
class Meter:
    """Speed, best return and time left of the running trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.generation = 0
        self.env_steps = 0
        self.best = -math.inf
        self.scoring = 0  # held-out episodes being played; 0 while it trains
        self.began = self._start = time.monotonic()
        self._first_steps: int | None = None

    def recall(self, record: GenerationRecord) -> None:
        """Take in a generation of an earlier run."""
        value = record.center_return
        if math.isnan(value):
            value = record.population_return_mean
        self.generation = record.generation
        self.env_steps = record.env_steps
        self.best = max(self.best, value)

    def update(self, record: GenerationRecord) -> None:
        """Take in a generation; the speed counts from the second one of this run on."""
        self.recall(record)
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
        """Return generation, speed, best return of the centre and time left, or that it scores."""
        best = "-" if math.isinf(self.best) else format_number(self.best)
        if self.scoring:
            episodes = counted(self.scoring, "held-out episode")
            return f"gen {self.generation:>4}  best {best:>8}  scoring on {episodes}"
        return (
            f"gen {self.generation:>4}  {format_steps(self.steps_per_second):>7} steps/s  "
            f"best {best:>8}  ETA {_clock(self.seconds_left)}"
        )


class GridDisplay(ABC):
    """Base of the displays; a context manager and a ``GridWatcher``."""

    def __init__(self, console: Console, trials: int) -> None:
        self.console = console
        self.trials = trials
        self.ended = 0
        self.meters: dict[str, Meter] = {}  # of the running trials, by their names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial begins or goes on."""
        meter = self.meters[trial.name] = Meter(trial)
        for record in trial.folder.records()[:resumed_at] if resumed_at else ():
            meter.recall(record)
        self.begin(trial, f"resumed after generation {resumed_at}" if resumed_at else "")

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""
        meter = self.meters[trial.name]
        meter.update(record)
        self.advance(meter)

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """The held-out episodes begin."""
        meter = self.meters[trial.name]
        meter.scoring = episodes
        self.advance(meter)

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died, and another begins it or goes on with it."""
        self.meters.pop(trial.name, None)
        self.lose(trial, f"its process died, {cause}; another goes on")

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is over."""
        self.ended += 1
        meter = self.meters.pop(trial.name, None)  # one that is skipped never began
        if outcome == "done" and meter is not None:
            took = time.monotonic() - meter.began
            detail = (
                f"{detail:<15} {format_steps(meter.env_steps):>6} steps  "
                f"{counted(meter.generation, 'generation'):>16}  {took:6.1f} s"
            )
        self.end(trial, outcome, detail)

    @abstractmethod
    def begin(self, trial: Trial, note: str) -> None:
        """Show that a trial begins."""

    @abstractmethod
    def advance(self, meter: Meter) -> None:
        """Show how far the trial is."""

    @abstractmethod
    def lose(self, trial: Trial, detail: str) -> None:
        """Show that a trial is to begin once more."""

    @abstractmethod
    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Show how a trial ended."""

    @abstractmethod
    def stop(self) -> None:
        """Take the display down."""


@final
class PlainDisplay(GridDisplay):
    """One line when a trial begins and ends, and every ten seconds; ``quiet``: only ends."""

    def __init__(self, console: Console, trials: int, quiet: bool = False) -> None:
        super().__init__(console, trials)
        self._quiet = quiet
        self._last: dict[str, float] = {}  # when each trial printed a line

    def begin(self, trial: Trial, note: str) -> None:
        """Print that a trial begins."""
        self._last[trial.name] = time.monotonic()
        if not self._quiet:
            number = self.ended + len(self.meters)
            suffix = f" ({note})" if note else ""
            self._print(f"[{number}/{self.trials}] {trial.name}{suffix}")

    def advance(self, meter: Meter) -> None:
        """Print how far the trial is, every ten seconds."""
        name, now = meter.trial.name, time.monotonic()
        if not self._quiet and now - self._last[name] >= PLAIN_SECONDS:
            self._last[name] = now
            which = f"  {name}" if len(self.meters) > 1 else ""
            self._print(f"      {meter.text()}{which}")

    def lose(self, trial: Trial, detail: str) -> None:
        """Print that a trial is to begin once more."""
        self._print(f"{DIED[0]:<5} {trial.name:<40} {detail}")

    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Print how a trial ended."""
        self._print(f"{MARKS[outcome][0]:<5} {trial.name:<40} {detail}")

    def stop(self) -> None:
        """Nothing to take down."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@final
class LiveDisplay(GridDisplay):
    """A bar for the grid and one for each running trial; ended trials scroll by above.

    Names have lines of their own: beside a bar they would not fit a terminal of 80 columns.
    """

    def __init__(self, console: Console, trials: int) -> None:
        super().__init__(console, trials)
        self._progress = _Bars(BarColumn(16), _Info(), console=console, transient=True)
        self._progress.start()
        self._grid = self._progress.add_task("", total=trials, info=self._count())
        self._bars: dict[str, TaskID] = {}  # of the running trials

    def begin(self, trial: Trial, note: str) -> None:
        """Show the trial's bar."""
        self._bars[trial.name] = self._progress.add_task(
            trial.name, total=trial.spec.budget.env_steps, info=note or "starting"
        )

    def advance(self, meter: Meter) -> None:
        """Move the trial's bar."""
        budget = meter.trial.spec.budget.env_steps
        done = budget if meter.scoring else min(meter.env_steps, budget)
        self._progress.update(self._bars[meter.trial.name], completed=done, info=meter.text())

    def lose(self, trial: Trial, detail: str) -> None:
        """Print that a trial is to begin once more, and take its bar down."""
        self._scroll(trial, DIED, detail)

    def end(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Print how a trial ended, and move the grid's bar."""
        self._scroll(trial, MARKS[outcome], detail)
        self._progress.update(self._grid, completed=self.ended, info=self._count())

    def _scroll(self, trial: Trial, mark_and_style: tuple[str, str], detail: str) -> None:
        """Print a line above the bars, or two where it does not fit, instead of a trial's bar."""
        if trial.name in self._bars:
            self._progress.remove_task(self._bars.pop(trial.name))
        mark, style = mark_and_style
        line = Text.assemble((f"{mark:<5} ", style), f"{trial.name:<40} {detail}")
        if line.cell_len > self.console.width:
            detail = re.sub(" {2,}", "  ", detail)
            line = Text.assemble((f"{mark:<5} ", style), f"{trial.name}\n      {detail}")
        self._progress.print(line, soft_wrap=True)

    def stop(self) -> None:
        """Take the bars down."""
        self._progress.stop()

    def _count(self) -> str:
        return f"{self.ended} of {counted(self.trials, 'trial')}"


@final
class _Bars(Progress):
    """Bars with their descriptions above."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the lines of every visible task."""
        for task in self.tasks:
            if task.visible and task.description:
                yield Text(task.description, no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])


@final
class _Info(ProgressColumn):
    """The text beside a bar."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis"))

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
