"""Adds the seeds of other trials to an entry of a leaderboard."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import final

import numpy as np

from esbench.core.errors import UsageError
from esbench.publish.gate.baselines import OWN_MEAN, FrozenCell, FrozenTrial
from esbench.publish.leaderboard.entries import Curves, Entry, Run
from esbench.results.statistics.curves import align
from esbench.store.provenance import Origin, place_in


@final
@dataclass(frozen=True)
class _Seed:
    """What an entry has of one seed."""

    trial: FrozenTrial
    run: Run
    origin: Origin

    @property
    def results(self) -> dict[str, float | str | None]:
        """What training the seed again gives, by name; not its times."""
        return {
            "score": self.trial.score,
            "last digest": self.trial.last_digest,
            "digest of its episodes": self.run.episodes_digest,
        }


def with_more_seeds(known: Entry, new: Entry) -> Entry:
    """``known`` with the seeds of ``new`` that it lacks; both have the same specification.

    Raises:
        UsageError: a seed of both has other results, or the two were made with other user code.
    """
    if known.own_code != new.own_code:
        raise UsageError(
            f"the user code is {new.own_code}; expected {known.own_code}, as in the file"
        )
    before, after = _seeds(known), _seeds(new)
    for seed in sorted(before.keys() & after.keys()):
        there = before[seed].results
        for name, here in after[seed].results.items():
            if here != there[name]:
                raise UsageError(
                    f"seed {seed} has the {name} {here}; expected that of the file, {there[name]}"
                )
    seeds = dict(sorted((after | before).items()))
    origins: list[Origin] = []
    trials = [
        each.trial.model_copy(update={"origin": place_in(origins, each.origin)})
        for each in seeds.values()
    ]
    return known.model_copy(
        update={
            "cell": _cell(known.cell, trials),
            "runs": tuple(each.run for each in seeds.values()),
            "curves": _curves(known, new, list(seeds)),
            "origins": tuple(origins),
            "commands": tuple(dict.fromkeys([*known.commands, *new.commands])),
        }
    )


def _seeds(entry: Entry) -> dict[int, _Seed]:
    return {
        trial.seed: _Seed(trial, run, entry.origins[trial.origin])
        for trial, run in zip(entry.cell.trials, entry.runs, strict=True)
    }


def _cell(known: FrozenCell, trials: list[FrozenTrial]) -> FrozenCell:
    changed: dict[str, object] = {"trials": tuple(trials)}
    if known.reference_source == OWN_MEAN:
        changed["reference_score"] = fmean(t.score for t in trials if t.score is not None)
    return known.model_copy(update=changed)


def _curves(known: Entry, new: Entry, seeds: list[int]) -> Curves | None:
    """The curves of both, interpolated on the steps that all of them cover."""
    if known.curves is None or new.curves is None:
        return None
    steps, returns, ranks = {}, {}, {}
    for entry, curves in ((new, new.curves), (known, known.curves)):
        for seed, own, share in zip(entry.seeds, curves.returns, curves.ranks, strict=True):
            steps[seed] = np.array(curves.env_steps)
            returns[seed], ranks[seed] = (np.array(row, np.float64) for row in (own, share))
    points = min(len(each) for each in steps.values())
    axes = [steps[seed] for seed in seeds]
    grid, shown = align(axes, [returns[seed] for seed in seeds], points)
    _, shares = align(axes, [ranks[seed] for seed in seeds], points)
    return Curves.rounded(grid, shown, shares)
