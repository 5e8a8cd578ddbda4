"""Training in a deceptive maze: novelty search leaves the trap, also if it is killed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from maze import REACHED, STEPS, TRAPPED
from test_resume import launch, outcome, rows_in, wait_for

import esbench
from esbench.files import as_line
from esbench.policies.normalization import INITIAL_COUNT
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.trainer import Trainer
from esbench.training.trials import open_grid

MAZE = "maze:DeceptiveMaze-v0"
COMMON = {
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


@pytest.fixture(scope="module")
def wide_pool() -> Iterator[WorkerPool]:
    """Two workers with slots for half a population each."""
    with WorkerPool(2, slots=32) as shared:
        yield shared


def trained(pool: WorkerPool, algorithm: str, seed: int = 0, **changes: Any) -> Trainer:
    trainer = esbench.make_trainer(
        algorithm,
        env=MAZE,
        seed=seed,
        policy={"template": "linear", **changes.pop("policy", {})},
        environment={"behavior": "final_position", **changes.pop("environment", {})},
        budget={"env_steps": 100_000, **changes.pop("budget", {})},
        **{**COMMON, **OWN[algorithm], **changes},
    )
    with Trainer(trainer.spec, pool) as other:  # in workers that the tests share
        other.train()
    return other


def centers(trainer: Trainer) -> list[float]:
    return [record.center_return for record in trainer.history]


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("algorithm", ["ns_es", "nsr_es", "nsra_es"])
def test_novelty_reaches_the_goal(wide_pool: WorkerPool, algorithm: str, seed: int) -> None:
    budget = {"target_return": -REACHED, "target_window": 1}
    trainer = trained(wide_pool, algorithm, seed, budget=budget)
    assert trainer.stopped is not None
    assert centers(trainer)[-1] > -REACHED
    assert trainer.progress.env_steps < 100_000


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_returns_alone_stay_in_the_trap(wide_pool: WorkerPool, seed: int) -> None:
    returns = centers(trained(wide_pool, "openai_es", seed))
    assert np.mean(returns[-20:]) > -TRAPPED - 0.1  # at the wall ...
    assert max(returns) <= -TRAPPED  # ... and never behind it


def results(trainer: Trainer) -> list[dict[str, Any]]:
    """The rows as they are stored, without their times."""
    rows = [json.loads(as_line(asdict(record))) for record in trainer.history]
    return [{k: v for k, v in row.items() if not k.endswith("time_s")} for row in rows]


SHORT: dict[str, Any] = {
    "population_size": 8,
    "budget": {"env_steps": 2000},
    "environment": {"episodes_per_member": 2},
    "policy": {"normalize_observations": True},
    "probe_episodes": 3,
}


def test_one_worker_equals_two(pool: WorkerPool) -> None:
    two = trained(pool, "ns_es", **SHORT)
    with WorkerPool(1, slots=3) as single:
        one = trained(single, "ns_es", **SHORT)
    assert results(one) == results(two)
    np.testing.assert_equal(one.algorithm.state_dict(), two.algorithm.state_dict())
    assert one.evaluate(2).returns.tolist() == two.evaluate(2).returns.tolist()


def test_every_lineage_has_its_own_statistics_and_probes_cost_steps(pool: WorkerPool) -> None:
    trainer = trained(pool, "ns_es", **SHORT)
    generations = trainer.progress.generation
    probes = 3 * 3 + 3 * (generations - 1)  # of 3 episodes: the 3 centres, then each parent
    assert trainer.progress.episodes == generations * 8 * 2 + probes
    learnt = sum(16 * record.episode_length_mean for record in trainer.history)
    assert learnt + probes <= trainer.progress.env_steps
    assert trainer.progress.env_steps <= learnt + probes * STEPS
    counts = {k: table["count"] for k, table in trainer.state_dict()["statistics"].items()}
    assert set(counts) == {"0", "1", "2"}
    assert sum(count - INITIAL_COUNT for count in counts.values()) == pytest.approx(learnt)


@pytest.mark.parametrize("algorithm", ["ns_es", "nsra_es"])
def test_a_state_goes_on_bit_for_bit(pool: WorkerPool, algorithm: str) -> None:
    whole = trained(pool, algorithm, **SHORT)
    half = whole.history[len(whole.history) // 2]
    with Trainer(whole.spec, pool) as first:
        first.train(env_steps=half.env_steps)
        state = first.state_dict()
        first.train()  # the state is a copy: training on does not change it
    with Trainer(whole.spec, pool) as second:
        second.load_state_dict(state, whole.history[: state["progress"]["generation"]])
        second.train()
    assert results(second) == results(whole)
    np.testing.assert_equal(second.algorithm.state_dict(), whole.algorithm.state_dict())


def test_a_behavior_of_ones_own_in_the_workers(pool: WorkerPool) -> None:
    own = {"environment": {"behavior": "maze:Reach", "behavior_settings": {"scale": 2.0}}}
    trainer = trained(pool, "ns_es", **{**SHORT, **own})
    archive = trainer.algorithm.state_dict()["archive"]
    assert archive.shape[1] == 1
    assert 0.4 <= archive.min() < archive.max() <= 2.0


OVERRIDES = [
    "algorithms.nsra_es.population_size=8",
    "algorithms.nsra_es.meta_population_size=3",
    "algorithms.nsra_es.weight_patience=2",
    "algorithms.nsra_es.sigma=0.3",
    "algorithms.nsra_es.archive_size_max=12",
    "policy.template=linear",
    "policy.normalize_observations=true",
    f'environment."{MAZE}".behavior=final_position',
    "evaluation.episodes=2",
]


def start(folder: Path) -> subprocess.Popen[str]:
    """Start a trial of 6000 steps that writes a checkpoint after every generation."""
    arguments = ["--env", MAZE, "--algorithm", "nsra_es", "--seeds", "0", "--env-steps", "6000"]
    settings = [word for override in OVERRIDES for word in ("--set", override)]
    return launch(folder, "out", 0.0, ["run", *arguments, *settings, "--workers", "1", "--quiet"])


def test_killed_and_run_again_it_ends_with_the_same_bits(tmp_path: Path, pool: WorkerPool) -> None:
    out = tmp_path / "out"
    process = start(tmp_path)
    wait_for(lambda: rows_in(out) >= 20, process)  # the archive is full by then
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert start(tmp_path).communicate(timeout=120)[1] == ""
    rows, result = outcome(out)
    _, (trial,) = open_grid(
        None,
        environments=[MAZE],
        algorithms=["nsra_es"],
        seeds="0",
        env_steps=6000,
        overrides=OVERRIDES,
        out=tmp_path / "whole",
    )
    with Trainer(trial.spec, pool) as whole:
        whole.train()
        score = whole.evaluate()
    assert rows == results(whole)
    assert result["returns"] == score.returns.tolist()
