"""Cells that nothing has trained, for tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esbench.grids.environment_files import PublishedScore, RandomScore, Scores
from esbench.results.cell import Cell
from esbench.results.run import Run
from esbench.store.trial_folder import TrialFolder

SPEC: dict[str, Any] = {
    "algorithm": {"name": "openai_es", "settings": {}},
    "environment": {"id": "none", "max_episode_steps": None},
    "policy": {},
    "budget": {"env_steps": 1000, "generations": None, "target_return": None},
    "evaluation": {"center": True},
}


def make_cell(
    score: float = -1234.56,
    interval: tuple[float, float] = (-2000.0, -500.0),
    *,
    environment: str = "HalfCheetah-v5",
    algorithm: str = "openai_es",
    policy: str = "default",
    seeds: int = 10,
    unfinished: int = 0,
    env_steps: float = 3e6,
    budget: int = 3_000_000,
    wall_time_s: float = 185.0,
    tail: float = math.nan,
    random: float | None = None,
    reference: float | None = None,
    method: str = "A",
    source: str = "a paper",
    comparable: bool = False,
    note: str = "",
    reference_steps: float | None = None,
    commands: Sequence[str] = ("esbench run a",),
    **changes: Any,
) -> Cell:
    """A ranked cell with this score and interval, whatever its seeds are."""
    runs = tuple(
        Run(
            seed=seed,
            description={
                "spec": {**SPEC, "budget": {**SPEC["budget"], "env_steps": budget}},
                "command": commands[seed % len(commands)],
            },
            done=seed < seeds,
            known_scores={"mean": score, "tail": tail} if seed < seeds else {},
            env_steps=env_steps,
            wall_time_s=wall_time_s,
            stored=TrialFolder(Path(f"seed-{seed}")),
        )
        for seed in range(seeds + unfinished)
    )
    published = PublishedScore(
        method=method,
        score=reference or 0.0,
        env_steps=reference_steps,
        source=source,
        comparable=comparable,
        note=note,
    )
    cell = Cell(
        environment=environment,
        algorithm=algorithm,
        policy=policy,
        label=algorithm,
        runs=runs,
        frozen=Scores(
            random=None
            if random is None
            else RandomScore(mean=random, std=0.0, episodes=1, command=""),
            references=() if reference is None else (published,),
        ),
        scores=() if math.isnan(score) else (score,) * seeds,
        **changes,
    )
    vars(cell).update(score=score, interval=interval if seeds > 2 else (math.nan, math.nan))
    return cell
