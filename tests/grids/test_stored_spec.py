"""The numbers of a file that others wrote have limits, which no published trial comes near."""

from collections.abc import Callable
from typing import Any

import pytest
from checkout import LEADERBOARD

from esbench.core.errors import UsageError
from esbench.grids.stored_spec import require_possible, stored_spec
from esbench.grids.trial_spec import TrialSpec
from esbench.results.entries import read_leaderboard

HUGE = 10**13
STACK = {"wrapper": "gymnasium.wrappers:FrameStackObservation", "stack_size": HUGE}
WIDE = {"wrapper": "gymnasium.wrappers:ReshapeObservation", "shape": [HUGE, 1]}


def changed(spec: TrialSpec, path: str, value: Any) -> Any:
    content = place = spec.as_json()
    *above, key = path.split(".")
    for each in above:
        place = place[each]
    place[key] = value
    return content


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("budget.env_steps", HUGE),
        ("environment.kwargs", {"max_episode_steps": HUGE}),
        ("environment.kwargs", {"sizes": [{"low": -HUGE}]}),
        ("environment.kwargs", {"desc": ["S" * 1000] * 1000}),
        ("environment.wrappers", [STACK]),
        ("environment.wrappers", [WIDE]),
        ("environment.max_episode_steps", HUGE),
        ("environment.max_episode_steps", [[0, 10], [1000, HUGE]]),
        ("environment.episodes_per_member", HUGE),
        ("evaluation.episodes", HUGE),
        ("algorithm.settings.population_size", HUGE),
        ("policy.settings.hidden", [HUGE]),
        ("policy.settings.hidden", [1] * 1000),
    ],
)
def test_a_number_that_no_training_has_is_refused(
    make_spec: Callable[..., TrialSpec], path: str, value: Any
) -> None:
    spec = make_spec("CartPole-v1")
    assert stored_spec(spec.as_json(), "file") == spec
    with pytest.raises(UsageError, match=r"\Afile: .*expected[^\n]*\Z") as error:
        stored_spec(changed(spec, path, value), "file")
    assert len(str(error.value)) < 400


def test_seeds_and_the_steps_of_a_schedule_may_be_large(
    make_spec: Callable[..., TrialSpec],
) -> None:
    for path, value in (
        ("environment.kwargs", {"map_seed": 2**40}),
        (
            "environment.wrappers",
            [{"wrapper": "gymnasium.wrappers:OrderEnforcing", "seeds": [2**40]}],
        ),
        ("environment.max_episode_steps", [[0, 10], [HUGE // 100, 1000]]),
    ):
        assert stored_spec(changed(make_spec("CartPole-v1"), path, value), "file")


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, 500),  # the budget
        ({"budget.generations": 3}, 24),  # of eight members
        ({"budget.generations": 3, "environment.episodes_per_member": 5}, 120),
        ({"budget.generations": 3, "algorithm.settings.num_interactions": 50}, 150),
        ({"budget.generations": 3, "algorithm.settings.min_episodes": 100}, 300),
        (
            {
                "budget.generations": 3,
                "algorithm.settings.num_interactions": HUGE,
                "algorithm.settings.population_size_max": 40,
            },
            120,
        ),
        (
            {
                "budget.generations": 3,
                "evaluation.validation": {"start": 0, "interval": 100, "episodes": 77},
            },
            77,
        ),
    ],
)
def test_a_run_has_the_steps_of_its_budget_and_of_every_episode(
    make_spec: Callable[..., TrialSpec], changes: dict[str, Any], least: int
) -> None:
    spec = make_spec("CartPole-v1")
    for path, value in changes.items():
        spec = stored_spec(changed(spec, path, value), "file")
    require_possible(spec, 3, least, None, "seed 0")
    with pytest.raises(UsageError, match=rf"\Aseed 0: {least - 1} steps .* at least {least}"):
        require_possible(spec, 3, least - 1, None, "seed 0")
    require_possible(make_spec("CartPole-v1"), 3, 24, "the target was reached", "seed 0")


def test_what_is_published_is_possible() -> None:
    for entry in read_leaderboard(LEADERBOARD):
        cell = entry.to_cell()
        spec = cell.trial_spec(0)
        for run in cell.runs:
            require_possible(spec, run.generations, run.env_steps, run.stopped, entry.name)
