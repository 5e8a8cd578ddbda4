"""Deliberately broken OpenAI-ES, compared with a baseline of the real one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from watchers import Silent

from esbench.algorithms.openai_es import OpenAIES
from esbench.algorithms.population import SampledPopulation
from esbench.analysis.gate import GateRules, Verdict
from esbench.arrays import Matrix, Vector
from esbench.gate.baselines import Baseline, freeze
from esbench.gate.check import CellReport, CheckReport, check
from esbench.gate.match_baseline import DigestResult
from esbench.rollouts.jobs import Job, Task
from esbench.rollouts.results import Episodes
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.run_grid import run_grid
from esbench.training.trials import open_grid

SEEDS = "0-5"
STEPS = 15_000


def train(root: Path, pool: WorkerPool) -> Path:
    """Train the CartPole cell of the grid ``ci``."""
    _, trials = open_grid(
        "ci", environments=["CartPole-v1"], seeds=SEEDS, env_steps=STEPS, out=root
    )
    assert run_grid(trials, pool, Silent()).count("done") == len(trials)
    return root


@pytest.fixture(scope="module")
def wide_pool() -> Iterator[WorkerPool]:
    """Return two workers with the slots that ``esbench run`` has."""
    with WorkerPool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory, wide_pool: WorkerPool) -> Baseline:
    return freeze(train(tmp_path_factory.mktemp("real"), wide_pool), "")


@pytest.fixture
def broken(
    tmp_path: Path, wide_pool: WorkerPool, baseline: Baseline
) -> Callable[..., tuple[CheckReport, CellReport]]:
    """A function that trains the present OpenAI-ES and compares it with the baseline."""

    def held(exact: bool = False) -> tuple[CheckReport, CellReport]:
        folder = tmp_path / "out"
        if not folder.exists():
            train(folder, wide_pool)
        report = check(folder, baseline, GateRules(), exact)
        return report, report.cells[0]

    return held


def test_the_real_one_is_identical(broken: Callable[..., tuple[CheckReport, CellReport]]) -> None:
    report, cell = broken(exact=True)
    assert (report.exit_code, cell.match.digests, cell.verdict) == (
        0,
        DigestResult.IDENTICAL,
        Verdict.NO_WORSE,
    )


def test_a_flipped_sign_is_a_regression(
    broken: Callable[..., tuple[CheckReport, CellReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = OpenAIES._tell

    def down(
        self: OpenAIES, population: SampledPopulation, returns: Vector, behaviors: Matrix
    ) -> None:
        tell(self, population, -returns, behaviors)

    monkeypatch.setattr(OpenAIES, "_tell", down)
    report, cell = broken()
    assert (report.exit_code, cell.verdict) == (1, Verdict.REGRESSION)
    assert cell.stages[0].change < -0.5
    assert (cell.match.digests, cell.match.digests_detail) == (
        DigestResult.CHANGED,
        "seed 0 differs from generation 1 on",
    )


def test_a_doubled_sigma_is_a_change(
    broken: Callable[..., tuple[CheckReport, CellReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = OpenAIES._ask

    def wide(self: OpenAIES) -> SampledPopulation:
        population = ask(self)
        return dataclasses.replace(population, sigma=2 * population.sigma)

    monkeypatch.setattr(OpenAIES, "_ask", wide)
    # Around a centre of zeros a linear policy acts the same whatever the scale of the noise is.
    _, cell = broken()
    assert (cell.match.digests, cell.match.digests_detail) == (
        DigestResult.CHANGED,
        "seed 0 differs from generation 2 on",
    )
    assert broken(exact=True)[0].exit_code == 1


def test_a_dropped_last_reward_is_a_change_even_if_scores_hold(
    broken: Callable[..., tuple[CheckReport, CellReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = WorkerPool.play

    def short(self: WorkerPool, job: Job, tasks: Sequence[Task]) -> Episodes:
        played = play(self, job, tasks)  # every reward of CartPole is 1
        return dataclasses.replace(
            played, returns=played.returns - 1, center_returns=played.center_returns - 1
        )

    monkeypatch.setattr(WorkerPool, "play", short)
    report, cell = broken()
    assert cell.stages[0].change == pytest.approx(-1 / (500 - 22.63))
    assert cell.verdict is not Verdict.REGRESSION
    assert (cell.match.digests, cell.match.digests_detail) == (
        DigestResult.CHANGED,
        "seed 0 differs from generation 1 on",
    )
    assert broken(exact=True)[0].exit_code == 1
    assert report.exit_code in (0, 4)
