"""Rollouts end to end beside the simulator alone and beside evotorch: tox -e bench.

One run, 64 members of a 64-64 network (256 for ``test_esbench[256-...]``), all cores, observations
normalized. ``extra_info`` has env steps/s; ``esbench bench`` measures the first two in turn.
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import esbench
from esbench.bench.training_speed import SimulatorProcesses
from esbench.core.cores import usable_cores
from esbench.experiment.search_trainer import SearchTrainer

ENVIRONMENTS = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "CartPole-v1"]
NETWORK = "Linear(obs_length, 64) >> Tanh() >> Linear(64, 64) >> Tanh() >> Linear(64, act_length)"
POLICY = {
    "template": "mlp",
    "hidden": [64, 64],
    "activation": "tanh",
    "normalize_observations": True,
}
ROUNDS = 3


@pytest.fixture(autouse=True, scope="session")
def _one_core() -> None:
    """All cores, unlike in the other tests."""


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("size", [64, 256])
def test_esbench(benchmark: BenchmarkFixture, environment: str, size: int) -> None:
    """One generation: sampling, rollouts, update; the center's episodes are not counted."""
    benchmark.group = environment
    with esbench.make_trainer(
        "openai_es", env=environment, policy=POLICY, population_size=size
    ) as trainer:
        trainer.train(env_steps=1)
        before = trainer.progress.env_steps

        def generation() -> None:
            trainer.train(env_steps=trainer.progress.env_steps + 1)

        benchmark.pedantic(generation, rounds=ROUNDS)
        steps = trainer.progress.env_steps - before
        benchmark.extra_info["steps_per_second"] = steps / benchmark.stats["total"]


@pytest.mark.parametrize("environment", ENVIRONMENTS[:-1])
def test_simulator_alone(benchmark: BenchmarkFixture, environment: str) -> None:
    """``mj_step`` and nothing else, one process per core, on members' actions."""
    benchmark.group = environment
    with esbench.make_trainer(
        "openai_es", env=environment, policy=POLICY, population_size=64
    ) as trainer:
        assert isinstance(trainer, SearchTrainer)
        setup = trainer.gathered_setup()
        with SimulatorProcesses(setup, usable_cores()) as loops:
            loops.record(trainer.next_job())
            rates: list[float] = []
            benchmark.pedantic(lambda: rates.append(loops.measure("simulator", 2.0)), rounds=ROUNDS)
    benchmark.extra_info["steps_per_second"] = sorted(rates)[len(rates) // 2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "CartPole-v1"])
@pytest.mark.parametrize("kind", ["GymNE", "VecGymNE"])
def test_evotorch(benchmark: BenchmarkFixture, environment: str, kind: str) -> None:
    """One step of its PGPE: two actors for GymNE, 64 environments for VecGymNE."""
    from evotorch import algorithms, neuroevolution

    benchmark.group = environment
    problem = {
        "GymNE": lambda: neuroevolution.GymNE(
            environment, NETWORK, observation_normalization=True, num_actors=usable_cores()
        ),
        "VecGymNE": lambda: neuroevolution.VecGymNE(
            environment, NETWORK, observation_normalization=True, max_num_envs=64
        ),
    }[kind]()
    search = algorithms.PGPE(
        problem, popsize=64, center_learning_rate=0.01, stdev_learning_rate=0.1, stdev_init=0.05
    )
    search.step()
    before, start = problem.status["total_interaction_count"], time.perf_counter()
    benchmark.pedantic(search.step, rounds=ROUNDS)
    steps = problem.status["total_interaction_count"] - before
    benchmark.extra_info["steps_per_second"] = steps / (time.perf_counter() - start)
    if kind == "GymNE":
        problem.kill_actors()
