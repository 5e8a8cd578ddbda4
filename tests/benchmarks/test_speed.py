"""Parts of a generation, reported and never asserted: tox -e bench.

``esbench bench`` measures whole generations beside a bare loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import esbench
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial
from esbench.policies.perceptrons import MLP, MLPSettings
from esbench.store.trial_folder import TrialFolder

PARAMS = 5_702  # 17-64-64-6, the policy of HalfCheetah-v5


@pytest.fixture
def stored(make_trial: Callable[..., Trial]) -> Iterator[tuple[TrialFolder, SearchTrainer]]:
    """An open trial folder, and a trainer after one generation."""
    size, budget = {"population_size": 64}, {"env_steps": 10**12}
    trial = make_trial("HalfCheetah-v5", algorithms={"openai_es": size}, budget=budget, policy={})
    with WorkerPool(1) as pool, trial.folder.locked(), SearchTrainer(trial.spec, pool) as trainer:
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        trainer.train(env_steps=1)
        yield trial.folder, trainer


def test_one_member(benchmark: BenchmarkFixture) -> None:
    """Rebuilding one member's parameters from its noise key."""
    population = esbench.make_algorithm("openai_es", num_params=PARAMS).ask()
    benchmark(population.member, 7)


def test_forward(benchmark: BenchmarkFixture) -> None:
    """One forward pass of 32 members with their own weights, 17-64-64-6."""
    policy = MLP(MLPSettings(), 17, 6)
    batch = policy.batch(32)
    for slot in range(32):
        batch.load(slot, policy.initial_parameters(np.random.default_rng(slot)))
    observations = np.random.default_rng(0).normal(size=(32, 17)).astype(np.float32)
    benchmark(batch.forward, observations)


def test_store_a_row(
    benchmark: BenchmarkFixture, stored: tuple[TrialFolder, SearchTrainer]
) -> None:
    """What the store costs in every generation."""
    folder, trainer = stored
    benchmark(folder.append, trainer.history[0])


def test_store_a_checkpoint(
    benchmark: BenchmarkFixture, stored: tuple[TrialFolder, SearchTrainer]
) -> None:
    """What it costs every ten seconds, synced to disk."""
    folder, trainer = stored
    benchmark(folder.checkpoint, trainer.state_dict())
