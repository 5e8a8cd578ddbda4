"""The files of a leaderboard: one per cell, that is environment, algorithm, policy and settings.

A file has what it takes to train a seed again and to compare digests and scores. It ends with the
SHA-256 of its content, which finds an accidental edit; only training again proves a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from esbench.core.arrays import LARGEST_MEAN, Floats, float_digest
from esbench.core.errors import UsageError, unknown
from esbench.core.files import read_json, safe_name
from esbench.core.json_text import SEAL, Json, as_text, digest_of, sealed
from esbench.core.seeding import FIRST_TUNING_SEED
from esbench.core.settings import Settings, Table, parse
from esbench.environments.registration import atari_environments, without_alias
from esbench.grids.environment_files import environment_names
from esbench.grids.stored_spec import at_target
from esbench.grids.trial_spec import DEFAULT_LABEL, trainer_names
from esbench.results.baselines import OWN_MEAN, FrozenCell, Score
from esbench.results.cell import Cell, variant_of
from esbench.results.run import variety
from esbench.results.statistics.curves import Band, at_start, curve_band, policy_returns
from esbench.results.statistics.estimates import MIN_RUNS, tail_mean, tail_size
from esbench.results.statistics.quantile_bounds import QUANTILES, is_mean, mean_bounds
from esbench.store.generation_record import GenerationRecord
from esbench.store.origin import Origin

FORMAT: Final = 2
FILE_VARIANT_DIGITS: Final = 8
LEVELS: Final = 64  # of the best return so far
DIGESTS: Final = 32  # of generations; the first ones are all there
FIRST: Final = 8
DIGEST_DIGITS: Final = 12
_DIGEST: Final = re.compile(r"[\da-f]{64}")
_ITEM: Final = rf'(?:"\d+": "[\da-f]{{{DIGEST_DIGITS}}}"|[-+.\deE]+|null)'
_ONE_LINE: Final = re.compile(rf"([\[{{])\n\s*({_ITEM}(?:,\n\s*{_ITEM})*)\n\s*([\]}}])")
_FILE_NAME: Final = re.compile(rf"-[\da-f]{{{FILE_VARIANT_DIGITS}}}\.json$")
_Start = Annotated[str, Field(pattern=rf"^[\da-f]{{{DIGEST_DIGITS}}}$")]
_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0, le=LARGEST_MEAN)]
PLAYED: Final = ("episodes", "quantiles", "tail")
"""What follows from the held-out episodes."""
TRAINED: Final = ("generations", "env_steps", "best_center", "best_so_far")
"""What follows from training."""


@final
class BestSoFar(Settings):
    """The steps at which the best return so far reached some levels, [levels] each, ascending.

    A return is the mean of the unperturbed policy over five generations of training. The levels
    are even between the first and the largest one.
    """

    env_steps: tuple[Score, ...]
    returns: tuple[Score, ...]

    def steps_to(self, threshold: float) -> float:
        """The steps until a return of ``threshold`` or more, at most a level late; or infinity."""
        found = (x for x, y in zip(self.env_steps, self.returns, strict=True) if y >= threshold)
        return next(found, math.inf)


@final
class EntryRun(Settings):
    """What one training seed cost and how its final policy played.

    Attributes:
        stopped: why training ended before its budget, or null.
        digests: how the digests of ``spaced_generations`` begin; older files have those of the
            first generations in ``FrozenTrial``.
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
    digests: Annotated[dict[int, _Start], Field(exclude_if=lambda digests: not digests)] = Field(
        default_factory=dict
    )
    episodes: Annotated[int, Field(ge=1)]
    episodes_digest: str
    quantiles: Annotated[tuple[Score, ...], Field(min_length=9, max_length=9)]
    tail: Score
    one_episode: bool = False
    best_center: Score | None
    best_so_far: BestSoFar


@final
class EntryCurves(Settings):
    """Thinned curves of the unperturbed policy, one per seed in the order of ``Entry.runs``.

    Attributes:
        env_steps: of training before a policy, [points].
        returns: [seeds, points]; null where one is not known.
        ranks: the share of members that beat the policy, [seeds, points]; null for an agent.
    """

    env_steps: tuple[Score, ...]
    returns: tuple[tuple[Score | None, ...], ...]
    ranks: tuple[tuple[float | None, ...], ...]

    @classmethod
    def rounded(cls, env_steps: Floats, returns: Floats, ranks: Floats) -> EntryCurves:
        """Curves rounded for storage: env_steps [points]; returns and ranks [seeds, points]."""
        return cls(
            env_steps=rounded(env_steps),
            returns=tuple(map(rounded, returns)),
            ranks=tuple(rounded(row, digits=4) for row in ranks),
        )

    def band(self) -> Band:
        """The IQM of the returns over seeds with its pointwise interval."""
        return curve_band(np.array(self.env_steps), np.array(self.returns, dtype=np.float64))


class LeftOut(StrEnum):
    """Why the policies of a row are not published."""

    TOO_LARGE = "too large"
    NO_WEIGHTS = "no plain weights"


@final
class Entry(Settings):
    """One cell of a leaderboard; ``runs`` are in the order of ``cell.trials``.

    ``origins`` are those that the trials of the cell name. ``own_code`` has the versions of the
    user's own code, ``commands`` what trains the trials, ``inherited`` the settings of the
    algorithm that come from the environment's file, as trials record them. ``policies`` is the
    SHA-256 of the file of the final policies, if there is one, and ``policies_left_out`` why there
    will be none.
    """

    format: int = FORMAT
    cell: FrozenCell
    runs: tuple[EntryRun, ...]
    curves: EntryCurves | None
    origins: tuple[Origin, ...]
    own_code: dict[str, str]
    commands: tuple[str, ...]
    inherited: Annotated[tuple[str, ...], Field(exclude_if=lambda names: not names)] = ()
    policies: Annotated[str | None, Field(exclude_if=lambda digest: digest is None)] = None
    policies_left_out: Annotated[LeftOut | None, Field(exclude_if=lambda why: why is None)] = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds."""
        return tuple(trial.seed for trial in self.cell.trials)

    @property
    def gaps(self) -> int:
        """The number of seeds between the first and the last one that the file lacks."""
        return max(self.seeds) - min(self.seeds) + 1 - len(self.seeds)

    @property
    def scores(self) -> tuple[float, ...]:
        """The finite scores, one per seed."""
        return tuple(trial.score for trial in self.cell.trials if trial.score is not None)

    @property
    def spec(self) -> Table:
        """The specification of the trials without a seed."""
        return self.cell.spec or {}

    @property
    def name(self) -> str:
        """The cell and the variant of its settings, which no other file has."""
        return f"{self.cell.name} #{self.variant}"

    @property
    def variant(self) -> str:
        """The start of the hash of the specification without its seed."""
        return variant_of(self.spec)[:FILE_VARIANT_DIGITS]

    @property
    def algorithm(self) -> str:
        """The registered name of the algorithm, which its label need not be."""
        return str(self.spec["algorithm"]["name"])

    @property
    def is_agent(self) -> bool:
        """Whether an agent was trained, which makes its own policy."""
        return self.spec["policy"] is None

    @property
    def policies_state(self) -> str:
        """Whether the policies are published, or why they are not, in one or two words."""
        return "published" if self.policies else str(self.policies_left_out or "not yet")

    @property
    def why_unpublished(self) -> str:
        """Why there are no policies, and what to do, as a sentence."""
        reason = {
            LeftOut.TOO_LARGE: "its policies are too large to be published",
            LeftOut.NO_WEIGHTS: "its agent has no plain weights that could be published",
            None: "its policies are not published yet",
        }[self.policies_left_out]
        return f"{reason}; 'esbench verify' without --replay trains its seeds again"

    @property
    def file_name(self) -> str:
        """The name of the file, which is that of every entry with this specification."""
        policy = () if self.cell.policy == DEFAULT_LABEL else (self.cell.policy,)
        parts = self.cell.environment, self.cell.algorithm, *policy, self.variant
        return safe_name("-".join(parts)) + ".json"

    def to_cell(self) -> Cell:
        """The runs with their costs, scores and digests.

        Its own mean, which a row without a published score records, is no reference.
        """
        cell = self.cell.to_cell(self.origins)
        if self.cell.reference_source == OWN_MEAN:
            cell = replace(cell, frozen=cell.frozen.model_copy(update={"references": ()}))
        runs = tuple(
            replace(
                run,
                description={**run.description, "own_code": self.own_code},
                known_scores={**run.known_scores, "tail": own.tail},
                variety="one" if own.one_episode else "varied",
                env_steps=own.env_steps,
                generations=own.generations,
                wall_time_s=own.wall_time_s,
                cpu_time_s=own.cpu_time_s,
                stopped=own.stopped,
            )
            for run, own in zip(cell.runs, self.runs, strict=True)
        )
        return replace(cell, runs=runs, inherited=self.inherited)


def as_file(entry: Entry) -> bytes:
    """The content of the file of an entry; numbers and digests of one kind are one line."""
    text = as_text(sealed(entry.model_dump(mode="json")))
    joined = _ONE_LINE.sub(lambda found: found[1] + " ".join(found[2].split()) + found[3], text)
    return joined.encode()


def spaced_generations(count: int) -> list[int]:
    """The first generations and the last one, with gaps that grow; at most ``DIGESTS`` of them."""
    if count <= DIGESTS:
        return [*range(1, count + 1)]
    later = np.geomspace(FIRST, count, DIGESTS - FIRST + 1)
    return sorted({*range(1, FIRST), *(round(each) for each in later)})


def why_unrepeatable(spec: Json, seed: int, stopped: str | None) -> str:
    """Why a specification and a seed do not determine a trial, or empty."""
    if init := spec.get("init_from"):
        return f"starts from the policy of {init['trial']}"
    if stopped and not at_target(spec, stopped):
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
    known = content.get("format") if isinstance(content, dict) else None
    if known != FORMAT:
        expected = f"expected {FORMAT}, of a file by 'esbench submit', or the folder of a trial"
        raise UsageError(f"{path}: leaderboard format {known!r}; {expected}")
    recorded = content.pop(SEAL, None)
    if recorded != (actual := digest_of(content)):
        raise UsageError(
            f"{path}: {SEAL} is {recorded!r}, but that of its content is {actual!r}: it was "
            "edited; submit its trials again"
        )
    entry = parse(Entry, content, str(path))
    for problem in _problems(entry):
        raise UsageError(f"{path}: {problem}")
    if path.name != entry.file_name:
        raise UsageError(f"{path}: expected the name {entry.file_name} for its content")
    return entry


def _problems(entry: Entry) -> Iterator[str]:
    """Why the parts of an entry do not belong together; the first one counts."""
    cell, runs, curves, seeds = entry.cell, entry.runs, entry.curves, entry.seeds
    if cell.spec is None:
        yield "no specification; expected that of its trials"
    if cell.environment != (trained := entry.spec["environment"]["id"]):
        yield f"the environment {cell.environment!r}; expected that trained, {trained!r}"
    if cell.algorithm != entry.algorithm and cell.algorithm in trainer_names():
        yield f"the label {cell.algorithm!r} is another algorithm; expected one of your own"
    if not len(runs) == len(entry.scores) == len(seeds):
        yield f"{len(runs)} runs with {len(entry.scores)} scores; expected {len(seeds)} of each"
    if curves is not None:
        points = len(curves.env_steps)
        lengths = [[len(own) for own in each] for each in (curves.returns, curves.ranks)]
        if not points or lengths != [[points] * len(seeds)] * 2:
            yield f"expected curves of {len(seeds)} seeds with as many values as env_steps"
    for seed, run in zip(seeds, runs, strict=True):
        if reason := why_unrepeatable(entry.spec, seed, run.stopped):
            yield f"seed {seed} {reason}; expected a trial that its specification determines"
    settings = entry.spec["algorithm"]["settings"]
    if wrong := [name for name in entry.inherited if name not in settings]:
        yield f"inherited: {unknown('setting', wrong[0], settings)}"
    if entry.policies is not None and not _DIGEST.fullmatch(entry.policies):
        yield f"policies = {entry.policies!r}; expected a digest of 64 digits, or none"
    for trial, run in zip(cell.trials, runs, strict=True):
        digests = [*trial.first_digests, trial.last_digest or "", run.episodes_digest]
        if not all(map(_DIGEST.fullmatch, digests)):
            yield f"seed {trial.seed}: a digest is missing or short; expected 64 digits"
        planned = entry.spec["evaluation"].get("episodes", run.episodes)
        if run.episodes != planned:
            yield f"seed {trial.seed}: {run.episodes} episodes; expected {planned}, as specified"
        yield from _impossible(f"seed {trial.seed}", trial.score or 0.0, run)
    if len({*seeds}) < len(seeds) or len(seeds) < MIN_RUNS:
        yield f"seeds {', '.join(map(str, seeds))}; expected {MIN_RUNS} or more, each once"
    if any(trial.origin >= len(entry.origins) for trial in cell.trials):
        yield "a trial has an origin that the file lacks"


def _impossible(seed: str, score: float, run: EntryRun) -> Iterator[str]:
    """Why no sample of returns has the numbers of a run."""
    for what, value, count in (
        ("score", score, run.episodes),
        ("tail", run.tail, tail_size(run.episodes)),
    ):
        if is_mean(value, run.quantiles, run.episodes, count):
            continue
        bounds = mean_bounds(run.quantiles, run.episodes, count)
        expected = f"{bounds[0]:.10g} to {bounds[1]:.10g}" if bounds else "rising quantiles"
        yield (
            f"{seed}: {what} {value:.10g} of {run.episodes} returns with the quantiles "
            f"{', '.join(f'{each:g}' for each in run.quantiles)}; expected {expected}"
        )


def place_of(cell: Cell) -> tuple[str, float, float, float, int, str]:
    """The key that sorts cells by environment, the best score first.

    Equal scores are ordered by the lower end of the interval, the tail and the number of seeds.
    """
    low, tail = round(cell.interval[0], 6), round(cell.tail, 6)  # equal but for rounding
    return cell.environment, -cell.score, -low, -tail, -len(cell.runs), cell.name


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
    names_here = {entry.cell.environment for entry in entries}
    environments = [n if n in names_here else without_alias(n, {})[0] for n in environments]
    known_here = {*environment_names(), *atari_environments()}
    if missing := ({*environments} & known_here) - names_here:
        raise UsageError(f"the leaderboard has no row of {min(missing)}")
    known = {
        "environment": (environments, names_here),
        "algorithm": (algorithms, {n for e in entries for n in (e.cell.algorithm, e.algorithm)}),
    }
    for kind, (wanted, names) in known.items():
        for name in wanted:
            if name not in names:
                raise unknown(f"{kind} of the leaderboard", name, names)
    found = [
        entry
        for entry in entries
        if (not environments or entry.cell.environment in environments)
        and (not algorithms or {entry.cell.algorithm, entry.algorithm} & {*algorithms})
    ]
    if not found:
        what = f"{' or '.join(algorithms)} on {' or '.join(environments)}"
        raise UsageError(f"the leaderboard has no result of {what}; expected both in one row")
    return found


def rounded(values: npt.NDArray[np.float64], digits: int = 6) -> tuple[Any, ...]:
    """Numbers of as many digits as a curve needs; None where one is not finite."""
    return tuple(float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values)


def run_summary(result: Json, rows: Sequence[GenerationRecord], is_agent: bool) -> EntryRun:
    """The summary of a run with the content of its ``result.json`` and a row per generation."""
    center = policy_returns([row.center_return for row in rows])[:-1]
    known = center[np.isfinite(center)]
    steps = np.array([row.env_steps for row in rows], dtype=np.float64)
    return EntryRun(
        generations=len(rows),
        env_steps=rows[-1].env_steps,
        wall_time_s=float(result["wall_time_s"]),
        cpu_time_s=float(result["cpu_time_s"]),
        stopped=result["stopped"],
        digests={n: rows[n - 1].digest[:DIGEST_DIGITS] for n in spaced_generations(len(rows))},
        episodes=len(result["returns"]),
        episodes_digest=float_digest(result["returns"], result["lengths"]),
        quantiles=tuple(np.quantile(result["returns"], QUANTILES).tolist()),
        tail=tail_mean(result["returns"]),
        one_episode=variety(result) == "one",
        best_center=float(known.max()) if known.size else None,
        best_so_far=_best_so_far(steps, center, is_agent),
    )


def _best_so_far(env_steps: Floats, center: Floats, is_agent: bool) -> BestSoFar:
    if not np.isfinite(center).any():
        return BestSoFar(env_steps=(), returns=())
    best = np.maximum.accumulate(np.where(np.isfinite(center), center, -np.inf))
    levels = np.linspace(best[np.isfinite(best)][0], best[-1], LEVELS)
    places = np.unique(np.searchsorted(best, levels))
    steps = env_steps if is_agent else at_start(env_steps)
    return BestSoFar(env_steps=rounded(steps[places]), returns=rounded(best[places]))
