"""Nodes behind a slow network, in simulated time: they play and report as ``NodePlayer`` does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, final

from fake_fleet import FakeFleet, result_of

from esbench.engine.engine import Joined, Node
from esbench.engine.jobs import EpisodeResult, Task
from esbench.engine.node_player import REPORT_SECONDS, STEP_SECONDS, Configured, Exchange, Report
from esbench.engine.worker_pool import DEFAULT_SLOTS

NEVER: Final = float("inf")
ROUNDING: Final = 1e-9


@final
class DelayedNode(Node):
    """Workers with slots: the episodes that are played share them evenly."""

    def __init__(self, fleet: DelayedFleet, cores: int, slots: int, episode_s: float) -> None:
        self.name, self.cores = "delayed", cores
        self.messages: deque[tuple[float, Exchange]] = deque()
        self._fleet, self._slots, self._episode_s = fleet, cores * slots, episode_s
        self._number = self._abandoned = 0
        self._queue: dict[Task, None] = {}
        self._left: dict[Task, float] = {}  # of the episodes that are played: seconds of a worker
        self._now = self._free = 0.0  # until when it has played; since when it has no message
        self._answer: tuple[float, Report] | None = None

    def call(self, method: str, *arguments: Any, shared: Any = None, aside: bool = False) -> None:
        (argument,) = arguments
        if method == "exchange":
            self.messages.append((self._fleet.now + self._fleet.delay, argument))
            return
        self._abandoned = argument
        heard = self._fleet.now + self._fleet.delay + STEP_SECONDS
        if self._answer is not None and heard < self._free:
            self._free = heard
            report = self._answer[1]._replace(results=[], busy_s=0.0)
            self._answer = heard + self._fleet.delay, report

    @property
    def next_time(self) -> float:
        """When its next answer arrives."""
        if self._answer is None and self.messages:
            arrived, message = self.messages[0]
            started = max(arrived, self._free)
            results, self._free = self._play(message, started)
            report = Report(
                message.number, results, len(self._queue), 0.0, {}, self._free - started
            )
            self._answer = self._free + self._fleet.delay, report
        return self._answer[0] if self._answer else NEVER

    def take(self) -> Report:
        """The answer that has arrived."""
        assert self._answer is not None
        self.messages.popleft()
        (_, report), self._answer = self._answer, None
        return report

    def _play(self, message: Exchange, now: float) -> tuple[list[EpisodeResult], float]:
        results: list[EpisodeResult] = []
        if message.number <= self._abandoned:
            return results, now
        if message.number != self._number:
            self._number, self._queue, self._left = message.number, {}, {}
        else:
            results += self._play_until(now)
        self._now = now
        for task in message.dropped:
            self._queue.pop(task, None)
        self._queue |= dict.fromkeys(message.tasks)
        deadline = now + REPORT_SECONDS
        while True:
            self._fill()
            asks = not self._queue and (results or message.ahead)
            if asks or not self._left or self._now >= deadline:
                return results, self._now
            results += self._play_until(min(deadline, self._next_end))

    def _fill(self) -> None:
        for task in list(self._queue)[: self._slots - len(self._left)]:
            del self._queue[task]
            self._left[task] = self._episode_s

    @property
    def _rate(self) -> float:
        """The workers that each episode has."""
        return min(1.0, self.cores / len(self._left))

    @property
    def _next_end(self) -> float:
        return self._now + min(self._left.values()) / self._rate if self._left else NEVER

    def _play_until(self, then: float) -> list[EpisodeResult]:
        results: list[EpisodeResult] = []
        while self._left:
            end = min(then, self._next_end)
            played, self._now = (end - self._now) * self._rate, end
            self._left = {task: left - played for task, left in self._left.items()}
            ended = [task for task, left in self._left.items() if left < ROUNDING]
            for task in ended:
                del self._left[task]
            results += map(result_of, ended)
            if end >= then:
                break
        return results


@final
class DelayedFleet(FakeFleet):
    """Nodes of the same speed; a message takes ``delay`` seconds each way."""

    def __init__(
        self, nodes: int, cores: int, episode_s: float, delay: float, slots: int = DEFAULT_SLOTS
    ) -> None:
        self.now, self.delay = 0.0, delay
        self.nodes = [DelayedNode(self, cores, slots, episode_s) for _ in range(nodes)]
        self._joining = [(node, event) for node in self.nodes for event in (Joined(), Configured())]

    def take(self) -> Sequence[tuple[Node, object]]:
        joining, self._joining = self._joining, []
        if joining:
            return joining
        node = min(self.nodes, key=lambda node: node.next_time)
        if node.next_time > self.now + self.patience:
            self.now += self.patience
            return []
        self.now = max(self.now, node.next_time)
        return [(node, node.take())]
