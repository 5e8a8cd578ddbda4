"""Fixtures that many tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, execute, working_in

from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.trials import Trial, grid_trials

# A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, in this order, before all others: processes that share the files (see
# tox.ini) then end together.
LONGEST = (
    "test_learns_cartpole.py",
    "test_worker_pool.py",
    "test_readme.py",
    "test_resume.py",
    "test_trial_processes.py",
    "test_cli.py",
    "test_mujoco_backend.py",
    "test_throughput.py",
    "test_types.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@pytest.fixture
def esbench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Return ``esbench ARGUMENTS`` run in ``tmp_path``: exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = execute(*arguments)
        return code, *capfd.readouterr()

    with working_in(tmp_path):
        yield run


@pytest.fixture
def make_trial(tmp_path: Path) -> Callable[..., Trial]:
    """Return a maker of one small trial below ``tmp_path``."""

    def make(name: str = "doubles:Walk-v0", algorithm: str = "openai_es", /, **table: Any) -> Trial:
        settings = {"population_size": 8, "sigma": 0.1, **table.pop("settings", {})}
        grid = {
            "name": "test",
            "seeds": [table.pop("seed", 0)],
            "environments": [name],
            "algorithms": {algorithm: settings},
            "budget": {"env_steps": 500},
            "evaluation": {"episodes": 4},
            "policy": {"template": "mlp", "hidden": [4], "normalize_observations": True},
            **table,
        }
        (trial,) = grid_trials(parse_grid(grid, "test"), tmp_path / "out", "test")
        return trial

    return make


@pytest.fixture
def make_spec(make_trial: Callable[..., Trial]) -> Callable[..., TrialSpec]:
    """Return a maker of one small specification."""

    def make(*args: Any, **table: Any) -> TrialSpec:
        return make_trial(*args, **table).spec

    return make


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Return two workers that all tests share."""
    with WorkerPool(2, slots=4) as shared:
        yield shared
