"""The files of a leaderboard: one per cell, that is environment, algorithm, policy and settings.

A file has what it takes to train a seed again and to compare digests and scores. It ends with the
SHA-256 of its content, which finds an accidental edit; only training again proves a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError, suggestion
from esbench.core.files import read_json, safe_name
from esbench.core.json_text import SEAL, Json, as_text, digest_of, sealed
from esbench.core.seeding import FIRST_TUNING_SEED
from esbench.core.settings import Settings, parse
from esbench.experiment.watchers import TargetReturn
from esbench.grids.trainers import trainer_names
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.gate.baselines import FrozenCell
from esbench.results.cell import variant_of
from esbench.results.statistics.curves import Band, curve_band
from esbench.results.statistics.estimates import MIN_RUNS
from esbench.store.provenance import Origin

FORMAT: Final = 2
QUANTILES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
FILE_VARIANT_DIGITS: Final = 8
SLACK: Final = 1e-9  # of a comparison of means that were added in different orders
_NAMES: Final = ("environment", "algorithm")
_NUMBERS: Final = re.compile(r"\[\n\s*((?:[-+.\deE]+|null)(?:,\n\s*(?:[-+.\deE]+|null))*)\n\s*\]")
_FILE_NAME: Final = re.compile(rf"-[\da-f]{{{FILE_VARIANT_DIGITS}}}\.json$")
_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0)]


@final
class BestSoFar(Settings):
    """The steps at which the best return so far reached some levels, [levels] each, ascending.

    A return is the mean of the unperturbed policy over five generations of training. The levels
    are even between the first and the largest one.
    """

    env_steps: tuple[float, ...]
    returns: tuple[float, ...]

    def steps_to(self, threshold: float) -> float:
        """The steps until a return of ``threshold`` or more, at most a level late; or infinity."""
        found = (x for x, y in zip(self.env_steps, self.returns, strict=True) if y >= threshold)
        return next(found, math.inf)


@final
class Run(Settings):
    """What one training seed cost and how its final policy played.

    Attributes:
        stopped: why training ended before its budget, or null.
        episodes: held-out episodes.
        episodes_digest: SHA-256 of their returns and lengths, as little-endian float64.
        quantiles: of their returns, at ``QUANTILES``.
        tail: mean of the worst tenth of them.
        one_episode: whether they are all the same one, because the environment is deterministic.
        best_center: the largest mean return of the unperturbed policy over five generations of
            training; null if there is none.
        best_so_far: how it rose to that; empty if there is none.
    """

    generations: _Count
    env_steps: _Count
    wall_time_s: _Seconds
    cpu_time_s: _Seconds
    stopped: str | None
    episodes: Annotated[int, Field(ge=1)]
    episodes_digest: str
    quantiles: Annotated[tuple[float, ...], Field(min_length=9, max_length=9)]
    tail: float
    one_episode: bool = False
    best_center: float | None
    best_so_far: BestSoFar


@final
class Curves(Settings):
    """Thinned curves of the unperturbed policy, one per seed in the order of ``Entry.runs``.

    Attributes:
        env_steps: of training before a policy, [points].
        returns: [seeds, points]; null where one is not known.
        ranks: the share of members that beat the policy, [seeds, points]; null for an agent.
    """

    env_steps: tuple[float, ...]
    returns: tuple[tuple[float | None, ...], ...]
    ranks: tuple[tuple[float | None, ...], ...]

    @classmethod
    def rounded(cls, env_steps: Floats, returns: Floats, ranks: Floats) -> Curves:
        """Curves with as many digits as they need, of [points] and twice [seeds, points]."""
        return cls(
            env_steps=rounded(env_steps),
            returns=tuple(map(rounded, returns)),
            ranks=tuple(rounded(row, digits=4) for row in ranks),
        )

    def fits(self, runs: int) -> bool:
        """Whether there are points, and one curve of each kind per run with a value for each."""
        points = len(self.env_steps)
        return points > 0 and all(
            [len(curve) for curve in curves] == [points] * runs
            for curves in (self.returns, self.ranks)
        )

    def bands(self) -> tuple[Band, Band]:
        """The IQM over seeds with its pointwise interval, of the returns and of the ranks."""
        grid = np.array(self.env_steps)
        returns, ranks = (np.array(each, dtype=np.float64) for each in (self.returns, self.ranks))
        return curve_band(grid, returns), curve_band(grid, ranks)


@final
class Entry(Settings):
    """One cell of a leaderboard; ``runs`` are in the order of ``cell.trials``.

    ``origins`` are those that the trials of the cell name. ``own_code`` has the versions of the
    user's own code, ``commands`` what trains the trials.
    """

    format: int = FORMAT
    cell: FrozenCell
    runs: tuple[Run, ...]
    curves: Curves | None
    origins: tuple[Origin, ...]
    own_code: dict[str, str]
    commands: tuple[str, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds."""
        return tuple(trial.seed for trial in self.cell.trials)

    @property
    def scores(self) -> tuple[float, ...]:
        """The finite scores, one per seed."""
        return tuple(trial.score for trial in self.cell.trials if trial.score is not None)

    @property
    def name(self) -> str:
        """The cell and the variant of its settings, which no other file has."""
        return f"{self.cell.name} #{self.variant}"

    @property
    def variant(self) -> str:
        """The start of the hash of the specification without its seed."""
        return variant_of(self.cell.spec or {})[:FILE_VARIANT_DIGITS]

    @property
    def algorithm(self) -> str:
        """The registered name of the algorithm, which its label need not be."""
        spec: dict[str, Any] = self.cell.spec or {}
        return str(spec["algorithm"]["name"])

    @property
    def environment(self) -> str:
        """The name of the environment that the specification trains."""
        spec: dict[str, Any] = self.cell.spec or {}
        return str(spec["environment"]["id"])

    @property
    def file_name(self) -> str:
        """The name of the file, which is that of every entry with this specification."""
        policy = () if self.cell.policy == DEFAULT_LABEL else (self.cell.policy,)
        parts = self.cell.environment, self.cell.algorithm, *policy, self.variant
        return safe_name("-".join(parts)) + ".json"


def as_file(entry: Entry) -> bytes:
    """The content of the file of an entry; a list of numbers is one line."""
    content = entry.model_dump(mode="json")
    text = as_text(sealed(content))
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text).encode()


def why_unrepeatable(spec: Json, seed: int, stopped: str | None) -> str:
    """Why a specification and a seed do not determine a trial, or empty."""
    target = spec["budget"]["target_return"]
    if init := spec.get("init_from"):
        return f"starts from the policy of {init['trial']}"
    if stopped and (target is None or not TargetReturn(target).stopped(stopped)):
        return f"was stopped by a callback ({stopped})"
    if seed >= FIRST_TUNING_SEED:
        return f"has the seed {seed}; those from {FIRST_TUNING_SEED} on are for tuning"
    return ""


def read_entry(path: Path) -> Entry:
    """Read one file; UsageError if there is none, or as ``checked_entry``."""
    try:
        return checked_entry(read_json(path), path)
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; expected a file of 'esbench submit'") from None


def checked_entry(content: Any, path: Path) -> Entry:
    """The entry that is the content of a file.

    UsageError if it is of another format or kind, edited or renamed, or if a trial cannot be
    repeated.
    """
    if isinstance(content, dict) and "spec" in content:
        raise UsageError(
            f"{path} is a file of a trial; expected its folder, or a file of 'esbench submit'"
        )
    known = content.get("format") if isinstance(content, dict) else None
    if known != FORMAT:
        expected = f"expected {FORMAT}, of a file by 'esbench submit'"
        raise UsageError(f"{path}: leaderboard format {known!r}; {expected}")
    recorded = content.pop(SEAL, None)
    if recorded != (actual := digest_of(content)):
        raise UsageError(
            f"{path}: {SEAL} is {recorded!r}, but that of its content is {actual!r}: it was "
            "edited; submit its trials again"
        )
    entry = parse(Entry, content, str(path))
    if entry.cell.spec is None:
        raise UsageError(f"{path} has no specification; expected that of its trials")
    if entry.cell.environment != (trained := entry.environment):
        raise UsageError(
            f"{path} names the environment {entry.cell.environment!r}; expected {trained!r}, that "
            "of its specification"
        )
    label = entry.cell.algorithm
    if label != (name := entry.algorithm) and label in trainer_names():
        raise UsageError(
            f"{path} has the label {label!r}, which is another algorithm; expected {name!r} or a "
            "label of your own"
        )
    trials = entry.cell.trials
    if len(entry.runs) != len(trials) or len(entry.scores) != len(trials):
        raise UsageError(
            f"{path}: {len(entry.runs)} runs and {len(entry.scores)} finite scores of "
            f"{len(trials)} trials; expected one of each per trial"
        )
    if entry.curves is not None and not entry.curves.fits(len(trials)):
        raise UsageError(
            f"{path}: expected curves of {len(trials)} seeds with as many values as env_steps"
        )
    for trial, score, run in zip(trials, entry.scores, entry.runs, strict=True):
        bounds = run.quantiles[0], run.tail, score, run.quantiles[-1]
        if any(low - high > SLACK * max(1.0, abs(high)) for low, high in pairwise(bounds)):
            shown = ", ".join(f"{bound:.10g}" for bound in bounds)
            raise UsageError(
                f"{path}: seed {trial.seed} has the lowest return, the tail, the score and the "
                f"highest return {shown}: expected an ascending order; its trials do not have this "
                "score"
            )
        if reason := why_unrepeatable(entry.cell.spec, trial.seed, run.stopped):
            raise UsageError(
                f"{path}: seed {trial.seed} {reason}; expected a trial that its specification "
                "determines"
            )
    if len({*entry.seeds}) < len(trials) or len(trials) < MIN_RUNS:
        seeds = ", ".join(map(str, entry.seeds))
        raise UsageError(f"{path} has seeds {seeds}; expected {MIN_RUNS} or more, each once")
    if any(trial.origin >= len(entry.origins) for trial in trials):
        raise UsageError(f"{path}: a trial has an origin that the file lacks")
    if path.name != entry.file_name:
        raise UsageError(f"{path}: expected the name {entry.file_name} for its content")
    return entry


def is_leaderboard(path: Path) -> bool:
    """Whether a path is a folder with files of entries, by their names alone."""
    return path.is_dir() and any(_FILE_NAME.search(each.name) for each in path.glob("*.json"))


def read_leaderboard(folder: Path) -> list[Entry]:
    """The entries of a folder, sorted by file name, or of one file.

    UsageError if there is none or a wrong one.
    """
    if folder.is_file():
        return [read_entry(folder)]
    found = [read_entry(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        what = "no file of a leaderboard in" if folder.is_dir() else "no folder"
        raise UsageError(
            f"{what} {str(folder)!r}; expected one that 'esbench submit' has written, such as "
            "results/leaderboard in a checkout of esbench"
        )
    return found


def selected(
    entries: Sequence[Entry], environments: Collection[str] = (), algorithms: Collection[str] = ()
) -> list[Entry]:
    """The entries of some environments and algorithms, by default of all.

    An algorithm is named by its label or by its own name, which stands for all of its labels.

    UsageError, with the nearest name, if there is no such environment or algorithm, or if there is
    no entry of both.
    """
    labels = {name for e in entries for name in (e.cell.algorithm, e.algorithm)}
    names = [{entry.cell.environment for entry in entries}, labels]
    for what, known, wanted in zip(_NAMES, names, (environments, algorithms), strict=True):
        for each in wanted:
            if each not in known:
                near = suggestion(each, known)
                raise UsageError(f"no {what} {each!r} in the leaderboard; {near}")
    of_algorithms = [
        entry
        for entry in entries
        if not algorithms or {entry.cell.algorithm, entry.algorithm} & {*algorithms}
    ]
    found = [e for e in of_algorithms if not environments or e.cell.environment in environments]
    if entries and not found:
        others = ", ".join(sorted({entry.cell.environment for entry in of_algorithms}))
        raise UsageError(
            f"no result of {' or '.join(algorithms)} on {' or '.join(environments)} in the "
            f"leaderboard; it has {others}"
        )
    return found


def rounded(values: npt.NDArray[np.float64], digits: int = 6) -> tuple[Any, ...]:
    """Numbers of as many digits as a curve needs; None where one is not finite."""
    return tuple(float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values)
