"""Steps/s of the Ray engine with one node, beside the local engine: rounds in turn, medians.

``python tests/campaigns/ray_cost.py [ROUNDS]`` trains one generation of 256 members on
HalfCheetah-v5 (linear) after the other on both engines, and prints the ratio of the medians.
Episodes are cut after 250 of their 1,000 steps, which makes messages count four times as much.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from esbench import RayEngine
from esbench.grids.grid_file import parse_grid
from esbench.rollouts.engine import Engine
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.search_trainer import SearchTrainer
from esbench.training.trials import grid_trials

GRID = {
    "name": "cost",
    "seeds": [0],
    "environments": ["HalfCheetah-v5"],
    "algorithms": {"openai_es": {"population_size": 256}},
    "policy": {"template": "linear"},
    "environment": {"HalfCheetah-v5": {"max_episode_steps": 250}},
    "budget": {"env_steps": 10**9},
}


def main(rounds: int) -> None:
    (trial,) = grid_trials(parse_grid(GRID, "cost"), Path(), "cost")
    with WorkerPool(2) as pool, RayEngine(workers=2) as ray:
        engines: dict[str, Engine] = {"local": pool, "ray": ray}
        trainers = {name: SearchTrainer(trial.spec, engine) for name, engine in engines.items()}
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        for number in range(rounds + 1):
            digests = set()
            for name, trainer in trainers.items():
                before, started = trainer.progress, time.perf_counter()
                trainer.train(env_steps=before.env_steps + 1)
                seconds = time.perf_counter() - started
                steps = trainer.progress.env_steps - before.env_steps
                digests.add(trainer.history[-1].digest)
                if number:  # the first one loads
                    speeds[name].append(steps / seconds)
            assert len(digests) == 1
            if number:
                latest = {name: f"{values[-1]:,.0f}" for name, values in speeds.items()}
                print(number, latest, flush=True)
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        print(medians, f"ratio {medians['ray'] / medians['local']:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
