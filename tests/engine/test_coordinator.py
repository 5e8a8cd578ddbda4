"""The coordinator of nodes: every episode has one result, whatever the nodes do."""

import itertools
import math
import random
from typing import Any

import pytest
from delayed_fleet import DelayedFleet
from fake_fleet import PromptFleet, result_of

from esbench.core.errors import EnvironmentFailedError, EsbenchError, TrainingError, UsageError
from esbench.engine.coordinator import Coordinator
from esbench.engine.jobs import CENTER, Task, member_tasks

JOB: Any = None  # the fake nodes do not read it


def coordinator_of(fleet: PromptFleet) -> Coordinator:
    return Coordinator(fleet, lambda _: None, itertools.count().__next__)


@pytest.mark.parametrize("seed", range(100))
def test_every_episode_has_one_result_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    fleet = PromptFleet(chance.randint(1, 4), chance=chance)
    coordinator = coordinator_of(fleet)
    for size in (0, 1, 7, 64, 200):
        tasks = [Task(CENTER, 0), *member_tasks(range(size), 1)]
        counts: list[tuple[int, int]] = []
        found = coordinator.play(JOB, tasks, lambda *count: counts.append(count))  # noqa: B023
        assert found == {task: result_of(task) for task in tasks}
        assert counts == sorted(set(counts))
        assert counts[-1] == (size + 1, size + 1)
    assert coordinator.losses == fleet.losses
    assert set(coordinator.shares) <= set(fleet.nodes)


def test_an_idle_node_gets_episodes_although_its_last_report_has_a_queue() -> None:
    fleet = PromptFleet(1)
    coordinator = coordinator_of(fleet)
    coordinator.play(JOB, member_tasks(range(4), 1))
    (share,) = coordinator.shares.values()
    assert not share.held
    share.sent.clear()
    fleet.nodes[0].messages.clear()
    share.queued = 10  # which other nodes have played since
    coordinator._pending.extend(member_tasks(range(3), 1))
    coordinator._supply(share, 3)
    assert fleet.nodes[0].messages[0].tasks


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_equal_nodes_play_equal_shares_and_nothing_twice(nodes: int) -> None:
    fleet = PromptFleet(nodes, cores=4)
    coordinator = coordinator_of(fleet)
    for _ in range(3):
        coordinator.play(JOB, member_tasks(range(1000), 1))
    played = [node.played for node in fleet.nodes]
    assert sum(played) == 3000 + coordinator.repeated
    assert coordinator.repeated <= 3 * 20 * (nodes - 1)
    assert max(played) < 1.3 * 3000 / nodes


@pytest.mark.parametrize("slots", [1, 72])
@pytest.mark.parametrize("delay", [0.0, 0.005, 0.05])
@pytest.mark.parametrize(
    ("nodes", "cores", "episode_s", "size"),
    [(1, 1, 0.02, 100), (3, 1, 0.0125, 64), (4, 16, 0.07, 64), (4, 64, 0.07, 2048)],
)
def test_a_slow_network_costs_few_round_trips(
    nodes: int, cores: int, episode_s: float, size: int, delay: float, slots: int
) -> None:
    fleet, tasks = DelayedFleet(nodes, cores, episode_s, delay, slots), member_tasks(range(size), 1)
    coordinator = Coordinator(fleet, lambda _: None, lambda: fleet.now)
    for _ in range(3):
        coordinator.play(JOB, tasks)
    started = fleet.now
    for _ in range(4):
        assert coordinator.play(JOB, tasks).keys() == set(tasks)
    ideal = episode_s * math.ceil(size / (nodes * cores))
    assert (fleet.now - started) / 4 <= 1.3 * ideal + 2 * 2 * delay


def test_idle_nodes_play_what_a_silent_node_has() -> None:
    fleet = PromptFleet(3)
    silent = fleet.nodes.pop()  # it joins, and never answers
    coordinator = coordinator_of(fleet)
    tasks = member_tasks(range(60), 1)
    for _ in range(2):
        assert coordinator.play(JOB, tasks).keys() == set(tasks)
    assert coordinator.repeated > 0
    assert silent.played == 0
    assert silent.abandoned == 2  # it need not play them any more
    assert coordinator.losses == 0


def test_without_nodes_it_tells_so_and_waits_for_one() -> None:
    fleet, told = PromptFleet(1), list[str]()
    joining, fleet.joining = fleet.joining, []

    def notice(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            fleet.joining = joining

    coordinator = Coordinator(fleet, notice, itertools.count().__next__)
    assert len(coordinator.play(JOB, member_tasks(range(5), 1))) == 5
    assert len(told) == 3
    assert "waiting for one to join" in told[0]


@pytest.mark.parametrize(
    "error",
    [
        UsageError("it has no module 'x'"),
        EnvironmentFailedError("it has no module 'x'", "the traceback"),
        TrainingError("it has no module 'x'"),
    ],
)
def test_an_error_says_of_which_node_it_is(
    monkeypatch: pytest.MonkeyPatch, error: EsbenchError
) -> None:
    fleet = PromptFleet(2)
    monkeypatch.setattr(fleet, "take", lambda: [(fleet.nodes[1], error)])
    with pytest.raises(type(error), match="^node 1: it has no module 'x'$"):
        coordinator_of(fleet).listen(0)
