"""Baselines: the scores of an output folder, frozen in one file that later runs are held to.

A baseline keeps, of every trial, its score and the digests of its first generations and its last,
and of every cell the settings, and the range between random actions and the reference in which
drops are measured. Everything a check needs is in it: adding an algorithm, or correcting a
reference, never moves an old verdict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from esbench.errors import UsageError
from esbench.files import Json, as_text, read_bytes, write_bytes
from esbench.grids.environment_files import Reference
from esbench.grids.trial_spec import EnvironmentSpec, Seed, TrialSpec
from esbench.settings import Settings, Table, parse
from esbench.store.defaults import completed
from esbench.store.origins import Origin, origin_of, was_mixed
from esbench.store.seed_groups import Cell, cell_name, cells, require_distinct_seeds
from esbench.store.trial_folder import TrialFolder, now
from esbench.units import counted

FORMAT: Final = 1
FIRST_GENERATIONS: Final = 5
RANDOM_EPISODES: Final = 100
OWN_MEAN: Final = "the baseline's own mean"


class FrozenTrial(Settings):
    """One seed.

    Attributes:
        seed: of the training.
        score: mean return of the final policy over held-out episodes; null if it was not finite.
        first_digests: of the first generations, none if it was resumed under other versions;
            last_digest: of the last one.
        origin: which of the baseline's origins made it.
    """

    seed: Seed
    score: float | None
    first_digests: tuple[str, ...] = ()
    last_digest: str | None = None
    origin: Annotated[int, Field(ge=0)] = 0


class FrozenCell(Settings):
    """The trials that differ in nothing but the seed.

    Attributes:
        environment, algorithm, policy: labels.
        spec: the specification without its seed; null for what esbench did not train.
        random_score: of random actions; reference_score: the other end of the range in which
            drops are measured; reference_source: whose it is.
        trials: a seed each.
    """

    environment: str
    algorithm: str
    policy: str
    spec: Table | None = None
    random_score: float
    reference_score: float
    reference_source: str
    trials: tuple[FrozenTrial, ...] = Field(min_length=1)

    @property
    def name(self) -> str:
        """Algorithm and policy on the environment, in words."""
        return f"{cell_name(self.algorithm, self.policy)} on {self.environment}"

    @property
    def span(self) -> float:
        """The range between random actions and the reference."""
        return abs(self.reference_score - self.random_score)

    def trial_spec(self, seed: int) -> TrialSpec:
        """Return the specification of one seed, with the defaults of settings that are newer.

        Raises:
            UsageError: it has none, or one that this version does not understand.
        """
        if self.spec is None:
            raise UsageError(f"{self.name} was not trained by esbench; there is no specification")
        spec = parse(TrialSpec, {**self.spec, "seed": seed}, f"baseline of {self.name}", "spec")
        return completed(spec)


class Baseline(Settings):
    """A frozen output folder: see this module."""

    format: int = FORMAT
    created: str
    command: str
    origins: tuple[Origin, ...]
    cells: tuple[FrozenCell, ...] = Field(min_length=1)


def freeze(root: Path, command: str) -> Baseline:
    """Return the baseline of the trials below ``root``.

    The range of a cell lies between its environment's random score and first reference; without
    the first, random actions are measured now, and without the second its own mean takes the place.

    Args:
        root: an output folder, every trial done.
        command: what makes the baseline.

    Raises:
        UsageError: there is no trial, one is not done or not readable, or a range is empty.
    """
    found = cells(root)
    require_distinct_seeds(found)
    _require_done(found)
    origins: list[Origin] = []
    frozen = tuple(_freeze_cell(cell, origins) for cell in found)
    return Baseline(created=now(), command=command, origins=tuple(origins), cells=frozen)


def read_baseline(path: Path) -> Baseline:
    """Return the baseline of a file.

    Raises:
        UsageError: it is missing, not readable, not a baseline, or of a newer esbench.
    """
    try:
        content = json.loads(read_bytes(path))
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; expected one of 'esbench baseline'") from None
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise UsageError(f"{path}: not a baseline; expected a file of 'esbench baseline'")
    if content["format"] > FORMAT:
        raise UsageError(
            f"{path}: written by a newer esbench (format {content['format']}, this one reads up "
            f"to {FORMAT}); upgrade esbench"
        )
    baseline = parse(Baseline, content, str(path))
    for cell in baseline.cells:
        if not cell.span > 0:
            raise UsageError(
                f"{path}: {cell.name}: random_score and reference_score are both "
                f"{cell.random_score:g}; expected them to differ"
            )
        for trial in cell.trials:
            if trial.origin >= len(baseline.origins):
                raise UsageError(
                    f"{path}: {cell.name}: seed {trial.seed} has origin {trial.origin}, of "
                    f"{len(baseline.origins)} (counted from 0)"
                )
    return baseline


def write_baseline(path: Path, baseline: Baseline, replace: bool = False) -> None:
    """Write a baseline, whole or not at all.

    Raises:
        UsageError: there is a file already and ``replace`` is not given, or the file system
            refuses.
    """
    if path.exists() and not replace:
        raise UsageError(
            f"{path} exists; give --replace to freeze anew what later runs are held to"
        )
    write_bytes(path, as_text(baseline.model_dump(mode="json")).encode())


def first_digests(trial: TrialFolder) -> tuple[tuple[str, ...], str | None]:
    """Return the digests of a trial's first generations, and of its last one."""
    digests = [str(digest) for digest in trial.columns("generation", "digest")["digest"]]
    return tuple(digests[:FIRST_GENERATIONS]), digests[-1] if digests else None


def _require_done(found: Sequence[Cell]) -> None:
    undone = [trial for cell in found for trial in cell.trials if not trial.is_done]
    if undone:
        raise UsageError(
            f"{counted(len(undone), 'trial')} not done, {undone[0].path} the first "
            f"({undone[0].status}); expected all done: run the grid to its end first"
        )


def _freeze_cell(cell: Cell, origins: list[Origin]) -> FrozenCell:
    labels = cell.descriptions[0]["labels"]
    spec = {key: value for key, value in cell.descriptions[0]["spec"].items() if key != "seed"}
    trials = tuple(
        _freeze_trial(trial, description, origins)
        for trial, description in zip(cell.trials, cell.descriptions, strict=True)
    )
    finite = [trial.score for trial in trials if trial.score is not None]
    if not finite:
        raise UsageError(f"{cell.name} on {cell.environment}: no seed has a finite score")
    random = cell.scores.random.mean if cell.scores.random else _measured_random(spec)
    references: tuple[Reference, ...] = cell.scores.references
    reference = references[0].score if references else fmean(finite)
    source = references[0].source if references else OWN_MEAN
    if reference == random:
        raise UsageError(
            f"{cell.name} on {cell.environment}: the score of random actions and the reference "
            f"({source}) are both {random:g}, so no drop can be measured; expected them to differ"
        )
    return FrozenCell(
        environment=labels["environment"],
        algorithm=labels["algorithm"],
        policy=labels["policy"],
        spec=spec,
        random_score=random,
        reference_score=reference,
        reference_source=source,
        trials=trials,
    )


def _freeze_trial(trial: TrialFolder, description: Json, origins: list[Origin]) -> FrozenTrial:
    origin = origin_of(description)
    if origin not in origins:
        origins.append(origin)
    score = trial.result()["score"]
    first, last = first_digests(trial)
    return FrozenTrial(
        seed=description["spec"]["seed"],
        score=score if score is not None and math.isfinite(score) else None,
        first_digests=() if was_mixed(description) else first,
        last_digest=last,
        origin=origins.index(origin),
    )


def _measured_random(spec: Json) -> float:
    from esbench.rollouts.random_policy import random_policy_returns

    environment = parse(EnvironmentSpec, spec["environment"], "trial.json", "spec.environment")
    return float(np.mean(random_policy_returns(environment, RANDOM_EPISODES, seed=0)))
