"""The objective of a configuration, and the rule that stops bad ones early.

Successive halving (Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016) stops the worse half at each rung of the budget. With few seeds, that
often stops the best configuration because of one unlucky seed. Here, a configuration is judged when
all its seeds have reached a rung, and stopped only if its best seed is below the median of the
others. ``docs/how-to/tune.md`` has the simulated rate of wrong decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from esbench.grids.trial_spec import BudgetSpec
from esbench.results.statistics.estimates import iqm

RUNGS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1))  # of the budget
FEWEST_OTHERS: Final = 4  # a median of fewer says little


def objective(scores: Sequence[float]) -> float:
    """The IQM of the scores of the seeds; minus infinity, the worst value, if one has failed."""
    return float(iqm(scores)) if np.isfinite(scores).all() else -math.inf


def is_clearly_worse(scores: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the best seed is below the median objective of other configurations at a rung.

    Never with fewer than four others.
    """
    return len(others) >= FEWEST_OTHERS and max(scores) < float(np.median(others))


def at_rung(budget: BudgetSpec, share: Fraction) -> BudgetSpec:
    """The part of a budget that a rung stands for, rounded up."""
    limits = {
        "env_steps": math.ceil(budget.env_steps * share),
        "generations": budget.generations and math.ceil(budget.generations * share),
    }
    return budget.model_copy(update=limits)
