"""Progress of a running grid: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, Self, final

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, Task, TextColumn
from rich.table import Table
from rich.text import Text

from esbench.cli.display.grids import FEW_GENERATIONS, few_generations
from esbench.cli.progress_lines import progress_line, progress_rows, shown_return
from esbench.core.units import counted, format_steps
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Outcome
from esbench.store.generation_record import GenerationRecord

PLAIN_SECONDS: Final = 10.0
MARKS: Final[dict[Outcome | Literal["died"], tuple[str, str]]] = {
    "done": ("done", "green"),
    "skipped": ("skip", "dim"),
    "failed": ("FAIL", "bold red"),
    "elsewhere": ("busy", "yellow"),
    "died": ("died", "yellow"),
}


@final
class GridDisplay:
    """A context manager and a ``GridWatcher`` that shows a bar and a table in a terminal.

    Elsewhere there is a line when a trial starts, when it ends and every ten seconds; ``quiet``
    prints only the lines of ended trials. ``warns`` is whether it names budgets of few generations.
    """

    def __init__(
        self, console: Console, trials: int, quiet: bool = False, warns: bool = True
    ) -> None:
        self.console = console
        self.trials = trials
        self.ended = 0
        self.tasks: dict[str, Task] = {}  # of the running trials, by name
        self._name_width = 40
        self._quiet = quiet
        self._warns = warns and not quiet  # of budgets of few generations
        self._warned: set[str] = set()  # environment and algorithm
        self._live = console.is_terminal and not quiet
        self.table = _ProgressTable(
            BarColumn(None),
            TextColumn("{task.fields[info]}", "cyan", markup=False),
            console=console,
            transient=True,
            speed_estimate_period=math.inf,  # generations may take longer than any period
        )
        self._grid = self.table.add_task("", total=trials, info="")
        self._show_grid()

    def __enter__(self) -> Self:
        if self._live:
            self.table.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self.table.stop()

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts or resumes."""
        before = trial.folder.records()[:resumed_at] if resumed_at else []
        note = f"resumed after generation {resumed_at}" if resumed_at else ""
        steps = before[-1].env_steps if before else 0
        self.table.add_task(
            trial.name,
            total=trial.spec.budget.env_steps,
            completed=steps,
            resumed_from=steps,
            record=before[-1] if before else None,
            best=max(map(shown_return, before), default=-math.inf),
            scoring=False,
            printed=self.table.get_time(),
            activity=note or "starting",
        )
        self.tasks[trial.name] = self.table.tasks[-1]
        if not self._live and not self._quiet:
            number = self.ended + len(self.tasks)
            suffix = f" ({note})" if note else ""
            self._print(Text(f"[{number}/{self.trials}] {trial.name}{suffix}"))

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""
        if record.generation == 1 and not trial.spec.is_agent:  # an agent has rows
            self._warn_of_few(trial, record)
        best = max(self.tasks[trial.name].fields["best"], shown_return(record))
        changes: dict[str, Any] = {"record": record, "best": best, "activity": ""}
        self._advance(trial, completed=record.env_steps, total=_total(trial, record), **changes)

    def _warn_of_few(self, trial: Trial, first: GenerationRecord) -> None:
        """Warn, once per environment and algorithm, if the budget buys few such generations."""
        episodes = first.population_size * trial.spec.environment.episodes_per_member
        size = max(1, round(episodes * first.episode_length_mean))
        bought = -(-trial.spec.budget.env_steps // size)
        name = f"{trial.labels['environment']} {trial.labels['algorithm']}"
        if bought < FEW_GENERATIONS and name not in self._warned:
            self._warned.add(name)
            if self._warns:
                self._print(Text(few_generations(name, bought), "yellow"))

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        """Some episodes of a generation, or of the scoring, have ended; of an agent, steps."""
        unit = "steps" if trial.spec.is_agent else "episodes"
        what = "scoring" if self.tasks[trial.name].fields["scoring"] else unit
        self._advance(trial, activity=f"{what} {done}/{total}")

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """The held-out episodes start; training may have ended before its budget."""
        steps = self.tasks[trial.name].completed
        self._advance(trial, total=steps, scoring=True, activity=f"scoring 0/{episodes}")

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process continues the trial."""
        self._close(trial, "died", f"its process died, {cause}; another continues")

    def trial_silent(self, trial: Trial, seconds: float) -> None:
        """No episode of a trial has ended for this long: say what ends such a trial."""
        hint = (
            f"no episode has ended for {seconds:g} s; its log.txt has the output of its "
            "environments, and --episode-timeout SECONDS fails such a trial"
        )
        self._print(Text.assemble(("wait ", "yellow"), f" {self._padded(trial)} {hint}"))

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial ended."""
        self.ended += 1
        self._close(trial, outcome, detail)
        self._show_grid()

    def _advance(self, trial: Trial, **changes: Any) -> None:
        task = self.tasks[trial.name]
        self.table.update(task.id, **changes)
        self._show_grid()
        now = self.table.get_time()
        if not self._live and not self._quiet and now - task.fields["printed"] >= PLAIN_SECONDS:
            task.fields["printed"] = now
            self._print(Text(f"run   {self._padded(trial)} {progress_line(task)}"))

    def _show_grid(self) -> None:
        """The bar counts a running trial by the share of its budget that is used."""
        done = self.ended + sum(task.percentage for task in self.tasks.values()) / 100
        info = f"{self.ended} of {counted(self.trials, 'trial')}"
        self.table.update(self._grid, completed=done, info=info)

    def _close(self, trial: Trial, outcome: Outcome | Literal["died"], detail: str) -> None:
        """Replace a trial's rows by a line, or by two lines in a narrow terminal."""
        task = self.tasks.pop(trial.name, None)  # a skipped trial never started
        if task is not None:
            self.table.remove_task(task.id)
        if task is not None and outcome == "done":
            record = task.fields["record"]
            generations = counted(record.generation if record else 0, "generation")
            steps, seconds = format_steps(task.completed), task.elapsed or 0.0
            detail = f"{detail:<15} {steps:>6} steps  {generations:>16}  {seconds:6.1f} s"
        mark = Text(f"{MARKS[outcome][0]:<5}", MARKS[outcome][1])
        line = Text.assemble(mark, f" {self._padded(trial)} {detail}")
        if self._live and line.cell_len > self.console.width:
            lines = Table.grid(padding=(0, 1))
            lines.add_row(mark, Text(f"{trial.name}\n{re.sub(' {2,}', '  ', detail)}"))
            self._print(lines)
        else:
            self._print(line)

    def _padded(self, trial: Trial) -> str:
        """The name of a trial in the width of the longest so far, so that the lines align."""
        self._name_width = max(self._name_width, len(trial.name))
        return f"{trial.name:<{self._name_width}}"

    def _print(self, text: RenderableType) -> None:
        """Print above the table; only a terminal has lines that end between words."""
        self.console.print(text, soft_wrap=not self._live)


def _total(trial: Trial, record: GenerationRecord) -> int:
    """The steps that the budget buys, where it also limits the generations."""
    steps, generations = trial.spec.budget.env_steps, trial.spec.budget.generations
    if generations is None:
        return steps
    return min(steps, record.env_steps * generations // record.generation)


@final
class _ProgressTable(Progress):
    """A bar of the whole grid and the rows of the running trials."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar and the lines of the table."""
        yield self.make_tasks_table(self.tasks[:1])
        if trials := self.tasks[1:]:
            yield from progress_rows(trials, self.console.width)
