"""Searches whose trials are not trained: their scores are a function of the settings."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Outcome
from esbench.grids.grid_file import parse_grid
from esbench.tuning.study import Search, Study, open_studies

Score = Callable[[Trial], float | None]

SEEDS = (101, 102, 103)
GRID: dict[str, Any] = {
    "name": "fake",
    "environments": ["esbench/Sphere-v0"],
    "algorithms": {"openai_es": {}},
    "budget": {"env_steps": 1000},
}


def open_search(out: Path, search: Search | None = None, **table: Any) -> Study:
    """The only study of a grid, OpenAI-ES on the sphere, with its storage in ``out``."""
    (study,) = open_studies(
        parse_grid({**GRID, **table}, "fake grid"), "fake grid", search or Search(SEEDS), out
    )
    return study


def bowl(trial: Trial) -> float:
    """Best at sigma = 0.1 and a learning rate of 0.05, better with more steps; seeds differ."""
    settings: Any = trial.spec.algorithm.settings
    far = math.log10(settings.sigma / 0.1) ** 2 + math.log10(settings.learning_rate / 0.05) ** 2
    noise = np.random.default_rng([trial.spec.seed, int(1e6 * far)]).normal()
    return trial.spec.budget.env_steps / 1000 - far + 0.1 * float(noise)


def player(score: Score = bowl) -> Callable[[Sequence[Trial], str], list[Outcome]]:
    """Plays trials as ``run_grid``; those with the score None fail."""

    def play(trials: Sequence[Trial], title: str) -> list[Outcome]:
        return [_finish(trial, score(trial)) for trial in trials if not trial.is_done]

    return play


def _finish(trial: Trial, score: float | None) -> Outcome:
    for name in ("trial.json", "result.json"):  # in place of training on
        (trial.folder.path / name).unlink(missing_ok=True)
    with trial.folder.locked():
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        if score is None:
            trial.folder.fail("made up")
            return "failed"
        steps = trial.spec.budget.env_steps
        trial.folder.finish({"score": score, "env_steps": steps, "wall_time_s": 0.0})
    return "done"
