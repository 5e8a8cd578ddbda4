"""Nodes without workers, which answer the coordinator at once or in a random order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from esbench.engine.engine import Cluster, Joined, Lost, Node
from esbench.engine.jobs import EpisodeResult, Task
from esbench.engine.node_player import Configured, Exchange, Report


def result_of(task: Task) -> EpisodeResult:
    return EpisodeResult(task, float(hash(task) % 1000), 1 + task.member % 7, None)


class FakeFleet(Cluster):
    """Nodes of the tests' process."""

    def __init__(self) -> None:
        self.patience = 0.0  # of the last ``wait``

    @property
    def count(self) -> int:
        raise NotImplementedError

    def serve(self, server: Callable[[], object], code: Mapping[str, str]) -> None:
        """There is no server."""

    def share(self, value: object) -> Any:
        """The job is not needed."""

    def wait(self, seconds: float) -> None:
        self.patience = seconds

    def close(self) -> None:
        """There is nothing to end."""


@final
class FakeNode(Node):
    """A node that remembers what it was sent."""

    def __init__(self, name: str, cores: int = 1) -> None:
        self.name, self.cores = name, cores
        self.messages: deque[Exchange] = deque()
        self.queue: dict[Task, None] = {}
        self.number = self.abandoned = 0
        self.played = 0
        self.lost = False

    def call(self, method: str, *arguments: Any, shared: Any = None, aside: bool = False) -> None:
        if method == "abandon":
            self.abandoned = max(self.abandoned, *arguments)
            return
        (message,) = arguments
        assert not self.lost
        self.messages.append(message)
        assert sum(sent.number == message.number for sent in self.messages) <= 2
        assert len(self.messages) <= 4

    def answer(self, most: int | None = None) -> tuple[Node, Report]:
        """Answer the oldest message with the results of up to ``most`` episodes."""
        message = self.messages.popleft()
        if message.number <= self.abandoned:
            late = [result_of(task)._replace(total=-1.0) for task in message.tasks]
            return self, Report(message.number, late, 0, 0.0, {}, 0.0)
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
        return self, Report(message.number, results, len(self.queue), 0.0, {}, 0.0)


@final
class PromptFleet(FakeFleet):
    """Nodes that answer in turn at once; with a generator, in a random order, come and go."""

    def __init__(self, nodes: int, cores: int = 1, chance: random.Random | None = None) -> None:
        self.nodes = [FakeNode(str(number), cores) for number in range(nodes)]
        self.joining: list[FakeNode] = list(self.nodes)
        self._chance = chance
        self.losses = 0

    def take(self) -> Sequence[tuple[Node, object]]:
        joining, self.joining = self.joining, []
        events = [(node, event) for node in joining for event in (Joined(), Configured())]
        chance = self._chance
        if chance is None:
            return [*events, *(node.answer() for node in self.nodes if node.messages)]
        if events:
            return events
        if chance.random() < 0.1:
            self.nodes.append(FakeNode(f"new {len(self.nodes)}", chance.randint(1, 3)))
            self.joining.append(self.nodes[-1])
        busy = [node for node in self.nodes if node.messages]
        if busy and chance.random() < 0.1:
            lost = chance.choice(busy)
            lost.lost = True
            self.nodes.remove(lost)
            self.losses += 1
            return [(lost, Lost("by chance"))]
        return [chance.choice(busy).answer(chance.randint(0, 5))] if busy else []
