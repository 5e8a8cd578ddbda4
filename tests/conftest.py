"""Fixtures that many tests share."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, execute, files, working_in

from esbench.algorithms.base import ALGORITHMS
from esbench.core.registry import Registry
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.simulator_log import silenced
from esbench.experiment.trials import Trial, grid_trials
from esbench.grids import environment_files
from esbench.grids.environment_files import ENVIRONMENTS
from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import TrialSpec
from esbench.integrations.trackers.tracker import TRACKERS
from esbench.policies.policy import POLICIES

pytest_plugins = ["trained_cell"]

# A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, in this order, before all others: processes that share the files (see
# tox.ini) then end together.
LONGEST = (
    "test_reproduce.py",
    "test_leaderboard.py",
    "test_worker_pool.py",
    "test_report_in_browser.py",
    "test_trial_scheduler.py",
    "test_cli.py",
    "test_types.py",
    "test_atari_games.py",
    "test_resume.py",
    "test_learns_cartpole.py",
    "test_readme.py",
    "test_campaigns.py",
    "test_mujoco_backend.py",
)

SCORES = """
[scores]
random = {{ mean = {random}, std = 5.0, episodes = 100, command = "esbench eval --random-policy" }}
[[scores.references]]
method = "A"
score = {reference}
source = "a paper"
comparable = {comparable}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@pytest.fixture(autouse=True, scope="session")
def _without_waiting_for_the_disk() -> Iterator[None]:
    """In this process; those that are killed or interrupted wait as for a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_core() -> Iterator[None]:
    """In this process: one worker by default, on any machine; tests of several name a number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        yield


@pytest.fixture
def esbench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Return ``esbench ARGUMENTS`` run in ``tmp_path``: exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = execute(*arguments)
        return code, *capfd.readouterr()

    with working_in(tmp_path):
        yield run


@pytest.fixture
def refused(esbench: Run, tmp_path: Path) -> Callable[..., str]:
    """Return ``esbench ARGUMENTS`` that must be refused; it returns the sentence."""

    def run(*arguments: str) -> str:
        before = files(tmp_path)
        code, out, err = esbench(*arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert err.startswith("esbench: ")
        assert files(tmp_path) == before
        return err

    return run


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
    return lambda *args, **table: make_trial(*args, **table).spec


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Return two workers that all tests share."""
    with WorkerPool(2, slots=4) as shared:
        yield shared


@pytest.fixture(scope="session")
def single() -> Iterator[WorkerPool]:
    """Return one worker, to compare with several."""
    with WorkerPool(1, slots=3) as shared:
        yield shared


@pytest.fixture(scope="session")
def wide_pool() -> Iterator[WorkerPool]:
    """Return a worker with the slots of ``esbench run``, for trials that take long."""
    with WorkerPool() as shared:
        yield shared


@pytest.fixture
def quiet() -> Iterator[None]:
    """Drop what simulators print."""
    with silenced():
        yield


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that installs the distribution Zoo.Plugins, as pip does."""

    def installed(modules: dict[str, str], entry_points: str, metadata: str = "") -> None:
        site = tmp_path / "site"
        info = site / "zoo_plugins-1.0.dist-info"
        info.mkdir(parents=True)
        about = f"Metadata-Version: 2.1\nName: Zoo.Plugins\nVersion: 1.0\n{metadata}"
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text(entry_points)
        for name, source in modules.items():
            (site / f"{name}.py").write_text(source)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(site)
        added.update(modules)
        for registry in (*registries, ENVIRONMENTS):
            monkeypatch.setattr(registry, "_plugins", None)

    added: set[str] = set()
    registries: tuple[Registry[Any], ...] = (ALGORITHMS, POLICIES, BACKENDS, TRACKERS)
    yield installed
    for registry in registries:  # what else was imported meanwhile is imported only once
        for name, cls in [*registry._classes.items()]:
            if cls.__module__ in added:
                del registry._classes[name]


@pytest.fixture
def freeze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a writer of environment files, with a random and a reference score or with ``text``.

    Until it is called no environment has a file.
    """
    folder = tmp_path / "envs"
    folder.mkdir()
    monkeypatch.setattr(environment_files, "folder", lambda: folder)

    def write(
        name: str, random: float = 0.0, reference: float = 100.0, text: str = SCORES, **more: str
    ) -> None:
        values = {"comparable": "false", **more, "random": random, "reference": reference}
        (folder / f"{name}.toml").write_text(f'id = "{name}"\n{text.format(**values)}')

    return write
