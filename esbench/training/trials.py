"""The trials of a grid, each with its folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from esbench.errors import DamagedTrialError, UsageError
from esbench.grids.expand import Labels, expand, labels_of
from esbench.grids.grid_file import Grid, compose_grid
from esbench.grids.trial_spec import DEFAULT_LABEL, TrialSpec
from esbench.store.trial_folder import Status, TrialFolder, check_format


@final
@dataclass(frozen=True)
class Trial:
    """One trial of a grid and its folder.

    Attributes:
        spec: what is trained.
        labels: the grid's names of its environment, algorithm and policy.
        folder: where it is stored.
        extend: whether to continue a stored trial that has a smaller budget.
        keep: number of checkpoints to keep, evenly spread over the budget, the last included.
        inherited: algorithm settings that come from the environment's file.
    """

    spec: TrialSpec
    labels: Labels
    folder: TrialFolder
    extend: bool = False
    keep: int = 1
    inherited: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The status of the folder; "partial" if a finished trial is to be extended."""
        status = self.folder.status
        return "partial" if status == "done" and self._needs_extending else status

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.folder.is_done and not self._needs_extending

    @property
    def _needs_extending(self) -> bool:
        if not self.extend:
            return False
        with contextlib.suppress(DamagedTrialError):  # reported when the trial is run
            return self.folder.is_smaller(self.spec)
        return False

    def check(self) -> None:
        """Raises UsageError if the folder holds another specification."""
        self.folder.check(self.spec, self.extend)

    @property
    def name(self) -> str:
        """Environment, algorithm, policy and seed as text."""
        policy = self.labels["policy"]
        middle = self.labels["algorithm"] + ("" if policy == DEFAULT_LABEL else f" {policy}")
        return f"{self.labels['environment']} {middle} seed {self.spec.seed}"


def open_grid(
    name_or_file: str | None,
    *,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
    out: Path | None = None,
    extend: bool = False,
) -> tuple[Path, list[Trial]]:
    """The output folder of a grid and its trials, checked against what the folder holds.

    Args:
        name_or_file: named grid or TOML file; None composes a grid from the other arguments.
        environments: replace the grid's environments.
        algorithms: replace the grid's algorithms, which keep their settings.
        seeds: such as "0-9"; replace the grid's seeds.
        env_steps: short for ``budget.env_steps=N``.
        overrides: ``key.sub=value``, applied in order.
        out: output folder; default ``results/runs/NAME``.
        extend: continue stored trials that have a smaller budget.

    Raises:
        UsageError: the input is wrong, or the folder holds other trials. Nothing is written.
    """
    grid, source = compose_grid(name_or_file, environments, algorithms, seeds, env_steps, overrides)
    root = Path("results/runs") / grid.name if out is None else out
    _require_folder(root)
    trials = [replace(trial, extend=extend) for trial in grid_trials(grid, root, source)]
    check_format(root)
    for trial in trials:
        if trial.folder.status != "missing":
            with contextlib.suppress(DamagedTrialError):  # reported when the trial is run
                trial.check()
    return root, trials


def grid_trials(grid: Grid, out: Path, source: str) -> list[Trial]:
    """The trials of a grid, with folders below ``out``.

    Raises:
        UsageError: a name, key or value is wrong, or two trials have the same folder.
    """
    trials = []
    owners: dict[Path, Trial] = {}
    for one in expand(grid, source):
        trial = replace(trial_at(one.spec, **one.labels, out=out), inherited=one.inherited)
        other = owners.setdefault(trial.folder.path, trial)
        if other is not trial:
            raise UsageError(
                f"{source}: {other.labels} and {trial.labels} would share the folder "
                f"{trial.folder.path}; expected labels that differ in letters, digits or . + -"
            )
        trials.append(trial)
    return trials


def trial_at(spec: TrialSpec, environment: str, algorithm: str, policy: str, out: Path) -> Trial:
    """A trial with these labels; labels and seed name its folder below ``out``."""
    parts = [environment, algorithm, *([] if policy == DEFAULT_LABEL else [policy])]
    path = out.joinpath(*(re.sub(r"[^\w.+-]", "_", part) for part in parts), f"seed-{spec.seed}")
    return Trial(spec, labels_of(environment, algorithm, policy), TrialFolder(path))


def _require_folder(root: Path) -> None:
    try:
        is_file = root.exists() and not root.is_dir()
    except OSError as error:  # for example, a name that is too long
        raise UsageError(f"{root}: {error.strerror}; expected an output folder") from None
    if is_file:
        raise UsageError(f"{root} is a file; expected an output folder")
