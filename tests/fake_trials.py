"""Trial folders with made-up rows and scores, written through the real store."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from esbench.core.json_text import SEAL, sealed
from esbench.experiment.trials import Trial, grid_trials
from esbench.grids.grid_file import parse_grid
from esbench.store.generation_record import GenerationRecord

COMMAND = "esbench run --env CartPole-v1 --algorithm openai_es --seeds 0-2"
DIGEST = "0" * 64  # a trial that is written has one of its seed instead
CREATED = "2026-01-02T03:04:05+00:00"
MEASURES = (
    *("tied_returns", "update_cosine", "split_half_cosine", "center_norm", "distance"),
    "observation_drift",
)
GOOD = [480.0, 485.0, 490.0, 491.0, 492.0, 495.0, 498.0, 500.0]  # of CartPole
WIDE = [*[300.0] * 2, *[499.0] * 6]  # worse perhaps
HARDWARE = {"machine": "x86_64", "cpu": "Test CPU", "cores": 2, "platform": "test"}


def make_trials(root: Path, **grid: Any) -> list[Trial]:
    """Return the trials of a grid: OpenAI-ES on CartPole, seeds 0 to 2; nothing is written."""
    table = {
        "name": "fake",
        "environments": ["CartPole-v1"],
        "algorithms": {"openai_es": {}},
        "budget": {"env_steps": 1000},
        **grid,
    }
    return grid_trials(parse_grid(table, "fake grid"), root, "fake grid")


def make_records(
    returns: Sequence[float],
    ranks: Sequence[float] | None = None,
    population: Sequence[float] | None = None,
    steps: int = 100,
    seconds: float = 0.5,
) -> list[GenerationRecord]:
    """Return a record for each generation: the center's return, its rank fraction, and the rest.

    ``steps`` and ``seconds`` are of one generation.
    """
    size = 10
    ranks = [0.5] * len(returns) if ranks is None else ranks
    population = [value - 1.0 for value in returns] if population is None else population
    return [
        GenerationRecord(
            generation=number,
            env_steps=number * steps,
            eval_env_steps=number * 10,
            episodes=number * size,
            wall_time_s=number * seconds,
            cpu_time_s=number * 2 * seconds,
            population_size=size,
            population_return_mean=mean,
            population_return_std=1.0,
            population_return_min=mean - 2.0,
            population_return_max=mean + 2.0,
            center_return=value,
            center_rank=1 + rank * size,
            center_rank_fraction=rank,
            non_finite=0,
            episode_length_mean=steps / size,
            max_episode_steps=None,
            sigma=0.1,
            update_norm=0.01,
            digest=DIGEST,
            **dict.fromkeys(MEASURES, math.nan),
        )
        for number, (value, rank, mean) in enumerate(
            zip(returns, ranks, population, strict=True), start=1
        )
    ]


def write_trial(
    trial: Trial,
    records: Sequence[GenerationRecord] = (),
    score: float | None = None,
    *,
    error: str = "",
    wall_time_s: float = 1.5,
    parameters: int = 0,
) -> None:
    """Write a trial: done if it has a score (NaN: done, but it diverged), failed if an error.

    With a number of parameters it has a checkpoint, of a center at 0.
    """
    seed = trial.spec.seed
    with trial.folder.locked() as mine:
        assert mine
        about = {"labels": trial.labels, "inherited": list(trial.inherited)}
        about["defaults"] = list(trial.spec.algorithm.defaults)
        description = {"created": CREATED, **about, "command": COMMAND, "hardware": HARDWARE}
        trial.folder.begin(trial.spec, description)
        for record in records:
            own = f"{seed:064x}" if record.digest == DIGEST else record.digest
            trial.folder.append(replace(record, digest=own))
        if parameters:
            state = {"algorithm": {"center": np.zeros(parameters)}}
            trial.folder.checkpoint(state | {"progress": {"generation": len(records)}})
        if error:
            trial.folder.fail(error)
        if score is not None:
            steps = records[-1].env_steps if records else trial.spec.budget.env_steps
            trial.folder.finish({"score": score, "env_steps": steps, "wall_time_s": wall_time_s})


def write_scores(root: Path, scores: Sequence[float], **grid: Any) -> list[Trial]:
    """Write one done trial of two generations for each score, seeds counted from 0 by default."""
    trials = make_trials(root, **{"seeds": list(range(len(scores))), **grid})
    for trial, score in zip(trials, scores, strict=True):
        start = 0.0 if math.isnan(score) else score / 2
        write_trial(trial, make_records([start, score]), score)
    return trials


def write_one(root: Path, seed: int, error: str = "", **grid: Any) -> None:
    """Write one trial, which is unfinished or failed, without rows."""
    (trial,) = make_trials(root, seeds=[seed], **grid)
    write_trial(trial, error=error)


def write_runs(
    root: Path, runs: Sequence[Sequence[float]], score: float = 0.0, **grid: Any
) -> list[Trial]:
    """Write one done trial for each list of returns, seeds counted from 0."""
    trials = make_trials(root, seeds=list(range(len(runs))), **grid)
    for trial, returns in zip(trials, runs, strict=True):
        write_trial(trial, make_records(returns), score)
    return trials


def edit(root: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change a JSON file of every trial below ``root``, with digests that fit."""
    for path in root.rglob(name):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
    reseal(root)


def reseal(root: Path) -> None:
    """Make the digests of every trial below ``root`` fit its files, as a forger would."""
    for folder in {path.parent for path in root.rglob("trial.json")}:
        lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        for path in folder.rglob("*.json"):
            content = json.loads(path.read_text())
            content.pop(SEAL, None)
            if "arrays" in content:
                data = (path.parent / content["arrays"]["file"]).read_bytes()
                content["arrays"] |= {"size": len(data), SEAL: hashlib.sha256(data).hexdigest()}
            generation = content.get("state", {}).get("progress", content).get("generation")
            generation = content.get("generations", generation)
            if "rows" in content and isinstance(generation, int):
                content["rows"] = hashlib.sha256(b"".join(lines[:generation])).hexdigest()
            path.write_text(json.dumps(sealed(content)))


def timeless(table: dict[str, Any]) -> dict[str, Any]:
    """A row or a result without times, and without the digests of what has times."""
    vary = {"finished", "rows", SEAL}
    return {k: v for k, v in table.items() if not (k.endswith("time_s") or k in vary)}


def outcome(root: Path) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The rows and the result of every finished trial below ``root``, without times."""
    found = []
    for path in sorted(root.rglob("result.json")):
        rows = map(json.loads, path.with_name("metrics.jsonl").read_text().splitlines())
        found.append((list(map(timeless, rows)), timeless(json.loads(path.read_text()))))
    return found


def set_digest(root: Path, generation: int) -> None:
    """Change the digest of one generation of the trial below ``root``."""
    (path,) = root.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[generation - 1]["digest"] = "f" * 64
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reseal(root)


def learning(generations: int, end: float, seed: int) -> list[float]:
    """Return a noisy curve that rises from 0 to ``end``."""
    noise = np.random.default_rng(seed).normal(scale=end / 10, size=generations)
    return list(end * (1 - np.exp(-np.linspace(0, 3, generations))) + noise)
