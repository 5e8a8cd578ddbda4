"""Joins output folders: copies the trials that are missing or shorter in the target.

All trials are compared before anything is written. Sources are never changed. A trial is copied to
a hidden folder of the target and then moved to its place, so that no half of it is ever seen.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

from esbench.core.errors import UsageError
from esbench.core.files import DISTINCT_LABELS, disk_errors, require_folder
from esbench.core.process import interrupts_delayed
from esbench.grids.trial_spec import differences, extends
from esbench.store.find_trials import HIDDEN, find_trials, has_trials
from esbench.store.lock import shared
from esbench.store.outputs import only_writer
from esbench.store.trial_folder import TrialFolder

MergeAction: TypeAlias = Literal["copied", "replaced", "kept"]
_RESULT: Final = ("score", "returns", "lengths", "generations", "digest")
_NOT_COPIED: Final = shutil.ignore_patterns("lock", ".*.tmp")


def merge(sources: Sequence[Path], out: Path) -> dict[MergeAction, int]:
    """Join output folders in ``out``, which may have trials already.

    A trial has the same place below every folder. An unfinished trial is replaced by a longer one
    of the same specification, and every search by its extension to a larger budget. The kept
    checkpoints of all trials in one place are joined.

    Returns:
        The number of trials that were copied, that replaced a shorter one, and that were there.

    Raises:
        UsageError: two trials in one place contradict each other, one is running or damaged, or a
            folder has no trial or lies inside another. Nothing is written then. Or the file system
            refuses; then the same merge, run again, continues.
    """
    _check_folders(sources, out)
    with only_writer(out):
        _put_back(out)
        return _merge(sources, out)


def _merge(sources: Sequence[Path], out: Path) -> dict[MergeAction, int]:
    present = find_trials(out) if has_trials(out) else []
    there = {trial.path.relative_to(out): trial for trial in present}
    chosen = dict(there)
    in_place = {place: [trial] for place, trial in there.items()}
    for root in sources:
        for trial in find_trials(root):
            _require_not_running(trial)
            place = trial.path.relative_to(root)
            chosen[place] = _longer(chosen.get(place, trial), trial)
            in_place.setdefault(place, []).append(trial)
    others = {place: _with_more_kept(trial, in_place[place]) for place, trial in chosen.items()}
    for place, known in there.items():
        if others[place] or chosen[place] is not known:
            _require_not_running(known)
    counts: dict[MergeAction, int] = {"copied": 0, "replaced": 0, "kept": 0}
    for place, trial in chosen.items():
        before = there.get(place)
        if others[place] or trial is not before:
            _copy(trial, others[place], out / place, out)
        counts["kept" if trial is before else "replaced" if before else "copied"] += 1
    return counts


def _with_more_kept(trial: TrialFolder, others: Sequence[TrialFolder]) -> list[TrialFolder]:
    """Those of the others that have kept what a trial lacks; raises if that is damaged."""
    found = [(other, _adoptable(trial, other)) for other in others if other is not trial]
    for other, generations in found:
        for generation in generations:
            other.load_checkpoint(generation)
    return [other for other, generations in found if generations]


def _adoptable(trial: TrialFolder, other: TrialFolder) -> list[int]:
    """The generations that a trial has reached, and that only ``other`` has kept."""
    more = sorted({*other.kept} - {*trial.kept})
    reached = trial.saved_generation() if more else 0
    return [generation for generation in more if generation <= reached]


def _adopt(trial: TrialFolder, other: TrialFolder) -> None:
    """Keep what another trial of the same specification has kept, with digests of these rows."""
    spec = trial.description()["spec"]
    for generation in _adoptable(trial, other):
        state = other.load_checkpoint(generation)
        assert state is not None
        trial.checkpoints.keep(state, spec)
        if other.kept_result(generation).exists():
            shutil.copy2(other.kept_result(generation), trial.kept_result(generation))


def _check_folders(sources: Sequence[Path], out: Path) -> None:
    require_folder(out)
    for root in sources:
        if TrialFolder(root).has_begun:
            raise UsageError(f"{root} is the folder of one trial; expected an output folder")
    for one, other in combinations((*sources, out), 2):
        ours, theirs = one.resolve(), other.resolve()
        if ours != theirs and (ours.is_relative_to(theirs) or theirs.is_relative_to(ours)):
            raise UsageError(f"{one} and {other}: one lies inside the other; expected two folders")


def _put_back(out: Path) -> None:
    """Put back a trial that a killed merge has moved away, and remove what else it has left."""
    with disk_errors(out, "; run the same merge again to continue"):
        for hidden in out.glob(f"{HIDDEN}*"):
            old = hidden / "old"
            for path in [file.parent for file in old.rglob("trial.json")]:
                target = out / path.relative_to(old)
                if not target.exists():
                    path.rename(target)
            shutil.rmtree(hidden)


def _longer(known: TrialFolder, other: TrialFolder) -> TrialFolder:
    """The one of two trials that has more; ``known`` if both are the same."""
    reached = _reached(other)
    if known is other:
        return known
    pairs = (known, other), (other, known)
    extension = next((long for long, short in pairs if _extends(long, short)), None)
    if extension is None:
        _require_one_specification(known, other)
    if what := _contradiction(known, other, extension is None):
        raise UsageError(
            f"{known.path} and {other.path} have different results of one specification: {what}; "
            "expected the same, since equal versions on one CPU type give equal bits"
        )
    is_enough = (known.is_done and other.is_done) or reached <= _reached(known)
    if extension is known or (extension is None and is_enough):
        return known
    if known.records_members and not other.records_members:
        raise UsageError(
            f"{other.path} is longer than {known.path}, but lacks its members' data; expected "
            "both with --record members, or only one of them"
        )
    return other


def _extends(trial: TrialFolder, other: TrialFolder) -> bool:
    """Whether a search has all generations and the score of one with a smaller budget."""
    ours, theirs = trial.description(), other.description()
    is_agent = ours["spec"]["policy"] is None
    if is_agent or ours["labels"] != theirs["labels"] or not extends(ours["spec"], theirs["spec"]):
        return False
    if _reached(trial)[1:] < _reached(other)[1:]:
        return False
    if not other.is_done:
        return True
    then, result = trial.result_of(other.saved_generation()), other.result()
    return then is not None and all(then.get(key) == result.get(key) for key in _RESULT)


def _require_one_specification(known: TrialFolder, other: TrialFolder) -> None:
    ours, theirs = (
        {key: t.description()[key] for key in ("labels", "spec")} for t in (known, other)
    )
    if changed := differences(ours, theirs):
        labels = f"; {DISTINCT_LABELS}" * (ours["labels"] != theirs["labels"])
        raise UsageError(
            f"{known.path} and {other.path} hold different trials: {'; '.join(changed)}; "
            f"expected one specification, or another output folder{labels}"
        )


def _contradiction(known: TrialFolder, other: TrialFolder, scored: bool) -> str:
    """The first difference of two trials, also of results if ``scored``; empty if there is none."""
    pairs = zip(_digests(known), _digests(other), strict=False)
    for generation, (one, another) in enumerate(pairs, start=1):
        if one != another:
            return f"the digest of generation {generation}"
    if not (scored and known.is_done and other.is_done):
        return ""
    first, second = known.result(), other.result()
    return next((key for key in _RESULT if first.get(key) != second.get(key)), "")


def _reached(trial: TrialFolder) -> tuple[bool, int, int]:
    """Whether a trial is done, the generation of its checkpoint and its rows; raises if damaged."""
    return trial.is_done, trial.saved_generation(), len(_digests(trial))


def _digests(trial: TrialFolder) -> list[str]:
    return list(trial.columns("digest")["digest"])


def _require_not_running(trial: TrialFolder) -> None:
    if trial.status == "running":
        raise _busy(trial)


def _busy(trial: TrialFolder) -> UsageError:
    return UsageError(f"{trial.path} is running; expected a trial that no process trains or scores")


def _copy(trial: TrialFolder, others: Sequence[TrialFolder], target: Path, out: Path) -> None:
    """Copy a trial, which cannot start meanwhile, with what others have kept, to its place."""
    with (
        disk_errors(out, "; run the same merge again to continue"),
        contextlib.ExitStack() as stack,
    ):
        out.mkdir(parents=True, exist_ok=True)
        hidden = Path(stack.enter_context(TemporaryDirectory(prefix=HIDDEN, dir=out)))
        if trial.path != target and not stack.enter_context(shared(trial.path / "lock")):
            raise _busy(trial)
        if target.exists() and not stack.enter_context(TrialFolder(target).locked()):
            raise _busy(TrialFolder(target))
        try:
            shutil.copytree(trial.path, hidden / "new", ignore=_NOT_COPIED)
        except shutil.Error as error:
            file, _, why = error.args[0][0]
            raise UsageError(
                f"cannot copy {file}: {why}; run the same merge again to continue"
            ) from None
        (hidden / "new" / "lock").touch()  # so that a merge of the copy can lock it
        for other in others:
            _adopt(TrialFolder(hidden / "new"), other)
        target.parent.mkdir(parents=True, exist_ok=True)
        old = hidden / "old" / target.relative_to(out)
        old.parent.mkdir(parents=True)
        _replace(target, hidden / "new", old)


def _replace(target: Path, new: Path, old: Path) -> None:
    """Move the folder ``new`` to ``target``, and a folder there to ``old``; both or neither."""
    with interrupts_delayed():
        existed = target.exists()
        if existed:
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if existed:
                old.rename(target)
            raise
