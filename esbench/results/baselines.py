"""Baselines: the frozen scores, digests and settings of an output folder, in one file.

A baseline has everything that a check needs, also the range from random actions to the reference in
which drops are measured, so a corrected reference never changes an old verdict.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final, TypeAlias, final

import msgspec
import numpy as np
from pydantic import Field, field_validator

from esbench.core.arrays import LARGEST_MEAN
from esbench.core.errors import UsageError
from esbench.core.files import nearest_path, read_json
from esbench.core.json_text import Json, as_text
from esbench.core.settings import Settings, Table, parse
from esbench.core.user_code import require_trusted
from esbench.engine.random_policy import random_policy_returns
from esbench.grids.environment_files import PublishedScore, RandomScore, Scores
from esbench.grids.stored_spec import stored_spec
from esbench.grids.trial_spec import EnvironmentSpec, Seed, TrialSpec, cell_name
from esbench.results.cell import SAME_TRAINING, Cell
from esbench.results.run import Run
from esbench.results.sources import done_cells
from esbench.results.statistics.estimates import EpisodeStatistic, diverged_as_worst
from esbench.results.statistics.judgment import MARGIN
from esbench.results.statistics.significance import OMNIBUS, TestStatistic
from esbench.store.origin import Origin, differences_within, place_in
from esbench.store.outputs import write_bytes
from esbench.store.own_code import changed_since, is_of_main
from esbench.store.provenance import now
from esbench.store.stored_json import StoredSpec

FORMAT: Final = 1
RANDOM_EPISODES: Final = 100
OWN_MEAN: Final = "the baseline's own mean"
NO_DIGESTS: Final = "code, versions or processor changed during training"
EXPECTED: Final = "a file of 'esbench baseline'"
Score: TypeAlias = Annotated[float, Field(ge=-LARGEST_MEAN, le=LARGEST_MEAN)]


@final
class FrozenTrial(Settings):
    """One training seed, with its score (null if not finite) and digests of its generations.

    The score is the episode statistic of the cell. A trial that was resumed under other versions
    has no first digests. ``origin`` is an index into the origins of the baseline. ``stopped`` is
    why training ended before its budget.
    """

    seed: Seed
    score: Score | None
    first_digests: tuple[str, ...] = ()
    last_digest: str | None = None
    origin: Annotated[int, Field(ge=0)] = 0
    stopped: Annotated[str | None, Field(exclude_if=lambda reason: reason is None)] = None


@final
class FrozenCell(Settings):
    """The trials that differ only in the seed. Drops are shares of the range of the two scores.

    ``spec`` has no seed. It is null if esbench did not train the trials. Of the settings of its
    algorithm, ``defaults`` were not given: their values belong to the code that is judged. The ends
    of the range are mean returns, whatever statistic is judged. Without ``margin``, the smallest
    drop that matters is that of versions that had one for all cells.
    """

    environment: str
    algorithm: str
    policy: str
    spec: Table | None = None
    defaults: Annotated[tuple[str, ...], Field(exclude_if=lambda names: not names)] = ()
    random_score: Score
    reference_score: Score
    reference_source: str
    episode_statistic: EpisodeStatistic = "mean"
    margin: Annotated[float | None, Field(gt=0, le=1, exclude_if=lambda m: m is None)] = None
    trials: tuple[FrozenTrial, ...] = Field(min_length=1)

    @field_validator("spec")
    @classmethod
    def _has_its_keys(cls, spec: Table | None) -> Table | None:
        if spec is not None:
            msgspec.convert({**spec, "seed": 0}, StoredSpec)  # raises a ValueError
        return spec

    @property
    def name(self) -> str:
        """Such as "openai_es on CartPole-v1"."""
        return f"{cell_name(self.algorithm, self.policy)} on {self.environment}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """Environment, algorithm and policy."""
        return self.environment, self.algorithm, self.policy

    def to_cell(self, origins: Sequence[Origin]) -> Cell:
        """The trials as runs of a cell; those that diverged have the worst score in ``scores``.

        ``origins`` are those of the file.
        """
        scores = [trial.score for trial in self.trials]
        runs = tuple(
            Run(
                seed=trial.seed,
                description={
                    **(origins[trial.origin].model_dump() if origins else {}),
                    "spec": {**(self.spec or {}), "seed": trial.seed},
                },
                known_scores={self.episode_statistic: trial.score},
                known_digests=(trial.first_digests, trial.last_digest),
                stopped=trial.stopped,
            )
            for trial in self.trials
        )
        random = RandomScore(mean=self.random_score, std=0.0, episodes=0, command="")
        reference = PublishedScore(
            method="", score=self.reference_score, source=self.reference_source, comparable=True
        )
        return Cell(
            environment=self.environment,
            algorithm=self.algorithm,
            policy=self.policy,
            runs=runs,
            label=self.algorithm,
            frozen=Scores(random=random, references=(reference,)),
            defaults=self.defaults,
            statistic=self.episode_statistic,
            margin=self.margin or MARGIN,
            scores=tuple(diverged_as_worst([scores], self.random_score)[0]),
        )


@final
class Baseline(Settings):
    """A frozen output folder.

    ``statistics`` are those of the gate's tests over seeds. They and the episode statistic of each
    cell are chosen before there are scores to judge. A file without ``statistics`` is of a version
    that tested means.
    """

    format: int = FORMAT
    created: str
    command: str
    statistics: tuple[TestStatistic, ...] = Field(("mean",), min_length=1)
    origins: tuple[Origin, ...]
    cells: tuple[FrozenCell, ...] = Field(min_length=1)

    def to_cells(self) -> list[Cell]:
        """The cells of runs."""
        return [cell.to_cell(self.origins) for cell in self.cells]


def freeze(
    root: Path, command: str, statistic: EpisodeStatistic = "mean", trusted: bool = False
) -> Baseline:
    """Make the baseline of the trials below ``root``, with the command that makes it.

    Later checks judge the ``statistic`` of a trial's episodes. The range of a cell goes
    from the environment's random score, or what random actions score now, to its first published
    score, or the mean of the cell itself. ``trusted`` is whether the user trusts the code of
    environments that have to be played.

    Raises:
        UsageError: As ``done_cells``, or user code has changed since it trained the trials, or it
            ignores the seed, or a range is empty, or a trial has no tail.
    """
    origins: list[Origin] = []
    cells, found = [], done_cells(root)
    played = [cell.spec["environment"] for cell in found if not cell.frozen.random]
    require_trusted(played, root, trusted)
    for cell in found:
        if problem := other_code(cell):
            raise UsageError(f"{cell.title}: {problem}")
        if cell.ignores_seed:
            raise UsageError(f"{cell.title}: {SAME_TRAINING}")
        frozen = freeze_cell(cell, origins, statistic)
        cells.append(frozen.model_copy(update={"defaults": cell.defaults}))
    baseline = Baseline(
        created=now(),
        command=command,
        statistics=OMNIBUS,
        origins=tuple(origins),
        cells=tuple(cells),
    )
    return _consistent(baseline, str(root))


def freeze_cell(
    cell: Cell, origins: list[Origin], statistic: EpisodeStatistic = "mean"
) -> FrozenCell:
    """Freeze done trials, and add what they were made with to ``origins``; errors as ``freeze``."""
    spec = {key: value for key, value in cell.spec.items() if key != "seed"}
    trials = tuple(
        FrozenTrial(
            seed=run.seed,
            score=run.scored(statistic),
            first_digests=() if differences_within(run.description) else run.digests[0],
            last_digest=run.digests[1],
            origin=place_in(origins, run.origin),
            stopped=run.stopped,
        )
        for run in cell.runs
    )
    finite = [run.score for run in cell.runs if run.score is not None]
    if not finite or all(trial.score is None for trial in trials):
        what = "score" if not finite else statistic
        raise UsageError(f"{cell.title}: no seed has a finite {what}")
    environment, algorithm, policy = cell.labels
    random = cell.random_score if cell.frozen.random else _measured_random(spec)
    reference, source = fmean(finite), OWN_MEAN
    if cell.reference:
        reference, source = cell.reference.score, cell.reference.source
    return FrozenCell(
        environment=environment,
        algorithm=algorithm,
        policy=policy,
        spec=spec,
        random_score=random,
        reference_score=reference,
        reference_source=source,
        episode_statistic=statistic,
        trials=trials,
    )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        UsageError: The file is missing, not readable, not a baseline, or of another format.
    """
    try:
        content = read_json(path)
    except FileNotFoundError:
        near = nearest_path(path)
        expected = f"did you mean {str(near)!r}?" if near else f"expected {EXPECTED}"
        raise UsageError(f"no file {str(path)!r}; {expected}") from None
    if not isinstance(content, dict) or not {"command", "cells"} <= content.keys():
        raise UsageError(f"{path} is no baseline; expected {EXPECTED}")
    if (known := content.get("format")) != FORMAT:
        raise UsageError(f"{path}: baseline format {known!r}; expected {FORMAT}: make it again")
    return _consistent(parse(Baseline, content, str(path)), str(path))


def _consistent(baseline: Baseline, source: str) -> Baseline:
    """The baseline; a UsageError if its parts do not belong together."""
    names = [cell.name for cell in baseline.cells]
    for cell in baseline.cells:
        seeds = [trial.seed for trial in cell.trials]
        if names.count(cell.name) > 1 or len({*seeds}) < len(seeds):
            raise UsageError(
                f"{source}: {cell.name} is there {names.count(cell.name)} times, with seeds "
                f"{seeds}; expected every cell and seed once"
            )
        if cell.reference_score == cell.random_score:
            raise UsageError(
                f"{source}: {cell.name}: random actions and the reference "
                f"({cell.reference_source}) both score {cell.random_score:g}, so no drop can be "
                "measured; expected them to differ"
            )
        if max(trial.origin for trial in cell.trials) >= len(baseline.origins):
            raise UsageError(f"{source}: {cell.name} names an origin that the file lacks")
    return baseline


def write_baseline(path: Path, baseline: Baseline, replace: bool = False) -> None:
    """Write a baseline; a UsageError if this is not possible or would replace a file unasked."""
    require_new(path, replace)
    write_bytes(path, as_text(baseline.model_dump(mode="json")).encode())


def require_new(path: Path, replace: bool) -> None:
    """Raises UsageError for a file that exists and may not be replaced."""
    if path.exists() and not replace:
        raise UsageError(f"{path} exists; use --replace to overwrite it")


def judged_spec(cell: Cell, seed: int) -> TrialSpec:
    """The specification of a seed, with the defaults of today where none was given."""
    if "algorithm" not in cell.spec:
        raise UsageError(f"{cell.title} was not trained by esbench, so it has no specification")
    spec = without_settings({**cell.spec, "seed": seed}, cell.defaults)
    return stored_spec(spec, cell.title)


def other_code(cell: Cell) -> str:
    """That user code has changed since it trained the trials of a cell; empty if none has."""
    changed = [name for run in cell.runs for name in changed_since(run.description)]
    if any(map(is_of_main, changed)):
        return (
            "trained with code that a script or a notebook defines, which is other code in this "
            "process; expected it in a file such as mine.py, and trials of that in a new folder"
        )
    names = " and ".join(dict.fromkeys(changed))
    return names and f"trained with a different version of {names}; train again into a new folder"


def without_settings(spec: Table, names: Collection[str]) -> Table:
    """A specification without some settings of its algorithm."""
    algorithm = spec["algorithm"]
    kept = {key: value for key, value in algorithm["settings"].items() if key not in names}
    return {**spec, "algorithm": {**algorithm, "settings": kept}}


def _measured_random(spec: Json) -> float:
    environment = parse(EnvironmentSpec, spec["environment"], "specification", "environment")
    mean = float(np.mean(random_policy_returns(environment, RANDOM_EPISODES, seed=0)))
    if not math.isfinite(mean):
        raise UsageError(
            f"{environment.id}: {RANDOM_EPISODES} episodes of random actions have the mean return "
            f"{mean}; expected a finite one, or a score 'random' in the environment's file"
        )
    return mean
