"""Dividing a grid into shards: complete, disjoint, balanced, and the same in every process."""

from pathlib import Path
from typing import Any

import pytest
from fake_trials import make_records, write_trial
from hypothesis import given, settings
from hypothesis import strategies as st

from esbench.agents.agent import AGENTS
from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial, open_grid
from esbench.grids.environment_files import environment_names
from esbench.grids.shards import (
    AGENT,
    OTHER_AGENT,
    POLICY,
    STEP,
    describe_shards,
    divide,
    planned_cost,
)
from esbench.policies.policy import POLICIES

MIXED: dict[str, Any] = {
    "name": "mixed",
    "environments": ["CartPole-v1", "HalfCheetah-v5"],
    "algorithms": {"openai_es": {}, "agent": {"algorithm": "own_agents:Climber"}},
    "seeds": [0, 1],
    "budget": {"env_steps": 1000},
}
COSTS = st.lists(st.integers(1, 10**12), min_size=1, max_size=40)


@settings(deadline=None)
@given(COSTS, st.data())
def test_shards_are_complete_disjoint_and_balanced(costs: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(costs)))
    shards = divide(costs, count)
    assert len(shards) == count
    assert sorted(index for shard in shards for index in shard) == list(range(len(costs)))
    assert all(shard == sorted(shard) for shard in shards)
    assert all(shards)
    loads = [sum(costs[index] for index in shard) for shard in shards]
    # No trial could move from the largest shard to the smallest one and make it smaller.
    largest = shards[loads.index(max(loads))]
    assert max(loads) - min(loads) <= min(costs[index] for index in largest)
    assert divide([1000 * cost for cost in costs], count) == shards


def test_the_division_of_a_grid_never_changes() -> None:
    """Arrays that have started depend on it, on every machine."""
    assert divide([5, 1, 4, 4, 3, 3], 3) == [[0, 1], [2, 4], [3, 5]]
    assert divide([7] * 5, 2) == [[0, 2, 4], [1, 3]]
    shards = [opened(f"{number}/3") for number in (1, 2, 3)]
    assert shards == [
        [
            "CartPole-v1 openai_es seed 0",
            "HalfCheetah-v5 openai_es seed 0",
            "HalfCheetah-v5 agent seed 0",
        ],
        [
            "CartPole-v1 openai_es seed 1",
            "HalfCheetah-v5 openai_es seed 1",
            "HalfCheetah-v5 agent seed 1",
        ],
        ["CartPole-v1 agent seed 0", "CartPole-v1 agent seed 1"],
    ]


def opened(shard: str | None, **options: Any) -> list[str]:
    return [trial.name for trial in trials_of(shard, **options)[1]]


def trials_of(shard: str | None, **options: Any) -> tuple[Path, list[Trial]]:
    return open_grid(MIXED, shard=shard, **options)


def test_what_is_done_stays_in_its_shard(tmp_path: Path) -> None:
    before = opened("1/2", out=tmp_path)
    for trial in trials_of("1/2", out=tmp_path)[1][:2]:
        write_trial(trial, make_records([1.0, 2.0]), 2.0)
    assert opened("1/2", out=tmp_path) == before
    assert sorted(before + opened("2/2", out=tmp_path)) == sorted(opened(None, out=tmp_path))


def test_every_shard_has_an_output_folder_of_its_own() -> None:
    folders = {str(trials_of(shard)[0]) for shard in ("1/1", "1/2", "2/2")}
    assert folders == {
        f"results/runs/mixed-shards/mixed-{part}" for part in ("1-of-1", "1-of-2", "2-of-2")
    }
    assert str(trials_of(None)[0]) == "results/runs/mixed"


def test_the_planned_cost_is_steps_times_microseconds() -> None:
    costs = {trial.name: planned_cost(trial.spec) for trial in trials_of(None)[1]}
    assert costs["CartPole-v1 openai_es seed 0"] == 1000 * STEP["CartPole-v1"]
    assert costs["HalfCheetah-v5 agent seed 1"] == 1000 * (STEP["HalfCheetah-v5"] + OTHER_AGENT)
    pong = ["esbench/Pong-ram-v5", "esbench/Pong-v5"]
    grid = {"name": "pong", "environments": pong, "algorithms": ["snes"], "seeds": [0]}
    memory, frames = (
        planned_cost(trial.spec) // trial.spec.budget.env_steps for trial in open_grid(grid)[1]
    )
    assert memory < frames
    nature = {**grid, "policy": {"template": "nature_conv"}, "environments": pong[1:]}
    (large,) = open_grid(nature)[1]
    assert planned_cost(large.spec) > frames * large.spec.budget.env_steps


def test_every_weight_is_of_something_that_exists() -> None:
    assert set(STEP) <= set(environment_names())
    assert set(POLICY) <= set(POLICIES.names())
    assert set(AGENT) <= set(AGENTS.names())


def test_shards_in_words() -> None:
    specs = [trial.spec for trial in trials_of(None)[1]]
    text = describe_shards(specs, 3)
    for fact in ("8 trials", "3 shards", "2 and 3 trials", "25.7 and 48.6 %"):
        assert fact in text


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1", "-1/4", "1.0/2", " 1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"--shard '{text}'.*I/N"):
        open_grid(MIXED, shard=text)


@pytest.mark.parametrize("count", [0, 9])
def test_more_shards_than_trials_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} shards .* 8 trials"):
        divide([1] * 8, count)
