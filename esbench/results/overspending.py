"""How far training may exceed its budget of environment steps: one rule for searches and agents.

A search finishes its generation, and an agent without checkpoints its training. A small excess
changes no comparison. A larger one is noted, and twice the budget is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from esbench.core.errors import UsageError

NOTED: Final = 0.05  # of the budget; more is said in tables, comparisons and plans
REFUSED: Final = 1.0  # and this or more is not compared

WHY: Final = "a search finishes its last generation, and some agents their training"


def excess_of(env_steps: float, budget: int) -> float:
    """The share of a budget by which training has exceeded it; 0 if it has not, or is unknown."""
    return max(0.0, (env_steps - budget) / budget)


def excess_text(excess: Mapping[str, float], all_of_them: str = "every row") -> str:
    """The rows whose excess is noted, by their names, as one sentence; empty if there is none.

    "snes, pgpe: 7% to 23% more environment steps than the budget, because ..."
    """
    noted = {name: share for name, share in excess.items() if NOTED < share < REFUSED}
    if not noted:
        return ""
    names = all_of_them if len(noted) == len(excess) > 1 else ", ".join(noted)
    low, high = (f"{share:.0%}" for share in (min(noted.values()), max(noted.values())))
    extent = low if low == high else f"{low} to {high}"
    return f"{names}: {extent} more environment steps than the budget, because {WHY}."


def planned_text(largest: Mapping[str, float]) -> str:
    """What the last generation may add to the budget, by algorithm; empty if that is little."""
    noted = sorted((share, name) for name, share in largest.items() if share > NOTED)
    if not noted:
        return ""
    most, names = noted[-1][0], ", ".join(name for _, name in reversed(noted))
    end = "."
    if most >= REFUSED:
        end = f"; trials that exceed it by {REFUSED:.0%} or more are not compared: raise "
        end += "budget.env_steps or shrink the population."
    return (
        f"a search finishes its last generation, so training may exceed the budget by up to "
        f"{most:.0%} ({names}){end}"
    )


def require_within_budget(title: str, excess: float) -> None:
    """Raises UsageError if training exceeded its budget too far to be compared."""
    if excess >= REFUSED:
        raise UsageError(
            f"{title} took {excess:.0%} more environment steps than its budget; expected less "
            f"than {REFUSED:.0%}: train it with a larger budget or smaller generations"
        )
