"""What analysis costs: seconds and peak memory, reported and never asserted: tox -e bench.

    pytest tests/benchmarks/test_analysis_speed.py -o addopts= --benchmark-only

Each command runs once, in a process of its own; ``extra_info`` has its processor seconds and its
peak memory. docs/experiments/speed.md has results.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from fake_trials import COMMAND, HARDWARE, learning, make_records, make_trials
from pytest_benchmark.fixture import BenchmarkFixture

from esbench.core.json_text import as_line, as_text
from esbench.grids.trial_spec import TrialSpec
from esbench.store.stored_json import FORMAT

GENERATIONS = 300
ENVIRONMENTS = {"CartPole-v1": (20, 500), "Acrobot-v1": (-500, -80), "Pendulum-v1": (-1200, -300),
                "HalfCheetah-v5": (-300, 2400)}  # fmt: skip
CURVES = 25  # different ones an environment
LOAD = "import sys, esbench; esbench.load_results(sys.argv[1])"
COMMANDS = {
    "table": ["-m", "esbench", "table", "{}", "--format", "csv"],
    "efficiency": ["-m", "esbench", "efficiency", "{}", "--format", "csv"],
    "load_results": ["-c", LOAD, "{}"],
}


def rows(low: float, high: float, seed: int) -> str:
    """Return ``metrics.jsonl`` of a made-up run, with numbers as long as real ones."""
    stream = np.random.default_rng(seed)
    returns = low + np.array(learning(GENERATIONS, 1.0, seed)) * (high - low)
    records = make_records(list(returns), list(stream.uniform(size=GENERATIONS)), seconds=0.1234567)
    changed = (
        replace(
            record,
            population_return_std=stream.uniform(),
            sigma=stream.uniform(),
            update_norm=stream.uniform(),
            digest=stream.bytes(32).hex(),
        )
        for record in records
    )
    return "".join(as_line(asdict(record)) for record in changed)


def result(spec: TrialSpec) -> str:
    returns = np.random.default_rng(spec.seed).normal(400.0, 30.0, size=100)
    score = float(returns.mean())
    cost = {"env_steps": 100 * GENERATIONS, "wall_time_s": 30.0, "generations": GENERATIONS}
    return as_text(
        {"format": FORMAT, "hash": spec.hash, "score": score, **cost, "returns": returns.tolist()}
    )


def write(root: Path, algorithms: int) -> None:
    """Write 40 trials an algorithm, without the store's syncing to disk."""
    labels = {
        f"es_{n}": {"algorithm": "openai_es", "sigma": (n + 1) / 1e4} for n in range(algorithms)
    }
    texts = {
        name: [rows(low, high, seed) for seed in range(CURVES)]
        for name, (low, high) in ENVIRONMENTS.items()
    }
    trials = make_trials(
        root,
        seeds=list(range(10)),
        environments=list(ENVIRONMENTS),
        algorithms=labels,
        budget={"env_steps": 100 * GENERATIONS},
    )
    for number, trial in enumerate(trials):
        spec = trial.spec.model_dump(mode="json")
        head = {"format": FORMAT, "hash": trial.spec.hash, "spec": spec, "labels": trial.labels}
        trial.folder.path.mkdir(parents=True)
        files = {
            "trial.json": as_text({**head, "command": COMMAND, "hardware": HARDWARE}),
            "metrics.jsonl": texts[trial.labels["environment"]][number % CURVES],
            "result.json": result(trial.spec),
        }
        for name, text in files.items():
            (trial.folder.path / name).write_text(text)


@pytest.fixture(scope="module", params=[5, 250], ids=["200 trials", "10,000 trials"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("trials")
    write(root, request.param)
    yield root
    shutil.rmtree(root)  # gigabytes, which pytest would keep


@pytest.mark.parametrize("name", COMMANDS)
def test_analysis(benchmark: BenchmarkFixture, folder: Path, name: str) -> None:
    """One command in a process of its own, from its start to its end."""
    arguments = [part.replace("{}", str(folder)) for part in COMMANDS[name]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    costs = []

    def run() -> None:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            process = os.posix_spawn(
                sys.executable,
                [sys.executable, *arguments],
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)],
            )
        _, status, usage = os.wait4(process, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        costs.append((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))

    benchmark.pedantic(run, rounds=1)
    ((seconds, peak),) = costs
    benchmark.extra_info |= {"cpu_seconds": round(seconds, 1), "peak_MiB": round(peak)}
