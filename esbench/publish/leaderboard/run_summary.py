"""The summary of one training run, as a leaderboard's file has it."""

from __future__ import annotations

from typing import Final

import numpy as np

from esbench.core.arrays import Floats, float_digest
from esbench.core.json_text import Json
from esbench.publish.leaderboard.entries import QUANTILES, BestSoFar, Run, rounded
from esbench.results.run import variety
from esbench.results.statistics.curves import at_start, policy_returns
from esbench.results.statistics.estimates import tail_mean

LEVELS: Final = 64
# The time differs from run to run; the others depend on what is not trained again.
_NOT_TRAINED: Final = {"wall_time_s", "cpu_time_s", "one_episode", "stopped"}


def run_summary(result: Json, env_steps: Floats, returns: Floats, is_agent: bool) -> Run:
    """The summary of a run with the content of its ``result.json``.

    ``env_steps`` of training so far and ``returns`` of the unperturbed policy have one value per
    generation.
    """
    center = policy_returns(returns)[:-1]
    known = center[np.isfinite(center)]
    return Run(
        generations=result["generations"],
        env_steps=result["env_steps"],
        wall_time_s=float(result["wall_time_s"]),
        cpu_time_s=float(result["cpu_time_s"]),
        stopped=result["stopped"],
        episodes=len(result["returns"]),
        episodes_digest=float_digest(result["returns"], result["lengths"]),
        quantiles=tuple(np.quantile(result["returns"], QUANTILES).tolist()),
        tail=tail_mean(result["returns"]),
        one_episode=variety(result) == "one",
        best_center=float(known.max()) if known.size else None,
        best_so_far=_best_so_far(env_steps, center, is_agent),
    )


def edited_fields(recorded: Run, again: Run) -> tuple[str, ...]:
    """The fields that differ although training again has given the same digests."""
    before, now = (each.model_dump(exclude=_NOT_TRAINED) for each in (recorded, again))
    return tuple(name for name, value in before.items() if value != now[name])


def _best_so_far(env_steps: Floats, center: Floats, is_agent: bool) -> BestSoFar:
    if not np.isfinite(center).any():
        return BestSoFar(env_steps=(), returns=())
    best = np.maximum.accumulate(np.where(np.isfinite(center), center, -np.inf))
    levels = np.linspace(best[np.isfinite(best)][0], best[-1], LEVELS)
    places = np.unique(np.searchsorted(best, levels))
    steps = env_steps if is_agent else at_start(env_steps)
    return BestSoFar(env_steps=rounded(steps[places]), returns=rounded(best[places]))
