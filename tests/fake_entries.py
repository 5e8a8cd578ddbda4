"""Entries of a leaderboard that no training has made, for its figures and pages."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from esbench.grids.compose import compose_grid
from esbench.grids.environment_files import frozen_scores
from esbench.grids.expand import LabeledSpec, expand
from esbench.results.baselines import FrozenCell, FrozenTrial
from esbench.results.entries import BestSoFar, Entry, EntryCurves, EntryRun, as_file
from esbench.results.statistics.estimates import tail_mean
from esbench.results.statistics.quantile_bounds import QUANTILES
from esbench.store.origin import Origin

POINTS = 20


def fake_entry(trial: LabeledSpec, seeds: Sequence[int], level: float = 0.5) -> Entry:
    """An entry of the cell of a trial, whose runs end at about ``level`` of the reference."""
    spec = {k: v for k, v in trial.spec.as_json().items() if k != "seed"}
    scores = frozen_scores(spec["environment"])
    low = scores.random.mean if scores.random else 0.0
    high = scores.references[0].score if scores.references else low + 100.0
    budget = spec["budget"]["env_steps"]
    rng = np.random.default_rng(zlib.crc32(repr(sorted(trial.labels.items())).encode()))
    share = 1 / (1 + np.exp(-8 * (np.linspace(0, 1, POINTS) - rng.uniform(0.2, 0.8))))
    ends = level + rng.normal(0, 0.1, len(seeds))
    noise = rng.normal(0, 0.03, (len(seeds), POINTS))
    returns = low + (high - low) * (share * ends[:, None] + noise)
    grid = np.linspace(0, budget, POINTS)
    episodes = [row[-1] + (high - low) * rng.normal(0, 0.1, 100) for row in returns]
    return Entry(
        cell=FrozenCell(
            **trial.labels,
            spec=spec,
            random_score=low,
            reference_score=high,
            reference_source=scores.references[0].source if scores.references else "none",
            trials=tuple(
                FrozenTrial(seed=seed, score=float(own.mean()), last_digest="0" * 64)
                for seed, own in zip(seeds, episodes, strict=True)
            ),
        ),
        runs=tuple(
            EntryRun(
                generations=100,
                env_steps=budget,
                wall_time_s=60.0,
                cpu_time_s=50.0,
                stopped=None,
                episodes=100,
                episodes_digest="0" * 64,
                quantiles=tuple(np.quantile(own, QUANTILES).tolist()),
                tail=tail_mean(own),
                best_center=float(row.max()),
                best_so_far=_best_so_far(grid, row),
            )
            for row, own in zip(returns, episodes, strict=True)
        ),
        curves=EntryCurves(
            env_steps=tuple(grid.tolist()),
            returns=tuple(map(tuple, returns.tolist())),
            ranks=tuple(map(tuple, rng.uniform(0.1, 0.5, returns.shape).tolist())),
        ),
        origins=(Origin(versions={"numpy": "2.0"}, hardware={"cpu": "A"}, git_commit="c" * 40),),
        own_code={},
        commands=(f"esbench run suite --seeds {seeds[0]}-{seeds[-1]}",),
    )


def fake_suite(name: str, seeds: int = 4, without: Iterable[str] = ()) -> list[Entry]:
    """Entries of all cells of a named grid, except those of some algorithms."""
    first: dict[tuple[str, str], LabeledSpec] = {}
    for trial in expand(*compose_grid(name)):
        labels = trial.labels
        if labels["algorithm"] not in without:
            first.setdefault((labels["environment"], labels["algorithm"]), trial)
    return [
        fake_entry(trial, range(seeds), math.sin(n) ** 2) for n, trial in enumerate(first.values())
    ]


def write_board(folder: Path, entries: Iterable[Entry]) -> Path:
    """A leaderboard of entries in ``folder``, which need not exist."""
    folder.mkdir(exist_ok=True)
    for entry in entries:
        (folder / entry.file_name).write_bytes(as_file(entry))
    return folder


def _best_so_far(grid: np.ndarray, returns: np.ndarray) -> BestSoFar:
    best = np.maximum.accumulate(returns)
    rises = np.unique(best, return_index=True)[1]
    return BestSoFar(env_steps=tuple(grid[rises].tolist()), returns=tuple(best[rises].tolist()))
