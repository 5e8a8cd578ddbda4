"""Progress of a running grid: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Literal, Self, final

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from esbench.store.generation_record import GenerationRecord
from esbench.training.run_trial import Outcome
from esbench.training.trials import Trial
from esbench.units import counted, format_duration, format_number, format_steps

PLAIN_SECONDS: Final = 10.0
MARKS: Final[dict[Outcome | Literal["died"], tuple[str, str]]] = {
    "done": ("done", "green"),
    "skipped": ("skip", "dim"),
    "failed": ("FAIL", "bold red"),
    "elsewhere": ("busy", "yellow"),
    "died": ("died", "yellow"),
}


@final
class Meter:
    """Speed, best return and remaining time of a running trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.generation = 0
        self.env_steps = 0
        self.best = -math.inf
        self.scoring = 0  # held-out episodes to play; 0 during training
        self.began = self._start = time.monotonic()
        self._first_steps: int | None = None

    def recall(self, record: GenerationRecord) -> None:
        """Add a generation of an earlier run."""
        center, mean = record.center_return, record.population_return_mean
        self.generation = record.generation
        self.env_steps = record.env_steps
        self.best = max(self.best, mean if math.isnan(center) else center)

    def update(self, record: GenerationRecord) -> None:
        """Add a generation. The first one is not in the speed, because it includes start-up."""
        self.recall(record)
        if self._first_steps is None:
            self._first_steps, self._start = record.env_steps, time.monotonic()

    @property
    def steps_per_second(self) -> float:
        """Training steps per second of this run; NaN before the second generation."""
        elapsed = time.monotonic() - self._start
        if self._first_steps is None or self.env_steps == self._first_steps or elapsed == 0:
            return math.nan
        return (self.env_steps - self._first_steps) / elapsed

    @property
    def seconds_left(self) -> float:
        """Seconds until the budget is spent, at the current speed."""
        return max(0, self.trial.spec.budget.env_steps - self.env_steps) / self.steps_per_second

    def text(self) -> str:
        """Generation, speed, best return and remaining time; during scoring, the episodes."""
        best = "-" if math.isinf(self.best) else format_number(self.best)
        if self.scoring:
            episodes = counted(self.scoring, "held-out episode")
            return f"gen {self.generation:>4}  best {best:>8}  scoring on {episodes}"
        return (
            f"gen {self.generation:>4}  {format_steps(self.steps_per_second):>7} steps/s  "
            f"best {best:>8}  ETA {format_duration(self.seconds_left)}"
        )


class GridDisplay(ABC):
    """Base class of the displays: a context manager and a ``GridWatcher``."""

    def __init__(self, console: Console, trials: int) -> None:
        self.console = console
        self.trials = trials
        self.ended = 0
        self.meters: dict[str, Meter] = {}  # of the running trials, by name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts or resumes."""
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
        """The held-out episodes start."""
        meter = self.meters[trial.name]
        meter.scoring = episodes
        self.advance(meter)

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process continues the trial."""
        self.meters.pop(trial.name, None)
        self.close(trial, "died", f"its process died, {cause}; another continues")

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial ended."""
        self.ended += 1
        meter = self.meters.pop(trial.name, None)  # a skipped trial never started
        if outcome == "done" and meter is not None:
            took = time.monotonic() - meter.began
            detail = (
                f"{detail:<15} {format_steps(meter.env_steps):>6} steps  "
                f"{counted(meter.generation, 'generation'):>16}  {took:6.1f} s"
            )
        self.close(trial, outcome, detail)

    @abstractmethod
    def begin(self, trial: Trial, note: str) -> None:
        """Show that a trial starts."""

    @abstractmethod
    def advance(self, meter: Meter) -> None:
        """Show the progress of a trial."""

    @abstractmethod
    def close(self, trial: Trial, outcome: Outcome | Literal["died"], detail: str) -> None:
        """Show how a trial or its process ended."""

    @abstractmethod
    def stop(self) -> None:
        """Remove the display."""


@final
class PlainDisplay(GridDisplay):
    """One line when a trial starts, ends, and every ten seconds; ``quiet``: only when it ends."""

    def __init__(self, console: Console, trials: int, quiet: bool = False) -> None:
        super().__init__(console, trials)
        self._quiet = quiet
        self._last: dict[str, float] = {}  # time of the last line of each trial

    def begin(self, trial: Trial, note: str) -> None:
        """Print that a trial starts."""
        self._last[trial.name] = time.monotonic()
        if not self._quiet:
            number = self.ended + len(self.meters)
            suffix = f" ({note})" if note else ""
            self._print(f"[{number}/{self.trials}] {trial.name}{suffix}")

    def advance(self, meter: Meter) -> None:
        """Print the progress of a trial every ten seconds."""
        name, now = meter.trial.name, time.monotonic()
        if not self._quiet and now - self._last[name] >= PLAIN_SECONDS:
            self._last[name] = now
            which = f"  {name}" if len(self.meters) > 1 else ""
            self._print(f"      {meter.text()}{which}")

    def close(self, trial: Trial, outcome: Outcome | Literal["died"], detail: str) -> None:
        """Print how a trial or its process ended."""
        self._print(f"{MARKS[outcome][0]:<5} {trial.name:<40} {detail}")

    def stop(self) -> None:
        """There is nothing to remove."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@final
class LiveDisplay(GridDisplay):
    """A bar for the grid and one per running trial, below the lines of ended trials.

    Names are above their bars, because both together do not fit 80 columns.
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

    def close(self, trial: Trial, outcome: Outcome | Literal["died"], detail: str) -> None:
        """Replace a trial's bar by a line above the bars, or by two lines in a narrow terminal."""
        if trial.name in self._bars:
            self._progress.remove_task(self._bars.pop(trial.name))
        mark, style = MARKS[outcome]
        line = Text.assemble((f"{mark:<5} ", style), f"{trial.name:<40} {detail}")
        if line.cell_len > self.console.width:
            detail = re.sub(" {2,}", "  ", detail)
            line = Text.assemble((f"{mark:<5} ", style), f"{trial.name}\n      {detail}")
        self._progress.print(line, soft_wrap=True)
        self._progress.update(self._grid, completed=self.ended, info=self._count())

    def stop(self) -> None:
        """Remove the bars."""
        self._progress.stop()

    def _count(self) -> str:
        return f"{self.ended} of {counted(self.trials, 'trial')}"


@final
class _Bars(Progress):
    """Bars below their descriptions."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the lines of each visible task."""
        for task in self.tasks:
            if task.visible and task.description:
                yield Text(task.description, no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])


@final
class _Info(ProgressColumn):
    """The text next to a bar."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis"))

    def render(self, task: Task) -> Text:
        """The text of the task."""
        info: Any = task.fields["info"]
        return Text(str(info), style="cyan")
