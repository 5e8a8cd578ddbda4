"""What functions tell while they work: lines on standard output, warnings on standard error.

The command line passes a display of its own, which draws in the terminal.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, final

from esbench.core.escape import printable
from esbench.core.units import NONE, counted, format_duration, format_number, format_steps

if TYPE_CHECKING:
    from esbench.experiment.trials import Trial
    from esbench.experiment.watchers import Outcome
    from esbench.store.generation_record import GenerationRecord

Tell: TypeAlias = Callable[[str], None]
Mark: TypeAlias = Literal["run", "wait", "done", "skip", "FAIL", "busy", "died"]

PLAIN_SECONDS: Final = 10.0
FEW_GENERATIONS: Final = 10
SPEED_GENERATIONS: Final = 1000  # the speed is that of the last ones
NAME_WIDTH: Final = 40
OUTCOMES: Final[dict[Outcome, Mark]] = {
    "done": "done",
    "skipped": "skip",
    "failed": "FAIL",
    "elsewhere": "busy",
}
# The least width of the values of each column, in characters.
COLUMNS: Final = {
    "budget": 5,
    "gen": 4,
    "return": 8,
    "best": 8,
    "rank": 7,
    "sigma": 6,
    "steps/s": 5,
    "ETA": 11,
}


class Display(ABC):
    """Where functions tell what they do."""

    @abstractmethod
    def say(self, *lines: str) -> None:
        """Print lines on standard output."""

    @abstractmethod
    def working(self, what: str) -> contextlib.AbstractContextManager[Tell]:
        """Show that something takes a while; what is given tells how far it is."""

    @abstractmethod
    def grid(self, trials: int, quiet: bool = False, warns: bool = True) -> GridProgress:
        """The progress of that many trials."""

    def warn(self, text: str) -> None:
        """Print a message on standard error."""
        complain(text)


def tell(*lines: str) -> None:
    """Print lines on standard output."""
    for line in lines:
        sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print a message on standard error."""
    sys.stderr.write(f"esbench: {printable(text)}\n")


@final
@dataclass
class TrialProgress:
    """A running trial."""

    name: str
    total: int  # steps of its budget, or those that it will take
    steps: int  # so far
    resumed_from: int  # steps when it was started or resumed
    record: GenerationRecord | None  # of the last generation
    best: float  # the largest return so far
    began: float  # when it was started or resumed [s]
    printed: float  # when its last line was printed [s]
    activity: str  # what it is doing now
    scoring: bool = False  # whether its held-out episodes are played
    reached: deque[tuple[float, int]] = field(  # times [s] and steps of the last generations
        default_factory=lambda: deque(maxlen=SPEED_GENERATIONS)
    )

    @property
    def share(self) -> float:
        """The share of the budget that is used."""
        return min(1.0, self.steps / self.total)

    @property
    def speed(self) -> float:
        """The steps per second; NaN if unknown.

        It leaves out the first generation, which has the start-up in it, until a second one ends.
        """
        if not self.reached:
            return math.nan
        (first, before), (last, steps) = self.reached[0], self.reached[-1]
        if last > first:
            return (steps - before) / (last - first)
        return (steps - self.resumed_from) / (last - self.began) if last > self.began else math.nan

    def cells(self) -> dict[str, str]:
        """The text of each column; "-" where there is no value."""
        record, rank = self.record, NONE
        if record is not None and not math.isnan(record.center_rank):
            rank = f"{record.center_rank:g}/{record.population_size}"
        return {
            "budget": f"{math.floor(100 * self.share)} %",
            "gen": "0" if record is None else str(record.generation),
            "return": NONE if record is None else format_number(shown_return(record)),
            "best": NONE if math.isinf(self.best) else format_number(self.best),
            "rank": rank,
            "sigma": NONE if record is None else format_number(record.sigma),
            "steps/s": format_steps(self.speed),
            "ETA": format_duration(max(0, self.total - self.steps) / self.speed),
        }

    def line(self) -> str:
        """The values, each after its column's name."""
        cells = self.cells()
        values = "  ".join(f"{name} {cells[name]:>{COLUMNS[name]}}" for name in COLUMNS)
        return f"{values}  {self.activity}".rstrip()


class GridProgress(ABC):
    """A context manager and a ``Watcher``.

    It prints a line when a trial starts, when it ends and every ten seconds; ``quiet`` prints only
    the lines of ended trials. ``warns`` is whether it names budgets of few generations.
    """

    now: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, trials: int, quiet: bool, warns: bool, is_live: bool = False) -> None:
        self.trials = trials
        self.quiet = quiet
        self.is_live = is_live  # whether what changes is drawn again and again in a terminal
        self.outcomes: list[Outcome] = []
        self.running: dict[str, TrialProgress] = {}  # by name
        self._warns = warns and not quiet
        self._warned: set[str] = set()  # environment and algorithm
        self._name_width = NAME_WIDTH

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.clear()

    @abstractmethod
    def show(self, mark: Mark, name: str, text: str) -> None:
        """Print a line about a trial."""

    @abstractmethod
    def say(self, text: str, style: str = "") -> None:
        """Print a line that begins with no mark, in a color if there are colors."""

    @abstractmethod
    def advanced(self) -> None:
        """A running trial has advanced: draw it, if nothing else does."""

    def padded(self, name: str) -> str:
        """The name of a trial in the width of the longest so far, so that the lines align."""
        self._name_width = max(self._name_width, len(name))
        return f"{name:<{self._name_width}}"

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts or resumes."""
        self.begin(trial, trial.folder.records()[:resumed_at] if resumed_at else [])

    def begin(self, trial: Trial, before: Sequence[GenerationRecord]) -> None:
        """A trial goes on after the records so far."""
        note = f"resumed after generation {len(before)}" if before else ""
        steps, now = before[-1].env_steps if before else 0, self.now()
        self.running[trial.name] = TrialProgress(
            name=trial.name,
            total=trial.spec.budget.env_steps,
            steps=steps,
            resumed_from=steps,
            record=before[-1] if before else None,
            best=max(map(shown_return, before), default=-math.inf),
            began=now,
            printed=now,
            activity=note or "starting",
        )
        if not (self.quiet or self.is_live):
            number = len(self.outcomes) + len(self.running)
            suffix = f" ({note})" if note else ""
            self.say(f"[{number}/{self.trials}] {trial.name}{suffix}")

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""
        if record.generation == 1 and not trial.spec.is_agent:  # an agent has rows
            self._warn_of_few(trial, record)
        one = self.running[trial.name]
        one.record, one.steps, one.activity = record, record.env_steps, ""
        one.best = max(one.best, shown_return(record))
        one.total = _total(trial, record)
        one.reached.append((self.now(), record.env_steps))
        self._advanced(one)

    def _warn_of_few(self, trial: Trial, first: GenerationRecord) -> None:
        """Warn, once per environment and algorithm, if the budget buys few such generations."""
        episodes = first.population_size * trial.spec.environment.episodes_per_member
        size = max(1, round(episodes * first.episode_length_mean))
        bought = -(-trial.spec.budget.env_steps // size)
        name = f"{trial.labels['environment']} {trial.labels['algorithm']}"
        if bought < FEW_GENERATIONS and name not in self._warned:
            self._warned.add(name)
            if self._warns:
                self.say(few_generations(name, bought), "yellow")

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        """Some episodes of a generation, or of the scoring, have ended; of an agent, steps."""
        one = self.running[trial.name]
        unit = "steps" if trial.spec.is_agent else "episodes"
        one.activity = f"{'scoring' if one.scoring else unit} {done}/{total}"
        self._advanced(one)

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """The held-out episodes start; training may have ended before its budget."""
        one = self.running[trial.name]
        one.total, one.scoring, one.activity = one.steps, True, f"scoring 0/{episodes}"
        self._advanced(one)

    def _advanced(self, one: TrialProgress) -> None:
        self.advanced()
        if not (self.quiet or self.is_live) and self.now() - one.printed >= PLAIN_SECONDS:
            one.printed = self.now()
            self.show("run", one.name, one.line())

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process continues the trial."""
        self._end(trial, "died", f"its process died, {cause}; another continues")

    def trial_silent(self, trial: Trial, seconds: float) -> None:
        """No episode of a trial has ended for this long: say what ends such a trial."""
        hint = (
            f"no episode has ended for {seconds:g} s; its log.txt has the output of its "
            "environments, and --episode-timeout SECONDS fails such a trial"
        )
        self.show("wait", trial.name, hint)

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial ended."""
        self.outcomes.append(outcome)
        self._end(trial, OUTCOMES[outcome], detail)

    def _end(self, trial: Trial, mark: Mark, detail: str) -> None:
        """Print the last line of a trial, whose columns have fixed widths."""
        one = self.running.pop(trial.name, None)  # a skipped trial never started
        if one is not None and mark == "done":
            generations = counted(one.record.generation if one.record else 0, "generation")
            steps, seconds = format_steps(one.steps), self.now() - one.began
            detail = f"{detail:<15} {steps:>6} steps  {generations:>16}  {seconds:6.1f} s"
        self.show(mark, trial.name, detail)


def shown_return(record: GenerationRecord) -> float:
    """The return of the unperturbed policy; the population's mean if it did not play."""
    center, mean = record.center_return, record.population_return_mean
    return mean if math.isnan(center) else center


def few_generations(name: str, generations: int) -> str:
    """The warning about a budget that buys few generations."""
    return (
        f"{name}: the budget buys about {counted(generations, 'generation')} if all episodes are "
        f"as long as the first ones. Fewer than {FEW_GENERATIONS} are often too few to learn: "
        "raise budget.env_steps or shrink the population."
    )


def _total(trial: Trial, record: GenerationRecord) -> int:
    """The steps that the budget buys, where it also limits the generations."""
    steps, generations = trial.spec.budget.env_steps, trial.spec.budget.generations
    if generations is None:
        return steps
    return min(steps, record.env_steps * generations // record.generation)
