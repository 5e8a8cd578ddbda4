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
from pathlib import Path

import pytest
from fake_trials import learning, make_records, make_trials, write_trial
from pytest_benchmark.fixture import BenchmarkFixture

from esbench.core.json_text import as_text
from esbench.store.stored_json import FORMAT

GENERATIONS = 300
ENVIRONMENTS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "HalfCheetah-v5"]
LOAD = "import sys, esbench; esbench.load_results(sys.argv[1])"
COMMANDS = {
    "table": ["-m", "esbench", "table", "{}", "--format", "csv"],
    "efficiency": ["-m", "esbench", "efficiency", "{}", "--format", "csv"],
    "load_results": ["-c", LOAD, "{}"],
}


@pytest.fixture(scope="module", params=[5, 250], ids=["200 trials", "10,000 trials"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Forty trials an algorithm, all with the rows and the result of the first one."""
    root = tmp_path_factory.mktemp("trials")
    labels = {
        f"es_{n}": {"algorithm": "openai_es", "sigma": n / 1e4} for n in range(1, request.param + 1)
    }
    table = {"environments": ENVIRONMENTS, "algorithms": labels, "seeds": list(range(10))}
    first, *others = make_trials(root, budget={"env_steps": 100 * GENERATIONS}, **table)
    write_trial(first, make_records(learning(GENERATIONS, 1.0, 0), seconds=0.1234567), 400.0)
    for trial in others:
        shutil.copytree(first.folder.path, trial.folder.path)
        spec = {"hash": trial.spec.hash, "spec": trial.spec.as_json(), "labels": trial.labels}
        (trial.folder.path / "trial.json").write_text(as_text({"format": FORMAT, **spec}))
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
