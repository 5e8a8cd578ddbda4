"""Who watches a grid run, in tests that look at what it leaves behind."""

from collections.abc import Callable
from typing import final

from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trials import Trial
from esbench.store.generation_record import GenerationRecord


@final
class Watcher:
    """Keeps all events, and calls a function after every generation."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.events: dict[str, list[str]] = {}
        self.ends: list[tuple[str, str]] = []
        self.deaths: list[str] = []
        self.silent: list[str] = []
        self._then = then

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        self.events[trial.name] = [f"from {resumed_at}"]

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        self.events[trial.name].append(f"{record.generation}")
        self._then()

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        self.events[trial.name].append(f"scored on {episodes}")

    def trial_died(self, trial: Trial, cause: str) -> None:
        self.deaths.append(cause)

    def trial_silent(self, trial: Trial, seconds: float) -> None:
        self.silent.append(trial.name)

    def episodes_done(self, *_: object) -> None: ...

    def trial_ended(self, trial: Trial, outcome: str, detail: str) -> None:
        self.events.setdefault(trial.name, []).append(outcome)
        self.ends.append((outcome, detail))


def run(pool: WorkerPool, *trials: Trial) -> list[tuple[str, str]]:
    """Run trials; return the outcome and detail of each."""
    watcher = Watcher()
    run_grid(trials, pool, watcher)
    return watcher.ends
