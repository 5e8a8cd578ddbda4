"""Run stored trials again and compare digests and scores; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from esbench.engine.engine import Engine
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.publish.gate.baselines import done_cells
from esbench.publish.gate.reruns import (
    MIN_TESTED_RUNS,
    SCORE_ONLY,
    Announce,
    Rerun,
    RerunOutcome,
    Verification,
    Watch,
    announce_final,
    attempted,
    contradiction,
    outcome_of,
    score_tolerance,
    smallest_p,
    train_again,
)
from esbench.results.cell import Cell
from esbench.results.statistics.significance import p_different
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance import changed_code, changes, origin_of, provenance
from esbench.store.trial_folder import TrialFolder

PLAYED: Final = (
    "env_steps",
    "eval_env_steps",
    "episodes",
    "population_size",
    "population_return_mean",
    "population_return_std",
    "population_return_min",
    "population_return_max",
    "center_return",
    "center_rank",
    "non_finite",
    "episode_length_mean",
)
"""The columns of ``metrics.jsonl`` that follow from what was played."""
_ROUNDING: Final = 1e-9  # another processor may add in another order


def verify(path: Path, pool: Engine, watch: Watch, announce: Announce) -> None:
    """Run every trial below ``path`` again.

    Cells with differences are reported at the end, because their p-values depend on each other.

    Raises:
        UsageError: as ``done_cells``, a trial is damaged, or this version does not understand its
            specification.
    """
    cells = done_cells(path)
    for trial in (trial for cell in cells for trial in cell.trials):
        trial.load_checkpoint()  # damage is named before anything is trained
        trial.rows()
    announce_final((_verify_cell(cell, pool, watch) for cell in cells), announce)


def _verify_cell(cell: Cell, pool: Engine, watch: Watch) -> Verification:
    reruns, problem = attempted(
        (trial.spec().seed, partial(_rerun, trial, pool, watch)) for trial in cell.trials
    )
    made = provenance(cell.trials[0].spec())  # now that its environment is registered
    here = origin_of(made)
    changed: dict[str, None] = {}
    for description in cell.descriptions:
        changed |= dict.fromkeys(changes(origin_of(description), here))
        changed |= dict.fromkeys(changed_code(description, made["own_code"]))
    outcome = outcome_of(reruns, problem)
    found = contradiction(reruns, changed)
    tested = outcome is RerunOutcome.DIFFERENT and not problem and not found
    return Verification(
        name=cell.title,
        outcome=outcome,
        reruns=tuple(reruns),
        p_value=_p_value(reruns) if tested else None,
        changed=tuple(changed),
        smallest_p=smallest_p(len(reruns), len(reruns)),
        problem=problem,
        contradiction=found,
    )


def _p_value(reruns: Sequence[Rerun]) -> float | None:
    then = [rerun.recorded for rerun in reruns if rerun.recorded is not None]
    now = [rerun.score for rerun in reruns if rerun.score is not None]
    if not len(reruns) == len(then) == len(now) >= MIN_TESTED_RUNS:
        return None
    return p_different(then, now)


def _rerun(trial: TrialFolder, pool: Engine, watch: Watch) -> Rerun:
    spec, result = trial.spec(), trial.result()
    stored = trial.load_checkpoint()
    recorded = [str(row["digest"]) for row in trial.rows()]
    watched = partial(watch, str(trial.path))
    records, score = train_again(spec, pool, watched, len(recorded), result.get("stopped"))
    digests = [record.digest for record in records]
    pairs = enumerate(zip_longest(recorded, digests), start=1)
    parts_at = next((number for number, (then, now) in pairs if then != now), None)
    if parts_at is None and stored is not None and score.is_identical(result):
        score = evaluate_trial(trial.path, pool).score  # also what ``esbench eval`` plays
    if parts_at is None and not score.is_identical(result):
        parts_at = SCORE_ONLY
    return Rerun(
        spec.seed,
        parts_at,
        result["score"],
        score.finite_mean,
        edited=_edited_columns(trial, records) if parts_at is None else (),
        tolerance=score_tolerance(score.returns),
    )


def _edited_columns(trial: TrialFolder, records: Sequence[GenerationRecord]) -> tuple[str, ...]:
    """The columns that differ although every digest is the same."""
    stored = trial.columns(*PLAYED)
    now = {key: np.array([getattr(record, key) for record in records], float) for key in PLAYED}
    return tuple(
        key
        for key in PLAYED
        if not np.allclose(stored[key], now[key], rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    )
