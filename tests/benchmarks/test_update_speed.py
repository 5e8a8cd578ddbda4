"""What an update costs beside what it is compared with: tox -e bench.

Everything of one size runs in the same session, in turn: the ratios mean something on a noisy
machine, the absolute times less.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import esbench
from esbench.core.noise import GaussianNoise

NETWORK = (5_000, 256)  # parameters, members: a network for HalfCheetah-v5
LARGE = (1_700_000, 200)  # the convolutional network for Atari of Mnih et al. 2015
NAMES = (
    "openai_es", "random_search", "ars", "pgpe", "pepg", "snes", "cem", "sep_cma_es",
    "eggroll", "genetic", "ns_es", "nsra_es",
)  # fmt: skip
LARGE_NAMES = ("openai_es", "pgpe", "snes", "ars", "eggroll")


def update(algorithm, returns, behaviors) -> None:  # type: ignore[no-untyped-def]
    """Ask and tell one generation, and the probes before it."""
    population = algorithm.ask()
    while algorithm.plan.probe:
        few = len(population)
        algorithm.tell(population, returns[:few], behaviors[:few])
        population = algorithm.ask()
    algorithm.tell(population, returns, behaviors)


@pytest.mark.parametrize(
    ("size", "name"),
    [*((NETWORK, name) for name in NAMES), *((LARGE, name) for name in LARGE_NAMES)],
)
def test_update(benchmark: BenchmarkFixture, size: tuple[int, int], name: str) -> None:
    """``ask`` and ``tell``; of a large network, the noise is drawn again, a block at a time."""
    num_params, members = size
    benchmark.group = f"update of {num_params:,} parameters, {members} members"
    # As two matrices, so that eggroll has something to be low-rank about.
    shapes = [(num_params // 100, 50), (num_params // 100, 50)]
    algorithm = esbench.make_algorithm(
        name, num_params=num_params, population_size=members, shapes=shapes
    )
    random = np.random.default_rng(0)
    returns, behaviors = random.normal(size=members), random.normal(size=(members, 2))
    update(algorithm, returns, behaviors)
    rounds = 20 if size == NETWORK else 3
    benchmark.pedantic(update, (algorithm, returns, behaviors), rounds=rounds)


@pytest.mark.benchmark(group="update of 1,700,000 parameters, 200 members")
@pytest.mark.parametrize("rows", [LARGE[1] // 2, LARGE[1]])
def test_draw(benchmark: BenchmarkFixture, rows: int) -> None:
    """What NumPy needs to draw the noise once: one row per mirrored pair, or one per member."""
    room = np.empty(LARGE[0])
    noise = GaussianNoise(0, LARGE[0])

    def draw() -> None:
        for row in range(rows):
            with noise.stream(row) as generator:
                generator.standard_normal(out=room)

    benchmark.pedantic(draw, rounds=3)


@pytest.mark.parametrize("size", [NETWORK, LARGE], ids=["network", "large"])
def test_evotorch_pgpe(benchmark: BenchmarkFixture, size: tuple[int, int]) -> None:
    """One step of evotorch's PGPE with ClipUp on an objective that costs next to nothing."""
    evotorch = pytest.importorskip("evotorch", reason="the other library is not installed")
    algorithms = pytest.importorskip("evotorch.algorithms")
    num_params, members = size
    benchmark.group = f"update of {num_params:,} parameters, {members} members"

    @evotorch.decorators.vectorized
    def first(solutions):  # type: ignore[no-untyped-def]
        return solutions[:, 0]

    problem = evotorch.Problem(
        "max", first, solution_length=num_params, initial_bounds=(-1.0, 1.0), seed=0
    )
    search = algorithms.PGPE(
        problem, popsize=members, center_learning_rate=0.01, stdev_learning_rate=0.1, stdev_init=0.1
    )
    search.step()
    benchmark.pedantic(search.step, rounds=20 if size == NETWORK else 3)
