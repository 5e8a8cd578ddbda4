from collections.abc import Callable

import pytest

from esbench.experiment.engines import schedule, schedule_on_nodes
from esbench.grids.trial_spec import StartSpec, TrialSpec

MANY = 10**6


@pytest.mark.parametrize(
    ("trials", "workers", "at_once", "each", "beside"),
    [
        (0, 2, 1, 2, 0),
        (2, 2, 2, 1, 2),
        (5, 2, 2, 1, 4),
        (6, 1, 1, 1, 0),
        (2, 3, 1, 3, 0),  # side by side, a worker would have nothing to do
        (3, 3, 3, 1, 3),
        (10, 16, 8, 2, 8),
        (100, 16, 16, 1, 96),
    ],
)
def test_no_worker_is_without_a_trial(
    trials: int, workers: int, at_once: int, each: int, beside: int
) -> None:
    found = schedule([MANY] * trials, workers)
    assert (found.at_once, found.workers_each, found.side_by_side) == (at_once, each, beside)


@pytest.mark.parametrize(
    ("trials", "at_once", "each", "beside"),
    [(5, 1, 4, 0), (5, 2, 2, 5), (5, 3, 1, 5), (1, 4, 4, 0), (0, 4, 4, 0)],
)
def test_all_trials_run_as_asked_for(trials: int, at_once: int, each: int, beside: int) -> None:
    found = schedule([1] * trials, 4, at_once)
    assert (found.workers_each, found.side_by_side) == (each, beside)


@pytest.mark.parametrize(("steps", "at_once"), [(49_999, 1), (50_000, 2)])
def test_few_steps_are_not_worth_more_processes(steps: int, at_once: int) -> None:
    found = schedule([steps] * 4, 2)
    assert found.at_once == at_once
    assert ("small" in found.words) == (at_once == 1)


@pytest.mark.parametrize(
    ("trials", "nodes", "each"), [(3, 2, True), (2, 2, False), (1, 3, False), (2, 0, False)]
)
def test_nodes_share_trials_only_if_there_are_more_of_them(
    make_spec: Callable[..., TrialSpec], trials: int, nodes: int, each: bool
) -> None:
    found = schedule_on_nodes([make_spec()] * trials, 4, nodes)
    assert found.is_on_nodes == each
    assert not nodes or all(str(number) in found.words for number in (trials, nodes))


def test_a_start_that_only_this_machine_can_read_keeps_the_trainers_here(
    make_spec: Callable[..., TrialSpec],
) -> None:
    start = StartSpec(trial="elsewhere", generation=1, digest="")
    spec = make_spec().model_copy(update={"init_from": start})
    found = schedule_on_nodes([make_spec(), make_spec(), spec], 4, 2)
    assert not found.is_on_nodes
    assert "init_from" in found.words
