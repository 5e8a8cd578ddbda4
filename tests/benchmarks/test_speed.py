"""Speed, reported and never asserted: tox -e bench.

``extra_info`` has env steps/s. The bare loop and training run in the same session, so that their
ratio means something on a noisy machine; ``esbench bench`` measures them in turn, several rounds.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import esbench
from esbench.grids.grid_file import parse_grid
from esbench.policies.mlp import MLP, MLPSettings
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial, grid_trials

PARAMS = 5_702  # 17-64-64-6, the policy of HalfCheetah-v5


@pytest.fixture
def trial(tmp_path) -> Trial:  # type: ignore[no-untyped-def]
    table = {
        "name": "bench",
        "seeds": [0],
        "environments": ["HalfCheetah-v5"],
        "algorithms": {"openai_es": {"population_size": 64}},
        "budget": {"env_steps": 10**12},
    }
    return grid_trials(parse_grid(table, "bench"), tmp_path, "bench")[0]


@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "Hopper-v5", "CartPole-v1"])
def test_bare_loop(benchmark: BenchmarkFixture, environment: str) -> None:
    """One plain environment in one process, random actions: 2000 steps a round."""
    env = gymnasium.make(environment)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(2000)]

    def loop() -> None:
        env.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    benchmark.pedantic(loop, rounds=5, warmup_rounds=1)
    benchmark.extra_info["steps_per_second"] = len(actions) / benchmark.stats["median"]


@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "Hopper-v5", "CartPole-v1"])
def test_generation(benchmark: BenchmarkFixture, environment: str) -> None:
    """One generation of 64 members end to end, one worker."""
    settings = {"population_size": 64}
    with (
        WorkerPool(1) as pool,
        esbench.make_trainer("openai_es", env=environment, **settings) as template,
        Trainer(template.spec, pool) as trainer,
    ):
        trainer.train(env_steps=1)
        before = trainer.progress

        def generation() -> None:
            trainer.train(env_steps=trainer.progress.env_steps + 1)

        benchmark.pedantic(generation, rounds=5)
        steps = trainer.progress.env_steps - before.env_steps
        benchmark.extra_info["steps_per_second"] = steps / benchmark.stats["total"]


def test_ask_and_tell(benchmark: BenchmarkFixture) -> None:
    """The update alone: 64 members, 5,702 parameters, Adam."""
    algorithm = esbench.make_algorithm("openai_es", num_params=PARAMS, population_size=64)
    returns = np.random.default_rng(0).normal(size=64)

    def update() -> None:
        algorithm.tell(algorithm.ask(), returns)

    benchmark(update)


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


def test_store_a_row(benchmark: BenchmarkFixture, trial: Trial) -> None:
    """What the store costs in every generation."""
    with WorkerPool(1) as pool, Trainer(trial.spec, pool) as trainer:
        trainer.train(env_steps=1)
        record = trainer.history[0]
    with trial.folder.locked():
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        benchmark(trial.folder.append, record)


def test_store_a_checkpoint(benchmark: BenchmarkFixture, trial: Trial) -> None:
    """What it costs every ten seconds, synced to disk."""
    with WorkerPool(1) as pool, Trainer(trial.spec, pool) as trainer:
        trainer.train(env_steps=1)
        state = trainer.state_dict()
    with trial.folder.locked():
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        benchmark(trial.folder.checkpoint, state)
