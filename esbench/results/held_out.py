"""The held-out episodes of a stored trial: its score, and whether the episodes differ."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from esbench.core.json_text import Json
from esbench.core.units import format_number

Variety: TypeAlias = Literal["varied", "equal", "one"]
"""Held-out episodes that vary, that are equal for an unknown reason, or that are one and the same.

"one": they are equal, and the seed of an episode makes no difference to the environment. "equal":
they are equal, and a version that did not ask the environment has trained the trial.
"""


def has_equal_episodes(result: Json) -> bool:
    """Whether all of several held-out episodes have one return and one length above one step."""
    returns: list[float | None] = result.get("returns") or []
    lengths: list[float | None] = result.get("lengths") or []
    is_one = len(set(returns)) == 1 == len(set(lengths)) and None not in (*returns, *lengths)
    return is_one and len(returns) > 1 and bool(lengths[0] and lengths[0] > 1)


def variety(result: Json) -> Variety:
    """The variety of the held-out episodes in a ``result.json``.

    Where it is not recorded whether the environment is deterministic, equal episodes with a whole
    number as reward per step count as varied: 500 in 500 steps of CartPole is the best return.
    """
    if not has_equal_episodes(result):
        return "varied"
    if (deterministic := result.get("deterministic")) is not None:
        return "one" if deterministic else "varied"
    per_step: float = result["returns"][0] / result["lengths"][0]
    return "varied" if per_step.is_integer() else "equal"


def least_varied(results: list[Json]) -> Variety:
    """The variety of the held-out episodes of the trials of one cell: that of the worst trial."""
    found = {variety(result) for result in results}
    return "one" if "one" in found else "equal" if "equal" in found else "varied"


def score_text(result: Json) -> str:
    """The score of a result, with NaN or None, or the number of episodes that were not finite."""
    score, *returns = [
        math.nan if value is None else value
        for value in (result["score"], *result.get("returns", []))
    ]
    if math.isfinite(score):
        return f"score {format_number(score)}"
    bad = sum(not math.isfinite(value) for value in returns)
    why = f" ({bad} of {len(returns)} held-out episodes not finite)" if bad else ""
    return f"score -{why}"
