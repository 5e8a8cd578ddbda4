"""Nodes without workers, which answer the coordinator at once or in a random order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import final

from esbench.engine.coordinator import (
    Fleet,
    NodeAnswered,
    NodeJoined,
    NodeLost,
    PlayingNode,
    PoolEvent,
)
from esbench.engine.jobs import EpisodeResult, Job, Task
from esbench.engine.node_player import Exchange, Report


def result_of(task: Task) -> EpisodeResult:
    return EpisodeResult(task, float(hash(task) % 1000), 1 + task.member % 7, None)


@final
class FakeNode(PlayingNode):
    """A node that remembers what it was sent."""

    def __init__(self, name: str, workers: int = 1) -> None:
        self.host, self.workers = name, workers
        self.messages: deque[Exchange] = deque()
        self.queue: dict[Task, None] = {}
        self.number = self.abandoned = 0
        self.played = 0
        self.lost = False

    def exchange(self, message: Exchange) -> None:
        assert not self.lost
        self.messages.append(message)
        assert sum(sent.number == message.number for sent in self.messages) <= 2
        assert len(self.messages) <= 4

    def abandon(self, number: int) -> None:
        self.abandoned = max(self.abandoned, number)

    def answer(self, most: int | None = None) -> NodeAnswered:
        """Answer the oldest message with the results of up to ``most`` episodes."""
        message = self.messages.popleft()
        if message.number <= self.abandoned:
            late = [result_of(task)._replace(total=-1.0) for task in message.tasks]
            return NodeAnswered(self, Report(message.number, late, 0, 0.0, {}, 0.0))
        if message.number != self.number:
            self.number, self.queue = message.number, {}
        assert not self.queue.keys() & set(message.tasks)
        for task in message.dropped:
            self.queue.pop(task, None)
        self.queue |= dict.fromkeys(message.tasks)
        done = list(self.queue)[:most]
        for task in done:
            del self.queue[task]
        self.played += len(done)
        results = [result_of(task) for task in done]
        return NodeAnswered(self, Report(message.number, results, len(self.queue), 0.0, {}, 0.0))


@final
class FakeFleet(Fleet):
    """Nodes that answer in turn at once; with a generator, in a random order, come and go."""

    def __init__(self, nodes: int, workers: int = 1, chance: random.Random | None = None) -> None:
        self.nodes = [FakeNode(str(number), workers) for number in range(nodes)]
        self._joining: list[FakeNode] = list(self.nodes)
        self._chance = chance
        self.losses = 0

    def begin(self, number: int, job: Job) -> None:
        """The job is not needed."""

    def events(self, seconds: float) -> Sequence[PoolEvent]:
        joining, self._joining = self._joining, []
        events: list[PoolEvent] = [NodeJoined(node) for node in joining]
        chance = self._chance
        if chance is None:
            return events + [node.answer() for node in self.nodes if node.messages]
        if events:
            return events
        if chance.random() < 0.1:
            self.nodes.append(FakeNode(f"new {len(self.nodes)}", chance.randint(1, 3)))
            self._joining.append(self.nodes[-1])
        busy = [node for node in self.nodes if node.messages]
        if busy and chance.random() < 0.1:
            lost = chance.choice(busy)
            lost.lost = True
            self.nodes.remove(lost)
            self.losses += 1
            return [NodeLost(lost)]
        return [chance.choice(busy).answer(chance.randint(0, 5))] if busy else []
