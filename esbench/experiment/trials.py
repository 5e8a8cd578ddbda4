"""The trials of a grid, each with its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from esbench.core.arrays import State
from esbench.core.errors import DamagedTrialError, UsageError, require_integer
from esbench.core.files import DISTINCT_LABELS, require_folder, safe_name
from esbench.core.json_text import Json
from esbench.core.settings import MOST, Table, parse
from esbench.core.units import counted
from esbench.core.user_code import script_name
from esbench.grids.compose import compose_grid
from esbench.grids.environment_files import RandomScore, Scores, frozen_scores
from esbench.grids.expand import Labels, expand
from esbench.grids.grid_file import Grid
from esbench.grids.shards import divide, parse_shard, planned_cost
from esbench.grids.trial_spec import DEFAULT_LABEL, StartSpec, TrialSpec, cell_name
from esbench.results.policy_files import find_policy, is_row_name
from esbench.store.find_trials import check_format
from esbench.store.generation_record import GenerationRecord
from esbench.store.origin import mixture
from esbench.store.own_code import changed_since
from esbench.store.provenance import command, now
from esbench.store.trial_folder import Status, TrialFolder

RUNS: Final = Path("results/runs")


@final
@dataclass(frozen=True)
class Start:
    """The checkpoint and the records from which training continues."""

    history: list[GenerationRecord]  # up to the checkpoint
    state: State | None  # of the trainer; None at the beginning
    records_members: bool  # whether the members' data are stored
    notes: list[str]  # to display with the result


@final
@dataclass(frozen=True)
class Trial:
    """One trial of a grid and its folder."""

    spec: TrialSpec
    labels: Labels
    folder: TrialFolder
    extend: bool = False  # continue a stored trial that has a smaller budget
    keep: int = 1  # checkpoints to keep, evenly spread over the budget, the last included
    record_members: bool = False  # store what every member did
    inherited: tuple[str, ...] = ()  # algorithm settings from the environment's file
    scores: Scores | None = None  # frozen scores to record, because ``envs/`` does not have them

    @property
    def status(self) -> Status:
        """The status of the folder; "partial" if a finished trial is to be extended."""
        status = self.folder.status
        return "partial" if status == "done" and not self.is_done else status

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        done = self.folder.is_done
        with contextlib.suppress(DamagedTrialError):  # reported when the trial is run
            return done and not (self.extend and self.folder.is_smaller(self.spec))
        return done

    def settled(self) -> Trial:
        """The trial with an absolute path, because user code may change the current folder."""
        return replace(self, folder=TrialFolder(self.folder.path.absolute()))

    def check(self) -> None:
        """Raises UsageError if the folder holds another specification."""
        self.folder.check(self.spec, self.extend)

    def keeps(self, history: Sequence[GenerationRecord]) -> bool:
        """Whether the last generation is the first to reach one of ``keep`` parts of the budget.

        The end of the budget does not count, because its checkpoint is always stored.
        """
        before, after = [0, 0, *(self._parts(record) for record in history[-2:])][-2:]
        return before < after < self.keep

    def _parts(self, record: GenerationRecord) -> int:
        budget = self.spec.budget
        done = record.env_steps * self.keep // budget.env_steps
        if budget.generations:
            done = max(done, record.generation * self.keep // budget.generations)
        return done

    def begin(self, about: Json) -> Start:
        """Prepare the locked folder for a trainer that runs where ``about`` says, and resume.

        UsageError as ``TrialFolder.begin``.
        """
        folder = self.folder
        description = {
            "labels": self.labels,
            "inherited": list(self.inherited),
            "defaults": list(self.spec.algorithm.defaults),
            "created": now(),
            **about,
            "command": command(),
        }
        late = self.record_members and not folder.records_members
        history = folder.begin(self.spec, description, self.extend, self.record_members)
        self.record_scores()
        notes = [f"started with {other}"] if (other := self.changed_code) else []
        if code := mixture([folder.description()]).get("esbench"):
            notes.append(f"trained by esbench {code}")
        if late and history:
            notes.append(f"members recorded from generation {len(history) + 1}")
        return Start(history, folder.load_checkpoint(), folder.records_members, notes)

    @property
    def changed_code(self) -> str:
        """What the trial was trained with that is another version here; empty if nothing."""
        changed = " and ".join(changed_since(self.folder.description()))
        return changed and f"a different version of {changed}"

    @property
    def frozen(self) -> Scores:
        """The frozen scores of the environment: those of its file and the measured random one."""
        environment = self.spec.as_json()["environment"]
        given = self.scores or frozen_scores(environment)
        recorded = self.folder.description().get("scores") or {}
        if given.random or not recorded.get("random"):
            return given
        known = parse(Scores, recorded, str(self.folder.path), "scores")
        return given.model_copy(update={"random": known.random})

    def record_scores(self, random: RandomScore | None = None) -> None:
        """Record the frozen scores of the environment, which tables and figures read.

        Those of ``envs/`` are not recorded. ``random`` is the measured score of random actions, for
        an environment without one.
        """
        scores = (
            self.frozen if random is None else self.frozen.model_copy(update={"random": random})
        )
        is_known = scores == frozen_scores(self.spec.as_json()["environment"])
        self.folder.record_scores(None if is_known else scores.model_dump(mode="json"))

    @property
    def name(self) -> str:
        """Environment, algorithm, policy and seed as text."""
        label = cell_name(self.labels["algorithm"], self.labels["policy"])
        return f"{self.labels['environment']} {label} seed {self.spec.seed}"


def open_grid(
    grid: str | Table | None,
    *,
    out: Path | None = None,
    extend: bool = False,
    keep: int = 1,
    record: bool = False,
    shard: str | None = None,
    **changes: Any,
) -> tuple[Path, list[Trial]]:
    """The output folder of a grid and its trials, checked against what the folder holds.

    ``grid`` and ``changes`` are those of ``compose_grid``; the others are those of ``esbench.run``.

    Raises:
        UsageError: the input is wrong, or the folder holds other trials. Nothing is written.
    """
    require_integer("keep", keep, 1, MOST)
    part = None if shard is None else parse_shard(shard)
    typed, source = compose_grid(grid, **changes)
    if out is None:
        name = typed.name
        out = RUNS / name if part is None else shards_folder(name) / part.folder(name)
    trials = checked_trials(typed, out, source, extend)
    if record:
        trials = recording_members(trials)
    if part is not None:
        shards = divide([planned_cost(trial.spec) for trial in trials], part.count)
        trials = [trials[index] for index in shards[part.number - 1]]
    return out, [replace(trial, keep=keep) for trial in trials]


def require_same_code(trials: Sequence[Trial]) -> None:
    """Raises UsageError if user code has changed since it trained a finished trial.

    The running script may change, because an edit of what it does with results is no reason to
    train again; the line of a finished trial names it.
    """
    changed: dict[str, list[Trial]] = {}
    for trial in trials:
        with contextlib.suppress(DamagedTrialError):  # reported when the trial is run
            for name in changed_since(trial.folder.description()) if trial.is_done else ():
                changed.setdefault(name, []).append(trial)
    for name in ("__main__", script_name()):
        changed.pop(name, None)
    if not changed:
        return
    stale = {trial.folder.path for each in changed.values() for trial in each}
    first = min(stale)
    others = f" and {counted(len(stale) - 1, 'more folder')}" if len(stale) > 1 else ""
    raise UsageError(
        f"the code of finished trials has changed: {', '.join(sorted(changed))}. Nothing was "
        f"trained; give another output folder, undo the edit, or remove {first}{others} to train "
        "again"
    )


def shards_folder(grid: str) -> Path:
    """The default folder of the output folders of a grid's shards."""
    return RUNS / f"{grid}-shards"


def checked_trials(grid: Grid, root: Path, source: str, extend: bool = False) -> list[Trial]:
    """``grid_trials``, checked against what their output folder holds; UsageError as above."""
    require_output_folder(root)
    trials = [replace(trial, extend=extend) for trial in grid_trials(grid, root, source)]
    check_format(root)
    for trial in trials:
        with contextlib.suppress(DamagedTrialError):  # reported when the trial is run
            trial.check()
    return trials


def grid_trials(grid: Grid, out: Path, source: str) -> list[Trial]:
    """The trials of a grid, with folders below ``out``; UsageError if two have the same folder."""
    owners: dict[Path, Trial] = {}
    for one in expand(grid, source, latest_start(grid.init_from)):
        trial = trial_at(one.spec, **one.labels, out=out)
        trial = replace(trial, inherited=one.inherited, scores=one.scores)
        other = owners.setdefault(trial.folder.path, trial)
        if other is not trial:
            raise UsageError(
                f"{source}: {other.name} and {trial.name} would share the folder "
                f"{trial.folder.path}; {DISTINCT_LABELS}"
            )
    return list(owners.values())


def latest_start(path: str | Path | None) -> StartSpec | None:
    """The policy of a row, or the latest checkpoint of a trial; None without a path.

    UsageError if there is none, or it is that of an agent.
    """
    if path is None:
        return None
    if is_row_name(str(path)):
        return _start_of_row(str(path))
    folder = TrialFolder(Path(path))
    try:
        generation = folder.saved_generation()
        if not generation:
            expected = "a trial of a search" if folder.is_done else "a trained trial"
            raise UsageError(f"{folder.path} has no checkpoint; expected {expected}")
        digest = folder.records()[generation - 1].digest
    except UsageError as error:
        raise UsageError(f"init_from = {str(path)!r}: {error}") from None
    return StartSpec(trial=str(folder.path), generation=generation, digest=digest)


def _start_of_row(name: str) -> StartSpec:
    try:
        found = find_policy(name)
        if found.entry.is_agent:
            raise UsageError(f"{found.entry.algorithm} is an agent; expected a row of a search")
    except UsageError as error:
        raise UsageError(f"init_from = {name!r}: {error}") from None
    return StartSpec(trial=found.name, generation=found.generation, digest=found.digest)


def trial_at(spec: TrialSpec, environment: str, algorithm: str, policy: str, out: Path) -> Trial:
    """A trial with these labels; labels and seed name its folder below ``out``."""
    parts = [environment, algorithm, *([] if policy == DEFAULT_LABEL else [policy])]
    path = out.joinpath(*(safe_name(part) for part in parts), f"seed-{spec.seed}")
    labels = {"environment": environment, "algorithm": algorithm, "policy": policy}
    return Trial(spec, labels, TrialFolder(path))


def recording_members(trials: Sequence[Trial]) -> list[Trial]:
    """The trials of a grid; searches store what their members do. UsageError without a search."""
    found = [replace(trial, record_members=not trial.spec.is_agent) for trial in trials]
    if found and not any(trial.record_members for trial in found):
        name = trials[0].labels["algorithm"]
        raise UsageError(f"{name} is an agent, which has no members to record; expected a search")
    return found


def require_output_folder(root: Path) -> None:
    """Raises UsageError if an output folder is a file, or in the folder of a trial."""
    require_folder(root)
    for folder in (resolved := root.resolve(), *resolved.parents):
        if TrialFolder(folder).has_begun:
            raise UsageError(
                f"{root} is in the folder of the trial {folder.name}; expected an output folder"
            )
