"""A cell: runs that differ only in the seed, and what their scores say together."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.grids.environment_files import PublishedScore, Scores
from esbench.grids.stored_spec import stored_spec
from esbench.grids.trial_spec import NamedCell, TrialSpec, flatten
from esbench.results.run import Run, Variety
from esbench.results.statistics.estimates import (
    EpisodeStatistic,
    bootstrap_interval,
    diverged_as_worst,
    iqm,
    normalized,
)
from esbench.results.statistics.judgment import MARGIN
from esbench.results.statistics.significance import Standing, standings
from esbench.store.origin import mixture
from esbench.store.trial_folder import TrialFolder

MOST_EXCESS: Final = 1.0  # of the budget of steps: trials with this or more are not compared
SAME_TRAINING: Final = (
    "all seeds gave the same training and the same score; does the code use its seed?"
)


@final
@dataclass(frozen=True)
class Cell(NamedCell):
    """Runs that differ only in the seed, from a folder, a baseline or a leaderboard.

    Where several cells of a folder have the same labels, ``algorithm`` ends with "#" and the start
    of the hash of the settings. A missing number is NaN.

    Attributes:
        runs: one per seed, sorted by seed.
        label: the label of the algorithm, without "#".
        frozen: the scores of the random policy and of references that runs are compared with.
        differs: settings in which cells with the same labels differ, as "key=value".
        inherited: settings of the algorithm that come from the environment's file.
        defaults: settings of the algorithm that were not given.
        twice: folders of one run, first the one that counts.
        scores_differ: whether runs record several ``frozen`` scores; those of the first count.
        statistic: what makes the score of a run of its episodes.
        scores: of the done runs, those that diverged as in ``seed_scores``.
        standing: "best" among the cells of the environment, "tied" if not significantly worse.
        setting: the value of the setting that a table sorts by, if any.
        margin: the smallest drop that matters to a check, as a share of the range.
        selected: IQM over seeds of the held-out score of the best policy instead of the final one.
    """

    runs: tuple[Run, ...]
    label: str
    frozen: Scores
    differs: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    twice: tuple[Path, Path] | None = None
    scores_differ: bool = False
    statistic: EpisodeStatistic = "mean"
    scores: tuple[float, ...] = ()
    standing: Standing = ""
    setting: Any = None
    margin: float = MARGIN
    selected: float = math.nan

    @property
    def done(self) -> list[Run]:
        """The runs whose training has ended."""
        return [run for run in self.runs if run.done]

    @property
    def trials(self) -> tuple[TrialFolder, ...]:
        """The folders of the runs."""
        return tuple(run.folder for run in self.runs)

    @property
    def descriptions(self) -> tuple[Json, ...]:
        """The recorded content of ``trial.json`` of each run."""
        return tuple(run.description for run in self.runs)

    @property
    def spec(self) -> Json:
        """The specification of the first run."""
        spec: Json = self.runs[0].description["spec"]
        return spec

    def trial_spec(self, seed: int) -> TrialSpec:
        """The specification of a seed; a UsageError if this version does not understand it."""
        return stored_spec({**self.spec, "seed": seed}, self.title)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.seed for run in self.runs)

    @property
    def labels(self) -> tuple[str, str, str]:
        """Environment, algorithm and policy as the grid calls them, without "#"."""
        return self.environment, self.label, self.policy

    @property
    def variant(self) -> str:
        """The hash of the specification without its seed."""
        return variant_of(self.spec)

    @property
    def settings(self) -> Json:
        """The settings of the algorithm; one inside a table has a dotted key."""
        return flatten(self.spec["algorithm"]["settings"])

    @property
    def is_agent(self) -> bool:
        """Whether an agent made the runs, not a search."""
        return self.runs[0].is_agent

    @property
    def budget(self) -> int:
        """The environment steps that a run may take."""
        return int(self.spec["budget"]["env_steps"])

    @property
    def commands(self) -> tuple[str, ...]:
        """The distinct commands that made the runs."""
        return tuple(dict.fromkeys(run.command for run in self.runs if run.command))

    @property
    def hardware(self) -> tuple[str, ...]:
        """The distinct processors of the runs."""
        known = [each["hardware"] for each in self.descriptions if each.get("hardware")]
        return tuple(dict.fromkeys(f"{own.get('cpu')}, {own.get('cores')} cores" for own in known))

    @property
    def mixture(self) -> tuple[str, ...]:
        """Packages with several versions among the runs, as "numpy 2.3 and 2.4"."""
        return tuple(map(" ".join, mixture(self.descriptions).items()))

    @cached_property
    def ignores_seed(self) -> bool:
        """Whether all of several seeds have had the same training, in which returns vary.

        Equal scores alone say nothing: every seed may solve the task. Nor do returns that are all
        equal, from which no seed can learn. False for the runs of a file.
        """
        runs = [run for run in self.done if run.stored and run.returns]
        if len(runs) < 2 or any(run.returns != runs[0].returns for run in runs):
            return False
        names = "digest", "population_return_min", "population_return_max"
        first, *others = (run.folder.columns(*names) for run in runs)
        if any(not np.array_equal(each["digest"], first["digest"]) for each in others):
            return False
        extremes = np.array([first[name] for name in names[1:]], dtype=np.float64)
        known = extremes[np.isfinite(extremes)]
        return known.size > 0 and bool(known.min() < known.max())

    @property
    def evaluates_policy(self) -> bool:
        """Whether the rows have returns of the unperturbed policy; an agent may show none.

        The last row of an agent is written after training, when its policy is known.
        """
        if self.is_agent:
            return any(
                bool(np.isfinite(run.curve["center_return"][:-1]).any()) for run in self.runs
            )
        return bool(self.spec["evaluation"]["center"])

    @property
    def cuts_episodes(self) -> bool:
        """Whether training episodes have a limit, which those of the score do not have."""
        return not self.is_agent and self.spec["environment"]["max_episode_steps"] is not None

    @property
    def overspent(self) -> float:
        """The share of its budget by which training exceeded it, the largest of the runs.

        A search finishes its generation, and an agent without checkpoints its training.
        """
        excess = ((run.env_steps - self.budget) / self.budget for run in self.done)
        return max((0.0, *excess))  # NaN, of an unknown number of steps, is not larger

    @property
    def variety(self) -> Variety:
        """The variety of the held-out episodes: that of the least varied run."""
        found = {run.variety for run in self.runs}
        return "one" if "one" in found else "equal" if "equal" in found else "varied"

    @property
    def unfinished(self) -> int:
        """The number of runs that are not done."""
        return len(self.runs) - len(self.done)

    @property
    def diverged(self) -> int:
        """The number of done runs without a finite score; 0 if they have no such statistic."""
        done = self.done if self.has(self.statistic) else []
        return sum(run.scored(self.statistic) is None for run in done)

    @cached_property
    def score(self) -> float:
        """The interquartile mean of the scores."""
        return float(iqm(self.scores)) if self.scores else math.nan

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of ``score``; NaN with fewer than three seeds."""
        low, high = bootstrap_interval(self.scores) if self.scores else (math.nan, math.nan)
        return float(low), float(high)

    @cached_property
    def tail(self) -> float:
        """The mean over seeds of the mean of the worst 10 % of held-out episodes.

        No seed is left out, as the IQM does: a tail is there to show the worst. NaN if that of a
        seed is unknown or not finite.
        """
        tails = [run.tail for run in self.done]
        return fmean(tails) if tails and not any(map(math.isnan, tails)) else math.nan

    @property
    def env_steps(self) -> float:
        """The steps of training, mean over the done runs."""
        return self.mean_cost("env_steps")

    def mean_cost(
        self, name: Literal["env_steps", "generations", "wall_time_s", "cpu_time_s"]
    ) -> float:
        """A cost of training, mean over the done runs."""
        return fmean(getattr(run, name) for run in self.done) if self.done else math.nan

    @property
    def random_score(self) -> float:
        """The score of the random policy."""
        return self.frozen.random.mean if self.frozen.random else math.nan

    @property
    def reference(self) -> PublishedScore | None:
        """The published score that tables show and normalize by."""
        return self.frozen.references[0] if self.frozen.references else None

    @property
    def reference_score(self) -> float:
        """The score of the reference."""
        return self.reference.score if self.reference else math.nan

    @property
    def has_scale(self) -> bool:
        """Whether there is a frozen random score and a reference score above it."""
        return self.reference_score > self.random_score

    def normalized(self, value: float) -> float:
        """A score where the random policy has 0 and the reference 1."""
        return normalized(value, self.random_score, self.reference_score)

    def has(self, statistic: EpisodeStatistic) -> bool:
        """Whether its runs have this statistic; those of an agent have no area."""
        return statistic != "area" or not self.is_agent


def cells_named(found: Sequence[Cell], name: str) -> list[Cell]:
    """In each environment, the cells of that name or else of that label.

    Without any, the cells of that algorithm.
    """
    labeled = [cell for cell in found if name in (cell.name, cell.algorithm, cell.label)]
    exact = {cell.environment for cell in labeled if cell.name == name}
    named = [c for c in labeled if c.name == name or c.environment not in exact]
    return named or [cell for cell in found if cell.spec["algorithm"]["name"] == name]


def ranked(group: Sequence[Cell], statistic: EpisodeStatistic = "mean") -> list[Cell]:
    """The cells of one environment with their scores and standings; errors as ``Run.scored``.

    A cell without the statistic has no scores.
    """
    scored = [cell for cell in group if cell.has(statistic)]
    known = {
        id(cell): own for cell, own in zip(scored, seed_scores(scored, statistic), strict=True)
    }
    scores = [known.get(id(cell), []) for cell in group]
    return [
        replace(cell, statistic=statistic, scores=tuple(own), standing=standing)
        for cell, own, standing in zip(group, scores, standings(scores), strict=True)
    ]


def seed_scores(group: Sequence[Cell], statistic: EpisodeStatistic = "mean") -> list[list[float]]:
    """The scores of the done runs of one environment's cells, one list per cell.

    A run that diverged counts as the worst of the random policy and the runs of its cell, so that
    no cell changes the scores of another. Without the score of the random policy, it counts as the
    worst run of all cells. A cell whose runs have all diverged has no scores. Errors as
    ``Run.scored``.
    """
    found = [[run.scored(statistic) for run in cell.done] for cell in group]
    known = [scores if any(s is not None for s in scores) else [] for scores in found]
    randoms = [cell.random_score for cell in group if cell.frozen.random]
    if len(randoms) < len(group):
        return diverged_as_worst(known, min(randoms, default=math.inf))
    return [diverged_as_worst([own], at)[0] for own, at in zip(known, randoms, strict=True)]


def normalized_scores(found: Sequence[Cell]) -> dict[str, dict[str, list[float]]]:
    """Normalized scores by name and environment, of ranked cells where random and reference are."""
    table: dict[str, dict[str, list[float]]] = {}
    for cell in found:
        if cell.scores and cell.has_scale:
            scores = [cell.normalized(score) for score in cell.scores]
            table.setdefault(cell.name, {})[cell.environment] = scores
    return table


def require_comparable(found: Sequence[Cell]) -> None:
    """Raises UsageError if a seed was run twice, or training went too far beyond its budget.

    A gate compares cells with their own past, which has the same budget: ``require_distinct``.
    """
    require_distinct(found)
    for cell in found:
        if (excess := cell.overspent) >= MOST_EXCESS:
            raise UsageError(
                f"{cell.title} took {excess:.0%} more environment steps than its budget; expected "
                f"less than {MOST_EXCESS:.0%}: train it with a larger budget or smaller generations"
            )


def require_distinct(found: Sequence[Cell]) -> None:
    """Raises UsageError if a seed was run twice."""
    for cell in found:
        if cell.twice:
            raise held_twice(*cell.twice)


def held_twice(one: Path, other: Path) -> UsageError:
    """The error about two folders with one trial."""
    return UsageError(f"{one} and {other} hold the same trial; expected a folder with one of them")


def variant_of(spec: Json) -> str:
    """The hash of a specification without its seed."""
    common = {key: value for key, value in spec.items() if key != "seed"}
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()
