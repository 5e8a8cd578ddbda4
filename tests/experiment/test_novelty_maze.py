from typing import Any

import numpy as np
import pytest
from maze import REACHED, TRAPPED
from trainers import train

import esbench
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer

MAZE = "maze:DeceptiveMaze-v0"
COMMON: dict[str, Any] = {
    "population_size": 64,
    "sigma": 0.3,
    "optimizer": "sgd",
    "learning_rate": 1.5,
    "weight_decay": 0.02,
}
NOVEL = {"meta_population_size": 3}
OWN: dict[str, dict[str, Any]] = {
    "openai_es": {},
    "ns_es": NOVEL,
    "nsr_es": NOVEL,
    "nsra_es": {**NOVEL, "weight_patience": 5, "weight_delta": 0.1},
}


def trained(pool: WorkerPool, algorithm: str, seed: int, **budget: Any) -> SearchTrainer:
    trainer = esbench.make_trainer(
        algorithm,
        env=MAZE,
        seed=seed,
        policy="linear",
        environment={"behavior": "final_position"},
        budget={"env_steps": 100_000, **budget},
        **COMMON,
        **OWN[algorithm],
    )
    return train(trainer.spec, pool)  # in workers that the tests share


def centers(trainer: SearchTrainer) -> list[float]:
    return [record.center_return for record in trainer.history]


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("algorithm", ["ns_es", "nsr_es", "nsra_es"])
def test_novelty_reaches_the_goal(wide_pool: WorkerPool, algorithm: str, seed: int) -> None:
    trainer = trained(wide_pool, algorithm, seed, target_return=-REACHED, target_window=1)
    assert trainer.stopped is not None
    assert centers(trainer)[-1] > -REACHED
    assert trainer.progress.env_steps < 100_000


def test_returns_alone_stay_in_the_trap(wide_pool: WorkerPool) -> None:
    returns = centers(trained(wide_pool, "openai_es", seed=3))
    assert np.mean(returns[-20:]) > -TRAPPED - 0.1  # at the wall ...
    assert max(returns) <= -TRAPPED  # ... and never behind it


def test_the_rank_is_that_of_the_parent_around_which_the_members_lie() -> None:
    far: dict[str, Any] = {"population_size": 32, "sigma": 0.1, "center_spread": 5.0}
    ranks = []
    with esbench.make_trainer("nsr_es", env="esbench/Sphere-v0", workers=1, **far) as trainer:
        assert isinstance(trainer, SearchTrainer)
        for _ in range(20):
            trainer.train(env_steps=10**6, callbacks=[lambda _: esbench.Stop("look")])
            algorithm = trainer.algorithm
            if algorithm.member_data["parent"] != np.argmax(algorithm.state_dict()["returns"]):
                ranks.append(trainer.history[-1].center_rank_fraction)
    assert len(ranks) > 5
    assert 0.2 < np.mean(ranks) < 0.8  # about half of the members are better than their parent
