"""MLflow: runs of a tracking server, or of an SQLite file."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

from esbench.integrations.library import optional, sqlite_address
from esbench.integrations.trackers.tracker import (
    STEPS,
    TIMEOUT_SECONDS,
    Ending,
    TrackedRow,
    TrackedRun,
    Tracker,
    register_tracker,
    require_reachable,
    tagged,
)

# The most that one request may hold.
METRICS: Final = 1000
PARAMS: Final = 100
PARAM_CHARACTERS: Final = 6000
ID_TAG: Final = "esbench.id"
STATUS: Final = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


@register_tracker("mlflow")
@final
class Mlflow(Tracker):
    """Runs at ``MLFLOW_TRACKING_URI`` (default: ``OUT/mlflow/mlflow.db``); a grid's experiment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        user = "tracker 'mlflow'"
        self._local = not os.environ.get("MLFLOW_TRACKING_URI")
        if self._local:
            file = sqlite_address((folder / "mlflow.db").resolve(), "mlflow", user)
            # With a driver, because MLflow makes a folder of the encoded path of "sqlite:".
            uri = file.replace("sqlite:", "sqlite+pysqlite:", 1)
        else:
            uri = os.environ["MLFLOW_TRACKING_URI"]
        self.view = shlex.join(["mlflow", "ui", "--backend-store-uri", uri])
        if uri.startswith(("http:", "https:")):
            require_reachable("mlflow", uri)
            self.view = uri
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{TIMEOUT_SECONDS:.0f}")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        database = ("sqlalchemy", "alembic") if uri.startswith("sqlite") else ()
        names = "mlflow.tracking", "mlflow.entities", *database
        modules = [optional(name, "mlflow", user) for name in names]
        self._tracking, self._entities, *_ = modules
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        if self._local:
            folder.mkdir(parents=True, exist_ok=True)
        self._client = self._tracking.MlflowClient(uri)
        self._runs: dict[str, str] = {}  # MLflow's ids by ours

    def start(self, run: TrackedRun) -> int:
        """Create the run, or find it by its tag."""
        self.folder.mkdir(parents=True, exist_ok=True)
        experiment = self._experiment(run.group)
        known = self._client.search_runs([experiment], f"tags.`{ID_TAG}` = '{run.id}'")
        if known:
            self._runs[run.id] = known[0].info.run_id
            self._client.update_run(known[0].info.run_id, status="RUNNING")
        else:
            made = self._client.create_run(experiment, tags={ID_TAG: run.id}, run_name=run.name)
            self._runs[run.id] = made.info.run_id
            params = [self._entities.Param(*each) for each in _params(run)]
            for first in range(0, len(params), PARAMS):
                self._client.log_batch(made.info.run_id, params=params[first : first + PARAMS])
        # Parameters of a run cannot change; an extended trial has another budget here.
        self._client.log_dict(self._runs[run.id], dict(run.config), "config.json")
        return int(known[0].data.metrics.get(STEPS, -1)) if known else -1

    def log(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """As many rows per request as it may hold, so that no row is stored in part."""
        now = int(time.time() * 1000)
        at_once = METRICS // max(len(numbers) for _, numbers in rows)
        for first in range(0, len(rows), at_once):
            metrics = [
                self._entities.Metric(name, number, now, step)
                for step, numbers in rows[first : first + at_once]
                for name, number in tagged(numbers).items()
            ]
            self._client.log_batch(self._runs[run.id], metrics=metrics)

    def end(self, run: TrackedRun, outcome: Ending, files: Sequence[Path]) -> None:
        """Store the files as artifacts, and terminate the run."""
        known = self._runs.pop(run.id)
        for path in files:
            self._client.log_artifact(known, str(path))
        self._client.set_terminated(known, STATUS[outcome])

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        if known is not None:
            return str(known.experiment_id)
        place = (self.folder / "artifacts").resolve().as_uri() if self._local else None
        return str(self._client.create_experiment(name, artifact_location=place))


def _params(run: TrackedRun) -> Iterator[tuple[str, str]]:
    """The configuration, in the characters that MLflow accepts."""
    for key, value in run.config.items():
        yield re.sub(r"[^\w\-. :/]", "_", key), str(value)[:PARAM_CHARACTERS]
