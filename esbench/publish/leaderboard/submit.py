"""Makes the files of a leaderboard from finished trials, and refuses trials that do not add up."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.files import require_folder
from esbench.core.json_text import parse_json
from esbench.core.units import counted
from esbench.core.user_code import require_trusted
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.published_policy import arrays_of, published_policy
from esbench.experiment.stored_trainer import stored_trainer
from esbench.grids.trial_spec import TrialSpec
from esbench.results.baselines import OWN_MEAN, FrozenTrial, freeze_cell
from esbench.results.cell import Cell, require_comparable
from esbench.results.entries import (
    Entry,
    EntryCurves,
    EntryRun,
    LeftOut,
    as_file,
    checked_entry,
    read_entry,
    run_summary,
    why_unrepeatable,
)
from esbench.results.policy_files import Arrays, policies_file, read_policies
from esbench.results.policy_files import as_file as policies_as_file
from esbench.results.sources import done_cells
from esbench.results.statistics.curves import align, on_grid
from esbench.store.generation_record import GenerationRecord
from esbench.store.module_files import OWN_FILES
from esbench.store.origin import (
    Origin,
    changes,
    differences_within,
    mixture,
    origin_of,
    place_in,
    user_code_of,
)
from esbench.store.outputs import only_writer, write_bytes
from esbench.store.provenance import provenance
from esbench.store.trial_folder import TrialFolder

CURVE_POINTS: Final = 50
# Options that change no result, and whether they have a value.
NO_RESULT: Final = {
    **dict.fromkeys(("--out", "--workers", "--at-once", "--keep", "--engine", "--address"), True),
    **dict.fromkeys(("--track", "--record", "--episode-timeout", "--trial-timeout"), True),
    "--quiet": False,
}


_EXTENDED: Final = ("seeds", "policies", "policies_left_out")


class SubmitAction(StrEnum):
    """What submitting did with a file."""

    WRITTEN = "written"
    EXTENDED = "extended"
    UNCHANGED = "unchanged"


def submit(
    root: Path, out: Path, trusted: bool = False, tell: Callable[[str], None] | None = None
) -> dict[Path, SubmitAction]:
    """Write one file to ``out`` per cell of the trials below ``root``; all cells are checked first.

    Final policies play their held-out episodes again where versions and processor are those of
    training. Seeds that the file of a cell lacks are added to it. ``trusted`` is whether the user
    trusts the code that the trials name. ``tell`` is given how many cells are checked.

    Raises:
        UsageError: a trial is not done, is damaged, went far beyond its budget, or does not agree
            with itself; there are too few seeds; this version does not understand a specification;
            a seed of the file that exists has other results; or a file cannot be written. Nothing
            is written.
    """
    found = done_cells(root)
    require_comparable(found)
    require_trusted([cell.spec for cell in found], root, trusted)
    require_folder(out)
    with WorkerPool() as pool:
        entries: list[tuple[Entry, dict[int, Arrays]]] = []
        for cell in found:
            if tell:
                tell(f"{len(entries)} of {counted(len(found), 'row')}")
            entries.append(make_entry(cell, pool))
    with only_writer(out):
        planned = _all_planned(entries, out)
        for _, contents in planned.values():
            for path, content in contents.items():
                write_bytes(path, content)
    return {path: action for path, (action, _) in planned.items()}


def make_entry(cell: Cell, pool: Engine) -> tuple[Entry, dict[int, Arrays]]:
    """Check the done trials of a cell and freeze them, and their policies by seed.

    UsageError as ``submit``.
    """
    played = {run.seed: check_trial(run.folder, pool) for run in cell.runs}
    left_out = next((each for each in played.values() if isinstance(each, LeftOut)), None)
    origins: list[Origin] = []
    frozen = freeze_cell(cell, origins)
    in_run = {"first_digests": (), "stopped": None}  # which ``EntryRun`` has
    trials = tuple(each.model_copy(update=in_run) for each in frozen.trials)
    code = {k: str(v) for each in cell.descriptions for k, v in user_code_of(each).items()}
    commands = dict.fromkeys(
        command_of_results(each["command"]) for each in cell.descriptions if each.get("command")
    )
    entry = Entry(
        cell=frozen.model_copy(update={"trials": trials}),
        runs=tuple(
            run_summary(run.folder.result(), run.folder.records(), run.is_agent)
            for run in cell.runs
        ),
        curves=_curves(cell),
        origins=tuple(origins),
        own_code=dict(sorted(code.items())),
        commands=tuple(commands),
        inherited=cell.inherited,
        policies_left_out=left_out,
    )
    return entry, {seed: found for seed, found in played.items() if isinstance(found, dict)}


def cautions(entry: Entry) -> list[str]:
    """What keeps others from training an entry again, one sentence each."""
    found = []
    if any((origin.git_commit or "+").endswith("+") for origin in entry.origins):
        found.append("the commit is unknown, or files had changed; train from a clean commit")
    files = [name for name, version in entry.own_code.items() if version.startswith(OWN_FILES)]
    if code := ", ".join(sorted(files)):
        found.append(f"trained with your own code ({code}); this row can be verified only with it")
    if entry.gaps:
        missing = counted(entry.gaps, "seed")
        found.append(f"{missing} between the first and the last one missing; add them or say why")
    return [f"{entry.cell.name}: {caution}" for caution in found]


def command_of_results(command: str) -> str:
    """A command without the options that change no result, so without the folders of a machine."""
    words = iter(shlex.split(command.replace("python -m esbench", "esbench", 1)))
    kept = []
    for word in words:
        if (option := word.partition("=")[0]) not in NO_RESULT:
            kept.append(word)
        elif NO_RESULT[option] and option == word:
            next(words, "")
    return shlex.join(kept)


def check_trial(trial: TrialFolder, pool: Engine) -> Arrays | LeftOut | None:
    """The arrays of the final policy of a trial, with its held-out episodes, or why not.

    None if the policy has other returns here, with other versions or on another processor.
    UsageError if specification, rows, checkpoint and result of a trial do not agree.
    """
    spec, result, description = trial.spec(), trial.result(), trial.description()
    if reason := why_unrepeatable(description["spec"], spec.seed, result.get("stopped")):
        raise UsageError(f"{trial.path} {reason}; expected a trial that others can train again")
    if code := mixture([description]).get("esbench"):
        raise UsageError(f"{trial.path} was trained by esbench {code}; expected one of them")
    returns, rows = result.get("returns") or [], trial.records()
    if result["score"] is None or None in returns:
        raise UsageError(f"{trial.path}: the score is not finite; expected finite returns")
    last = rows[-1] if rows else None
    for what, seen, expected in (
        ("hash of trial.json", description.get("hash"), spec.hash),
        ("hash of result.json", result.get("hash"), spec.hash),
        ("number of held-out returns", len(returns), spec.evaluation.episodes),
        ("number of held-out lengths", len(result.get("lengths") or []), len(returns)),
        ("score", result["score"], float(np.mean(returns)) if returns else None),
        ("last digest of the rows", last and last.digest, result.get("digest")),
        ("number of rows", len(rows), result.get("generations")),
        ("number of steps of the rows", last and last.env_steps, result["env_steps"]),
    ):
        if seen != expected:
            raise UsageError(f"{trial.path}: the {what} is {seen!r}; expected {expected!r}")
    _check_budget(trial, spec, rows)
    return _check_episodes(trial, spec, pool)


def _check_budget(trial: TrialFolder, spec: TrialSpec, rows: Sequence[GenerationRecord]) -> None:
    """Raises UsageError if training did not end in the generation that spends the budget."""
    if spec.is_agent:
        return  # an agent counts its own steps
    budget, ended = spec.budget, trial.result().get("stopped")
    steps = [0, *(row.env_steps for row in rows)]
    if len(rows) > 1 and steps[-2] >= budget.env_steps:
        seen = f"training goes on after {steps[-2]} steps"
    elif steps[-1] < budget.env_steps and not ended and len(rows) != budget.generations:
        seen = f"training ends after {steps[-1]} steps"
    else:
        return
    raise UsageError(f"{trial.path}: {seen}; expected the end at the budget of {budget.env_steps}")


def _check_episodes(trial: TrialFolder, spec: TrialSpec, pool: Engine) -> Arrays | LeftOut | None:
    """As ``check_trial``: UsageError if the policy does not get the recorded returns, here."""
    if spec.is_agent and trial.load_checkpoint() is None:
        return LeftOut.NO_WEIGHTS  # an agent without state_dict
    result, description = trial.result(), trial.description()
    with stored_trainer(trial, pool) as trainer:
        if (reached := trainer.progress.generation) != result["generations"]:
            raise UsageError(
                f"{trial.path}: the checkpoint is of generation {reached}; expected the last"
            )
        arrays = arrays_of(trainer)
        if isinstance(arrays, LeftOut):
            score = trainer.evaluate()
        else:
            score = published_policy(spec, arrays).play(pool)
    here = origin_of(provenance(spec))  # now that its environment is registered
    excused = differences_within(description) or changes(origin_of(description), here)
    if not score.is_identical(result) and not excused:
        raise UsageError(
            f"{trial.path}: the final policy scores {score.mean:g} in the held-out episodes "
            f"on the versions and the processor of training; expected {result['score']:g} and the "
            "returns in result.json"
        )
    if isinstance(arrays, LeftOut):
        return arrays
    if not score.is_identical(result):
        return None
    episodes = {name: np.array(result[name], np.float64) for name in ("returns", "lengths")}
    return arrays | episodes


def _all_planned(
    entries: Sequence[tuple[Entry, dict[int, Arrays]]], out: Path
) -> dict[Path, tuple[SubmitAction, dict[Path, bytes]]]:
    """The action for the file of each entry, and the content of the files to write, by path.

    UsageError as ``submit``, with every file that differs.
    """
    planned, refused = {}, {}
    for entry, policies in entries:
        try:
            planned[out / entry.file_name] = _planned(entry, policies, out)
        except UsageError as error:
            refused[entry.file_name] = error
    if refused:
        first, *others = refused
        also = f"; refused as well: {', '.join(others)}" if others else ""
        raise UsageError(f"{refused[first]}{also}")
    return planned


def _planned(
    entry: Entry, policies: dict[int, Arrays], out: Path
) -> tuple[SubmitAction, dict[Path, bytes]]:
    path = out / entry.file_name
    beside = policies_file(entry, out)
    known = read_entry(path) if path.exists() else None
    if known is not None:
        try:
            extended = with_more_seeds(known, entry)
        except UsageError as error:
            raise UsageError(f"{path}: {error} (remove the file to replace it)") from None
        left_out = entry.policies_left_out or known.policies_left_out
        entry = known if extended.seeds == known.seeds else extended
        entry = entry.model_copy(update={"policies_left_out": left_out})
        if known.policies is not None:
            policies = read_policies(known, beside) | policies
    contents: dict[Path, bytes] = {}
    if policies:
        contents[beside] = policies_as_file(entry.name, policies)
        digest = hashlib.sha256(contents[beside]).hexdigest()
        entry = entry.model_copy(update={"policies": digest})
    contents[path] = as_file(entry)
    checked_entry(parse_json(contents[path]), path)
    if known is None:
        return SubmitAction.WRITTEN, contents
    if any(getattr(entry, name) != getattr(known, name) for name in _EXTENDED):
        return SubmitAction.EXTENDED, contents
    return SubmitAction.UNCHANGED, {}


def _curves(cell: Cell) -> EntryCurves | None:
    curves = [run.curve for run in cell.runs]
    if min(len(curve["env_steps"]) for curve in curves) < 2:
        return None
    totals, after = [curve["env_steps"] for curve in curves], cell.is_agent
    name = "center_rank_fraction"
    ranks = [run.folder.columns(name)[name] for run in cell.runs]
    grid, returns = on_grid(
        totals, [curve["center_return"] for curve in curves], CURVE_POINTS, after=after
    )
    _, shares = on_grid(totals, ranks, CURVE_POINTS, after=after)
    return EntryCurves.rounded(grid, returns, shares)


def with_more_seeds(known: Entry, new: Entry) -> Entry:
    """``known`` with the seeds of ``new`` that it lacks; both have the same specification.

    Raises:
        UsageError: a seed of both has other results, or the two have other labels or user code.
    """
    for what, here, there in (
        ("labels", new.cell.labels, known.cell.labels),
        ("user code", new.own_code, known.own_code),
    ):
        if here != there:
            raise UsageError(f"the {what} is {here}; expected that of the file, {there}")
    before, after = _seeds(known), _seeds(new)
    for seed in sorted(before.keys() & after.keys()):
        now, then = (_results(*found[seed][:2]) for found in (after, before))
        if now != then:
            raise UsageError(f"seed {seed} has {now}; expected the results of the file, {then}")
    seeds = dict(sorted((after | before).items()))
    origins: list[Origin] = []
    trials = tuple(
        trial.model_copy(update={"origin": place_in(origins, origin)})
        for trial, _, origin in seeds.values()
    )
    changed: dict[str, object] = {"trials": trials}
    if known.cell.reference_source == OWN_MEAN:
        changed["reference_score"] = fmean(t.score for t in trials if t.score is not None)
    return known.model_copy(
        update={
            "cell": known.cell.model_copy(update=changed),
            "runs": tuple(run for _, run, _ in seeds.values()),
            "curves": _merged_curves(known, new, list(seeds)),
            "origins": tuple(origins),
            "commands": tuple(dict.fromkeys([*known.commands, *new.commands])),
            "inherited": tuple(dict.fromkeys([*known.inherited, *new.inherited])),
        }
    )


def _seeds(entry: Entry) -> dict[int, tuple[FrozenTrial, EntryRun, Origin]]:
    """What an entry has of each seed."""
    pairs = zip(entry.cell.trials, entry.runs, strict=True)
    return {trial.seed: (trial, run, entry.origins[trial.origin]) for trial, run in pairs}


def _results(trial: FrozenTrial, run: EntryRun) -> str:
    """What training a seed again gives."""
    return f"score {trial.score}, last digest {trial.last_digest}, episodes {run.episodes_digest}"


def _merged_curves(known: Entry, new: Entry, seeds: Sequence[int]) -> EntryCurves | None:
    """The curves of both, interpolated on the steps that all of them cover."""
    if known.curves is None or new.curves is None:
        return None
    found = {}
    for entry, curves in ((new, new.curves), (known, known.curves)):
        for seed, *values in zip(entry.seeds, curves.returns, curves.ranks, strict=True):
            found[seed] = (curves.env_steps, *values)
    axes, returns, ranks = zip(*(found[seed] for seed in seeds), strict=True)
    points = min(map(len, axes))
    grid, shown = align(axes, returns, points)
    return EntryCurves.rounded(grid, shown, align(axes, ranks, points)[1])
