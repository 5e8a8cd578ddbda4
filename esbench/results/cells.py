"""Cells: stored trials that differ only in the seed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.settings import parse
from esbench.grids.environment_files import Scores, frozen_scores
from esbench.grids.trial_spec import NamedCell, flatten
from esbench.results.statistics.curves import mean_return
from esbench.results.statistics.estimates import EpisodeStatistic, diverged_as_worst, tail_mean
from esbench.store.find_trials import find_trials
from esbench.store.trial_folder import TrialFolder

VARIANT_DIGITS: Final = 6
TOLERATED: Final = 0.05  # of a budget; an update of an agent may need many steps
_Member: TypeAlias = tuple[TrialFolder, Json]


@final
@dataclass(frozen=True)
class Cell(NamedCell):
    """Trials that differ only in the seed.

    Where several cells have the same labels, that of the algorithm ends with "#" and the start of
    the hash of the settings.
    """

    differs: tuple[str, ...]  # settings in which cells with the same labels differ, as "key=value"
    trials: tuple[TrialFolder, ...]  # one per seed, sorted by seed
    descriptions: tuple[Json, ...]  # the content of their ``trial.json``
    scores: Scores  # of the environment with these ``kwargs`` and wrappers; empty if none is known
    twice: tuple[Path, Path] | None = None  # folders of one trial, first the one that counts
    scores_differ: bool = False  # whether trials record other scores; those of the first count

    @property
    def spec(self) -> Json:
        """The specification of the first trial."""
        spec: Json = self.descriptions[0]["spec"]
        return spec

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the trials."""
        return tuple(description["spec"]["seed"] for description in self.descriptions)

    @property
    def labels(self) -> tuple[str, str, str]:
        """Environment, algorithm and policy as the grid calls them, without "#"."""
        return _labels(self.descriptions[0])

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
        """Whether an agent made the trials, not a search."""
        return bool(self.spec["policy"] is None)

    @property
    def evaluates_policy(self) -> bool:
        """Whether the rows have returns of the unperturbed policy; an agent may show none.

        The last row of an agent is written after training, when its policy is known.
        """
        if self.is_agent:
            returns = (trial.columns("center_return")["center_return"] for trial in self.trials)
            return any(bool(np.isfinite(each[:-1]).any()) for each in returns)
        return bool(self.spec["evaluation"]["center"])

    @property
    def cuts_episodes(self) -> bool:
        """Whether training episodes have a limit, which those of the score do not have."""
        limit = self.spec["environment"]["max_episode_steps"]
        return not self.is_agent and limit is not None

    def diverged(self, statistic: EpisodeStatistic = "mean") -> int:
        """The number of done trials without a finite score; errors as ``run_score``."""
        return sum(run_score(trial, statistic) is None for trial in self.trials if trial.is_done)

    @property
    def overspent(self) -> float:
        """The share of its budget by which an agent exceeded it, the largest of the trials.

        0 for a search, which may only finish its last generation.
        """
        if not self.is_agent:
            return 0.0
        budget = int(self.spec["budget"]["env_steps"])
        spent: list[int] = [trial.result()["env_steps"] for trial in self.trials if trial.is_done]
        return max(0.0, max(spent, default=0) / budget - 1)

    def has(self, statistic: EpisodeStatistic) -> bool:
        """Whether its trials have this statistic; those of an agent have no area."""
        return statistic != "area" or not self.is_agent

    @property
    def has_scale(self) -> bool:
        """Whether there is a frozen random score and a reference score above it."""
        random, references = self.scores.random, self.scores.references
        return bool(random and references and references[0].score > random.mean)


def cells(root: Path) -> list[Cell]:
    """The cells of the trials below ``root``, sorted by labels.

    A seed that was run twice with the same settings counts once. UsageError if there is no trial,
    or one cannot be read.
    """
    alike: dict[tuple[str, str, str], list[_Member]] = {}
    for trial in find_trials(root):
        description = trial.description()
        alike.setdefault(_labels(description), []).append((trial, description))
    return [
        cell
        for (environment, algorithm, policy), members in sorted(alike.items())
        for cell in _cells_of(environment, algorithm, policy, members)
    ]


def cells_named(found: Sequence[Cell], name: str) -> list[Cell]:
    """The cells of that name, or else of that label, or else of that algorithm."""
    exact = [cell for cell in found if cell.name == name]
    labeled = [cell for cell in found if name in (cell.algorithm, cell.labels[1])]
    specs = ((cell, cell.spec) for cell in found)
    return exact or labeled or [cell for cell, spec in specs if spec["algorithm"]["name"] == name]


def run_score(trial: TrialFolder, statistic: EpisodeStatistic = "mean") -> float | None:
    """The score, the tail or the area of a done trial; None if not finite.

    Raises:
        UsageError: the trial cannot be read, or the returns of its episodes are missing.
    """
    result = trial.result()
    score: float | None = result["score"]
    if statistic == "mean" or score is None:
        return score
    if statistic == "area":
        return _area(trial, score)
    if not (returns := result.get("returns")):
        raise UsageError(
            f"{trial.path} has no returns of its held-out episodes, so no tail; expected a trial "
            "that this version has scored"
        )
    tail = tail_mean(returns)
    return tail if math.isfinite(tail) else None


def _area(trial: TrialFolder, score: float) -> float | None:
    """The mean return up to the budget, which the score fills where a run ended before it."""
    spec = trial.description()["spec"]
    if spec["policy"] is None:
        raise UsageError(f"{trial.path} is of an agent, which has no area; expected a search")
    if not spec["evaluation"]["center"]:
        raise UsageError(
            f"{trial.path} has no return of the unperturbed policy during training, so no area; "
            "expected a trial with evaluation.center = true"
        )
    columns = trial.columns("env_steps", "center_return")
    ends = columns["env_steps"]
    area = mean_return(ends, columns["center_return"], score, run_budget(spec["budget"], ends))
    return area if math.isfinite(area) else None


def run_budget(budget: Json, ends: Floats) -> float:
    """The steps of a budget; those spent, if all of its ``generations`` have ended the run.

    ``ends`` are the training steps so far at the end of each generation.
    """
    steps = float(budget["env_steps"])
    return min(steps, float(ends[-1])) if len(ends) == budget["generations"] else steps


def seed_scores(group: Sequence[Cell], statistic: EpisodeStatistic = "mean") -> list[list[float]]:
    """The scores of the done trials of one environment's cells, one list per cell.

    A run that diverged counts as the worst of the random policy and the runs of its cell, so that
    no cell changes the scores of another. Without the score of the random policy, it counts as the
    worst run of all cells. A cell whose runs have all diverged has no scores. Errors as
    ``run_score``.
    """
    found = [
        [run_score(trial, statistic) for trial in cell.trials if trial.is_done] for cell in group
    ]
    known = [scores if any(s is not None for s in scores) else [] for scores in found]
    randoms = [cell.scores.random.mean for cell in group if cell.scores.random]
    if len(randoms) < len(group):
        return diverged_as_worst(known, min(randoms, default=math.inf))
    return [diverged_as_worst([own], at)[0] for own, at in zip(known, randoms, strict=True)]


def require_distinct_seeds(found: Sequence[Cell]) -> None:
    """Raises UsageError, which names both folders, for a cell in which a seed was run twice."""
    for cell in found:
        if cell.twice:
            raise UsageError(
                f"{cell.twice[0]} and {cell.twice[1]} hold the same trial; expected a folder with "
                "one of them"
            )


def require_within_budget(found: Sequence[Cell]) -> None:
    """Raises UsageError for a cell of an agent that spent more steps than its budget."""
    for cell in found:
        if cell.overspent > TOLERATED:
            raise UsageError(
                f"{cell.title} took {cell.overspent:.0%} more environment "
                "steps than its budget; expected an agent that ends at env_steps"
            )


def _labels(description: Json) -> tuple[str, str, str]:
    labels = description["labels"]
    return labels["environment"], labels["algorithm"], labels["policy"]


def _cells_of(
    environment: str,
    algorithm: str,
    policy: str,
    members: Sequence[_Member],
) -> Iterator[Cell]:
    variants: dict[str, dict[int, _Member]] = {}
    twice: dict[str, tuple[Path, Path]] = {}
    for trial, description in members:
        spec = description["spec"]
        variant = variant_of(spec)
        seeds = variants.setdefault(variant, {})
        known = seeds.get(spec["seed"])
        counts = known is None or (trial.is_done and not known[0].is_done)
        if counts:
            seeds[spec["seed"]] = (trial, description)
        if known is not None:
            first, second = (trial, known[0]) if counts else (known[0], trial)
            twice[variant] = first.path, second.path
    specs = [next(iter(seeds.values()))[1]["spec"] for seeds in variants.values()]
    for variant, seeds in sorted(variants.items()):
        trials, descriptions = zip(*(seeds[seed] for seed in sorted(seeds)), strict=True)
        spec = descriptions[0]["spec"]
        yield Cell(
            environment=environment,
            algorithm=algorithm if len(specs) == 1 else f"{algorithm} #{_settings_hash(spec)}",
            policy=policy,
            differs=_differing(spec, specs),
            trials=trials,
            descriptions=descriptions,
            scores=_scores_of(trials[0], descriptions[0]),
            twice=twice.get(variant),
            scores_differ=len({json.dumps(each.get("scores")) for each in descriptions}) > 1,
        )


def _scores_of(trial: TrialFolder, description: Json) -> Scores:
    """The frozen scores of a trial: those it records, or those of ``envs/``."""
    recorded = description.get("scores")
    if recorded is None:
        return frozen_scores(description["spec"]["environment"])
    return parse(Scores, recorded, str(trial.path / "trial.json"), "scores")


def variant_of(spec: Json) -> str:
    """The hash of a specification without its seed."""
    common = {key: value for key, value in spec.items() if key != "seed"}
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def _settings_hash(spec: Json) -> str:
    """The start of the hash of a specification without its seed and its environment's name.

    So a cell has the same label in all environments where its settings are the same.
    """
    environment = {key: value for key, value in spec["environment"].items() if key != "id"}
    return variant_of({**spec, "environment": environment})[:VARIANT_DIGITS]


def _differing(spec: Json, specs: Sequence[Json]) -> tuple[str, ...]:
    """The settings of ``spec``, without the seed, that are not the same in all ``specs``."""
    flat = [flatten(each) for each in specs]
    return tuple(
        f"{key}={json.dumps(value)}"
        for key, value in flatten(spec).items()
        if key != "seed" and any(key not in other or other[key] != value for other in flat)
    )
