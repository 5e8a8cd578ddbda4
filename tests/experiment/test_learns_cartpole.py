"""Every algorithm solves CartPole-v1 on a fixed seed, with its settings of the grid classic."""

from pathlib import Path

import pytest

from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import grid_trials
from esbench.grids.environment_files import load_environment
from esbench.grids.grid_file import parse_grid, read_grid

SOLVED = load_environment("CartPole-v1").scores.solved
GRID = read_grid("classic")[0]
# The first does not look at returns, the second looks away half of the time, and the third is the
# baseline; what the grid's table shows of them is in the README.
UNSOLVED = {"ns_es", "nsr_es", "random_search"}
# Training ends once the unperturbed policy has balanced the pole for three generations, or seven
# where it still wavers then; the grid itself goes on to 100,000 steps.
WAVERING = {"cem", "eggroll", "nsra_es"}


def score_of(name: str, pool: WorkerPool) -> float:
    table = {
        **GRID,
        "environments": ["CartPole-v1"],
        "seeds": [0],
        "algorithms": {name: GRID["algorithms"][name]},
        "environment": {},
        "budget": {
            "env_steps": 100_000,
            "target_return": SOLVED,
            "target_window": 7 if name in WAVERING else 3,
        },
        "evaluation": {"episodes": 10},
    }
    (trial,) = grid_trials(parse_grid(table, "test"), Path(), "test")
    with SearchTrainer(trial.spec, pool) as trainer:
        trainer.train()
        return trainer.evaluate().mean


@pytest.mark.parametrize("name", sorted(set(GRID["algorithms"]) - UNSOLVED))
def test_it_is_solved(name: str, wide_pool: WorkerPool) -> None:
    assert score_of(name, wide_pool) >= SOLVED
