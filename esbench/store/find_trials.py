"""Finds the trials below a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from esbench.errors import DamagedTrialError, UsageError
from esbench.store.trial_folder import TrialFolder

_FILES: Final = ("trial.json", "metrics.jsonl", "result.json")
HIDDEN: Final = ".merge-"  # start of the name of a folder that holds no trials yet


def find_trials(root: Path) -> list[TrialFolder]:
    """The trials anywhere below ``root``, sorted by path; UsageError if there is none.

    A folder that has lost its ``trial.json`` is one too, so that its reader refuses it.
    """
    found = sorted({path.parent for name in _FILES for path in _files_below(root, name)})
    if not found:
        what = "no trial in" if root.is_dir() else "no folder"
        raise UsageError(f"{what} {str(root)!r}; expected an output folder of 'esbench run'")
    return [TrialFolder(path) for path in found]


def has_trials(root: Path) -> bool:
    """Whether there is a trial anywhere below ``root``."""
    return any(_files_below(root, "trial.json"))


def check_format(root: Path) -> None:
    """Raises UsageError if the first trial that is found below ``root`` has another format."""
    for path in _files_below(root, "trial.json"):
        with contextlib.suppress(DamagedTrialError):
            TrialFolder(path.parent).description()
            return


def _files_below(root: Path, name: str) -> Iterator[Path]:
    """The files of a name below ``root``, except those that a killed merge has left."""
    for path in root.rglob(name):
        if not any(part.startswith(HIDDEN) for part in path.relative_to(root).parts):
            yield path
