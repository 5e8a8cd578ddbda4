"""Finds the trials below a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import nearest_path
from esbench.store.trial_folder import TrialFolder

_FILES: Final = ("trial.json", "metrics.jsonl", "result.json")
HIDDEN: Final = ".merge-"  # start of the name of a folder that holds no trials yet


def find_trials(root: Path) -> list[TrialFolder]:
    """The trials anywhere below ``root``, sorted by path; UsageError if there is none.

    A folder that has lost its ``trial.json`` is one too, so that its reader refuses it, unless
    there are trials below it: then another command has written a file of that name.
    """
    paths = sorted(_folders_with(root, *_FILES))
    above = {parent for path in paths for parent in path.parents}
    found = [path for path in paths if path not in above or (path / "trial.json").exists()]
    if not found:
        if root.is_file():
            raise UsageError(f"{str(root)!r} is a file; expected an output folder of 'esbench run'")
        what = "no trial in" if root.is_dir() else "no folder"
        near = None if root.exists() else nearest_path(root)
        hint = (
            f"did you mean {str(near)!r}?" if near else "expected an output folder of 'esbench run'"
        )
        raise UsageError(f"{what} {str(root)!r}; {hint}")
    return [TrialFolder(path) for path in found]


def has_trials(root: Path) -> bool:
    """Whether there is a trial anywhere below ``root``."""
    return any(True for _ in _folders_with(root, "trial.json"))


def check_format(root: Path) -> None:
    """Raises UsageError if the first trial that is found below ``root`` has another format."""
    for path in _folders_with(root, "trial.json"):
        with contextlib.suppress(DamagedTrialError):
            TrialFolder(path).description()
            return


def _folders_with(root: Path, *names: str) -> Iterator[Path]:
    """The folders below ``root`` with one of these files, except what a killed merge has left.

    Links are followed; a folder that several paths lead to is found once. UsageError if a folder
    may not be read.
    """
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, onerror=_refuse, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
        if not {*names}.isdisjoint([*folders, *files]):
            yield Path(folder)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):  # removed meanwhile
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None
