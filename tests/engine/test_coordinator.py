"""The coordinator of nodes: every episode has one result, whatever the nodes do."""

import itertools
import math
import random
from typing import Any

import pytest
from delayed_fleet import DelayedFleet
from fake_fleet import FakeFleet, result_of

from esbench.engine.coordinator import Coordinator
from esbench.engine.jobs import CENTER, Task, member_tasks

JOB: Any = None  # the fake nodes do not read it


@pytest.mark.parametrize("seed", range(100))
def test_every_episode_has_one_result_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    fleet = FakeFleet(chance.randint(1, 4), chance=chance)
    coordinator = Coordinator(fleet, itertools.count().__next__)
    for size in (0, 1, 7, 64, 200):
        tasks = [Task(CENTER, 0), *member_tasks(range(size), 1)]
        counts: list[tuple[int, int]] = []
        found = coordinator.play(JOB, tasks, lambda *count: counts.append(count))  # noqa: B023
        assert found == {task: result_of(task) for task in tasks}
        assert counts == sorted(set(counts))
        assert counts[-1] == (size + 1, size + 1)
    assert coordinator.losses == fleet.losses
    assert set(coordinator.shares) <= set(fleet.nodes)


def test_a_node_without_episodes_gets_some_whatever_it_has_reported() -> None:
    fleet = FakeFleet(1)
    coordinator = Coordinator(fleet, itertools.count().__next__)
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
    fleet = FakeFleet(nodes, workers=4)
    coordinator = Coordinator(fleet, itertools.count().__next__)
    for _ in range(3):
        coordinator.play(JOB, member_tasks(range(1000), 1))
    played = [node.played for node in fleet.nodes]
    assert sum(played) == 3000 + coordinator.repeated
    assert coordinator.repeated <= 3 * 20 * (nodes - 1)
    assert max(played) < 1.3 * 3000 / nodes


@pytest.mark.parametrize("slots", [1, 72])
@pytest.mark.parametrize("delay", [0.0, 0.005, 0.05])
@pytest.mark.parametrize(
    ("nodes", "workers", "episode_s", "size"),
    [(1, 1, 0.02, 100), (3, 1, 0.0125, 64), (4, 16, 0.07, 64), (4, 64, 0.07, 2048)],
)
def test_a_slow_network_costs_few_round_trips(
    nodes: int, workers: int, episode_s: float, size: int, delay: float, slots: int
) -> None:
    fleet = DelayedFleet(nodes, workers, episode_s, delay, slots)
    coordinator, tasks = Coordinator(fleet, lambda: fleet.now), member_tasks(range(size), 1)
    for _ in range(3):
        coordinator.play(JOB, tasks)
    started = fleet.now
    for _ in range(4):
        assert coordinator.play(JOB, tasks).keys() == set(tasks)
    ideal = episode_s * math.ceil(size / (nodes * workers))
    assert (fleet.now - started) / 4 <= 1.3 * ideal + 2 * 2 * delay


def test_idle_nodes_play_what_a_silent_node_has() -> None:
    fleet = FakeFleet(3)
    silent = fleet.nodes.pop()  # it joins, and never answers
    coordinator = Coordinator(fleet)
    tasks = member_tasks(range(60), 1)
    for _ in range(2):
        assert coordinator.play(JOB, tasks).keys() == set(tasks)
    assert coordinator.repeated > 0
    assert silent.played == 0
    assert silent.abandoned == 2  # it need not play them any more
    assert coordinator.losses == 0


def test_without_nodes_it_waits_for_one() -> None:
    fleet = FakeFleet(1)
    joining, fleet._joining = fleet._joining, []
    coordinator = Coordinator(fleet)
    waits: list[int] = []

    def wait() -> None:
        waits.append(1)
        if len(waits) == 3:
            fleet._joining = joining

    coordinator.waiting = wait
    assert len(coordinator.play(JOB, member_tasks(range(5), 1))) == 5
    assert len(waits) == 3
