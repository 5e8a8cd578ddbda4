"""Who watches a grid run, in tests that look at what it leaves behind."""

from __future__ import annotations

from typing import final

from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.run_grid import run_grid
from esbench.training.trials import Trial


@final
class Silent:
    """Watches nothing."""

    def trial_started(self, *_: object) -> None: ...
    def generation_done(self, *_: object) -> None: ...
    def scoring_started(self, *_: object) -> None: ...
    def trial_died(self, *_: object) -> None: ...
    def trial_ended(self, *_: object) -> None: ...


@final
class Watcher:
    """Keeps how trials ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str]] = []

    def trial_started(self, *_: object) -> None: ...
    def generation_done(self, *_: object) -> None: ...
    def scoring_started(self, *_: object) -> None: ...
    def trial_died(self, *_: object) -> None: ...

    def trial_ended(self, trial: Trial, outcome: str, detail: str) -> None:
        self.ends.append((outcome, detail))


def run(pool: WorkerPool, *trials: Trial) -> list[tuple[str, str]]:
    """Run trials; return the outcome and detail of each."""
    watcher = Watcher()
    run_grid(trials, pool, watcher)
    return watcher.ends
