"""Weights & Biases: online where the user is logged in, otherwise offline runs in a folder."""

from __future__ import annotations

import netrc
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

from esbench.integrations.library import optional
from esbench.integrations.trackers.tracker import (
    TIMEOUT_SECONDS,
    Ending,
    TrackedRow,
    TrackedRun,
    Tracker,
    register_tracker,
    require_reachable,
    tagged,
)

EXIT_CODES: Final = {"done": 0, "failed": 1, "interrupted": 255}
FILMS: Final = {".gif", ".mp4"}


@register_tracker("wandb")
@final
class WeightsAndBiases(Tracker):
    """Runs of the project ``WANDB_PROJECT`` (default: esbench), grouped by grid.

    Offline runs lie in ``OUT/wandb``; that of a resumed trial is written anew.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._wandb = optional("wandb", "wandb", "tracker 'wandb'")
        address = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
        logged_in = "online" if _has_key(urlsplit(address).hostname or "") else "offline"
        self._mode = os.environ.get("WANDB_MODE", logged_in)
        if self._mode == "online":
            require_reachable("wandb", address)
            self.view = f"project {_project()} at {address}"
        else:
            self.view = f"wandb sync {shlex.quote(str(folder / 'wandb'))}/offline-run-*"
        self._runs: dict[str, Any] = {}  # by id

    def start(self, run: TrackedRun) -> int:
        """Open the run, with the steps that the server holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._mode == "offline":
            for old in (self.folder / "wandb").glob(f"offline-run-*-{run.id}"):
                shutil.rmtree(old)
        opened = self._runs[run.id] = self._wandb.init(
            project=_project(),
            group=run.group,
            id=run.id,
            name=run.name,
            config=dict(run.config),
            dir=str(self.folder),
            mode=self._mode,
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(
                console="off",  # leave the output of the command alone
                silent=True,
                disable_code=True,
                init_timeout=TIMEOUT_SECONDS,
                finish_timeout=TIMEOUT_SECONDS,
            ),
        )
        opened.define_metric("*", step_metric="global_step")
        return int(opened.starting_step) - 1

    def log(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """One step of the run's history per row."""
        for step, numbers in rows:
            self._runs[run.id].log({"global_step": step, **tagged(numbers)}, step=step)

    def end(self, run: TrackedRun, outcome: Ending, files: Sequence[Path]) -> None:
        """Add images and films under the names of their files, and finish the run."""
        opened = self._runs.pop(run.id)
        media = {
            path.stem: self._wandb.Video(str(path))
            if path.suffix in FILMS
            else self._wandb.Image(str(path))
            for path in files
        }
        if media:
            opened.log(media)
        opened.finish(exit_code=EXIT_CODES[outcome])


def _project() -> str:
    return os.environ.get("WANDB_PROJECT", "esbench")


def _has_key(host: str) -> bool:
    """Whether the user is logged in; ``wandb.login`` would ask in the terminal."""
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        known = None
    return "WANDB_API_KEY" in os.environ or known is not None
