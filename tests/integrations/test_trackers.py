"""The real libraries hold every number of a resumed trial once; nothing is sent."""

import json
import math
import shlex
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import Run
from fake_trials import make_records, make_trials, write_trial
from PIL import Image
from watchers import Watcher

from esbench import UsageError
from esbench.experiment import tracking
from esbench.experiment.tracking import TrackedGrid
from esbench.experiment.trials import Trial
from esbench.integrations.trackers.tracker import make_tracker
from esbench.store.find_trials import find_trials

# alembic and SQLAlchemy warn about each other.
pytestmark = pytest.mark.filterwarnings("ignore")

RETURNS = [1.0, math.nan, 3.5, -4.0, 5.0, 6.25]
RECORDS = [
    replace(record, losses={"train/value_loss": 0.5, "train/loss": math.nan})
    for record in make_records(RETURNS, population=[0.0] * 6)
]
NAMES = {
    "generation": "time/iterations",
    "env_steps": "time/total_timesteps",
    "population_return_max": "rollout/ep_rew_max",
    "wall_time_s": "time/time_elapsed",
}
CHECKPOINT, SEEN = 2, 4  # generations; the tracker has seen more than was saved
SCORE = 7.5


class Stored(NamedTuple):
    """What a library holds of one run: points (step, value) by name of a number, and more."""

    points: dict[str, list[tuple[int, float]]]
    config: dict[str, Any]
    files: set[str]
    name: str
    group: str


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking, "CLOSE_SECONDS", 120.0)  # the machine may be busy


def draw(trial: Trial, folder: Path) -> None:
    Image.new("RGB", (4, 3)).save(folder / "curve.png")


def track(name: str, trial: Trial, root: Path, seen: slice, outcome: str) -> list[str]:
    """Run a trial as a grid does, from and to some generations; return the warnings."""
    warnings: list[str] = []
    grid = TrackedGrid(Watcher(), {name: make_tracker(name, root)}, root, warnings.append, draw)
    if outcome != "skipped":
        grid.trial_started(trial, seen.start)
    for record in RECORDS[seen]:
        grid.generation_done(trial, record)
    if outcome:
        grid.trial_ended(trial, outcome, "")  # type: ignore[arg-type]
    grid.close()
    return warnings


def written(root: Path) -> dict[Path, int]:
    """When each file was written, without W&B's own log files."""
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".log")
    return {path: path.stat().st_mtime_ns for path in found}


def of_tensorboard(root: Path, trial: Trial) -> Stored:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    path = trial.folder.path.relative_to(root)
    (file,) = (root / "tensorboard" / path).iterdir()
    read = EventAccumulator(str(file))
    read.Reload()
    tags = read.Tags()
    metadata = read.SummaryMetadata("_hparams_/session_start_info")
    start = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    hparams = start.session_start_info.hparams
    return Stored(
        {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in tags["scalars"]},
        {key: getattr(hparams[key], hparams[key].WhichOneof("kind")) for key in hparams},
        set(tags["images"]),
        trial.name,
        root.name,
    )


def of_wandb(root: Path, trial: Trial) -> Stored:
    records = wandb_records(root)
    (run,) = (each.run for each in records if each.WhichOneof("record_type") == "run")
    config = {each.key: json.loads(each.value_json) for each in run.config.update}
    rows = [each.history.item for each in records if each.WhichOneof("record_type") == "history"]
    media = {each.nested_key[0] for row in rows for each in row if len(each.nested_key) > 1}
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        numbers = {each.nested_key[0]: json.loads(each.value_json) for each in row}
        for key in numbers.keys() - media - {"global_step"}:
            points.setdefault(key, []).append((numbers["global_step"], numbers[key]))
    return Stored(points, config, media, run.display_name, run.run_group)


def wandb_records(root: Path) -> list[Any]:
    """The records of the only run; W&B writes them in a process of its own, the exit last."""
    from wandb.proto.wandb_internal_pb2 import Record

    deadline = time.monotonic() + 60
    while True:
        (file,) = (root / "wandb").rglob("*.wandb")
        records = [Record.FromString(each) for each in log_records(file.read_bytes())]
        written = records and records[-1].WhichOneof("record_type") == "exit"
        if written or time.monotonic() > deadline:
            return records
        time.sleep(0.05)


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, the format of W&B's files, after their header of 7 bytes."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:  # the end of a block holds no header
            position += 32768 - position % 32768
        _, size, kind = struct.unpack("<IHB", content[position : position + 7])
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # complete, or the last part
            yield parts
            parts = b""


def of_mlflow(root: Path, trial: Trial) -> Stored:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(shlex.split(make_tracker("mlflow", root).view)[-1])
    experiment = client.get_experiment_by_name(root.name)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    known = run.info.run_id
    return Stored(
        {
            name: [(each.step, each.value) for each in client.get_metric_history(known, name)]
            for name in run.data.metrics
        },
        run.data.params,
        {Path(each.path).stem for each in client.list_artifacts(known)} - {"config"},
        run.info.run_name,
        experiment.name,
    )


@pytest.mark.parametrize(
    ("name", "read"), [("tensorboard", of_tensorboard), ("wandb", of_wandb), ("mlflow", of_mlflow)]
)
def test_a_resumed_trial_is_one_run_with_every_number_once(
    name: str, read: Callable[[Path, Trial], Stored], tmp_path: Path
) -> None:
    root = tmp_path / "of%2Fb?#{c}" / "d'\"é %41%" / "my_grid"
    if name == "mlflow":  # it makes its tables in 60 migrations, which wait for the disk
        from sqlalchemy import event
        from sqlalchemy.engine import Engine

        event.listen(Engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF"))
    (trial,) = make_trials(root, seeds=[3])
    write_trial(trial, RECORDS[:CHECKPOINT])
    assert track(name, trial, root, slice(0, SEEN), "") == []
    write_trial(trial, RECORDS, SCORE)
    Image.new("RGB", (2, 2)).save(trial.folder.path / "render.gif")
    assert track(name, trial, root, slice(CHECKPOINT, 6), "done") == []
    stored = read(root, trial)
    steps = [record.env_steps for record in RECORDS]
    for key, tag in NAMES.items():
        assert stored.points[tag] == [(each.env_steps, getattr(each, key)) for each in RECORDS]
    assert stored.points["train/value_loss"] == [(step, 0.5) for step in steps]
    measured = [value for value in zip(steps, RETURNS, strict=True) if not math.isnan(value[1])]
    assert stored.points["eval/mean_reward"] == measured
    assert stored.points["eval/score"] == [(steps[-1], SCORE)]
    assert "train/update_cosine" not in stored.points  # never measured
    groups = {name.partition("/")[0] for name in stored.points if not name.startswith("_")}
    assert groups == {"rollout", "eval", "time", "train"}
    assert float(stored.config["budget.env_steps"]) == 1000
    assert stored.config["labels.algorithm"] == "openai_es"
    assert stored.files == {"curve", "render"}
    assert (stored.name, stored.group) == (trial.name, "my_grid")
    assert [path.name for path in tmp_path.iterdir()] == ["of%2Fb?#{c}"]
    # A complete run is left alone.
    before = written(root)
    assert track(name, trial, root, slice(0, 0), "skipped") == []
    assert written(root) == before


GRID = ["run", "--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0"]


@pytest.mark.parametrize(
    ("name", "variable"), [("mlflow", "MLFLOW_TRACKING_URI"), ("wandb", "WANDB_BASE_URL")]
)
def test_a_server_that_does_not_run_is_refused(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="127.0.0.1:9"):
        make_tracker(name, tmp_path)


PLUGIN = """
from esbench import Tracker, register_tracker

@register_tracker("zoo")
class Zoo(Tracker):
    def start(self, run):
        self.folder.mkdir(parents=True, exist_ok=True)
        return -1

    def log(self, run, rows):
        for step, numbers in rows:
            self.write(run, f"{step} {numbers.get('generation', numbers.get('score'))}")

    def end(self, run, outcome, files):
        self.write(run, f"{outcome} {' '.join(path.name for path in files)}")

    def write(self, run, line):
        with (self.folder / run.path.replace("/", " ")).open("a") as file:
            file.write(line + "\\n")
"""


def test_a_tracker_of_another_package_sees_all_rows_of_a_run(
    install: Callable[..., None], esbench: Run, tmp_path: Path
) -> None:
    install({"zoo_tracker": PLUGIN}, "[esbench.trackers]\nzoo = zoo_tracker\n")
    grid = [*GRID[1:], "--env-steps", "3000", "--out", "out"]
    code, _, error = esbench("run", *grid, "--workers", "1", "--track", "zoo", "--track", "zoo")
    assert (code, error) == (0, "")
    (trial,) = find_trials(tmp_path / "out")
    records = trial.records()
    lines = [
        *(f"{record.env_steps} {record.generation}" for record in records),
        f"{records[-1].env_steps} {trial.result()['score']}",
        "done CartPole-v1.png ecdf.png",
    ]
    name = f"CartPole-v1 openai_es {trial.path.name}"
    assert (tmp_path / "out" / "zoo" / name).read_text().splitlines() == lines
    for command in (["table", "out"], ["status", *grid]):
        assert esbench(*command)[0] == 0
