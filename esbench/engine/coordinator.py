"""Shares the episodes of a job among the nodes of a cluster that may come and go.

Every node has up to two messages on the way, so that it has work while an answer travels. It gets
half of its fair share of the episodes that are not assigned yet, so the portions shrink and all
nodes end together; but at least as many as it plays during a round trip of the network, and never
more than its fair share of those without a result. When none are left, an idle node also plays
episodes that another one has, the last ones first: the first result counts, and both are the same
bits. A lost node costs the episodes that it has not reported.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from esbench.core.errors import EsbenchError
from esbench.engine.engine import Cluster, Joined, Lost, Node
from esbench.engine.jobs import EpisodeResult, Job, Task
from esbench.engine.node_player import Configured, Exchange, Report
from esbench.engine.setup import Setup

IN_FLIGHT: Final = 2  # messages per node
POLL_SECONDS: Final = 1.0
NOTICE_SECONDS: Final = 60.0  # between two notices that no node is alive


@final
@dataclass(eq=False)
class NodeShare:
    """What one node has of the current job, and what it has done so far.

    Attributes:
        held: the episodes that it has and has not reported, in the order in which it got them.
        episodes, steps, seconds: reported in all, and the time in which it had episodes.
    """

    node: Node
    held: dict[Task, None] = field(default_factory=dict)
    # Messages of this job on the way: the number of their episodes, and when they were sent.
    sent: deque[tuple[int, float]] = field(default_factory=deque)
    late: int = 0  # messages of earlier jobs on the way
    queued: int = 0  # as last reported
    dropped: list[Task] = field(default_factory=list)  # reported with the next message
    is_fresh: bool = False  # it has received nothing of a job that has just begun
    has_job: bool = False  # it has received the job
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    since: float = 0.0
    round_trip: float = 0.0  # of the network; the shortest one of this job, or else of the last
    shortest: float = math.inf  # of this job

    def begin(self) -> None:
        """Forget the last job; late messages of it are ignored."""
        self.late += len(self.sent)
        self.held, self.sent, self.queued, self.dropped = {}, deque(), 0, []
        self.is_fresh, self.has_job, self.shortest = True, False, math.inf

    @property
    def backlog(self) -> int:
        """The number of episodes that none of its workers has, at most."""
        return self.queued + sum(episodes for episodes, _ in self.sent)

    @property
    def traveling(self) -> int:
        """The number of episodes that it plays while a message and its answer travel."""
        return math.ceil(self.episodes / self.seconds * self.round_trip) if self.seconds else 0

    @property
    def steps_per_second(self) -> float:
        """Its speed so far, also of episodes that another node was faster with."""
        return self.steps / self.seconds if self.seconds else 0.0


@final
class Coordinator:
    """Plays jobs on the nodes of a cluster, which run ``NodePlayer``.

    Attributes:
        shares, workers: the nodes that play, and the number of their workers.
        losses, lost_episodes, repeated: lost nodes, the episodes that they had, and the episodes
            that were also given to a second node.
        cpu_time_s, seconds: CPU time of all nodes, and the seconds of each part of their work.
    """

    def __init__(
        self,
        nodes: Cluster,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``notice`` is called when a node is lost, and every minute while there is none."""
        self._nodes, self._notice, self._clock = nodes, notice, clock
        self._setup: tuple[Setup, str] | None = None
        self._configuring: dict[Node, int] = {}  # unanswered calls of ``configure``
        self._told = -math.inf
        self._number = 0
        self._job: Any = None
        self._pending: deque[Task] = deque()
        self._results: dict[Task, EpisodeResult] = {}
        self._holders: dict[Task, list[NodeShare]] = {}
        self._due: dict[NodeShare, None] = {}  # nodes to which there may be something to send
        self.shares: dict[Node, NodeShare] = {}
        self.workers = 0
        self.losses = self.lost_episodes = self.repeated = 0
        self.cpu_time_s = 0.0
        self.seconds: dict[str, float] = {}

    def configure(self, setup: Setup, log: str) -> None:
        """Prepare the nodes for a trial, and wait until those that have joined are ready.

        Raises:
            EsbenchError: a node has reported an error.
        """
        self._setup = setup, log
        for node in self._configuring:
            self._configure(node)
        self.listen(0)
        while any(self._configuring.values()) or not self.shares:
            if not any(self._configuring.values()):
                self._wait()
            self.listen(POLL_SECONDS)

    def play(
        self, job: Job, tasks: Sequence[Task], progress: Callable[[int, int], None] | None = None
    ) -> dict[Task, EpisodeResult]:
        """Play every task once; the results are in no particular order.

        Raises:
            EsbenchError: a node has reported an error.
        """
        self._number += 1
        self._job = self._nodes.share(job)
        self._pending, self._results, self._holders = deque(tasks), {}, {}
        for share in self.shares.values():
            share.begin()
        self._due = dict.fromkeys(self.shares.values())
        total, told = len(tasks), -1
        while len(self._results) < total:
            if not self.shares:
                self._wait()
            due, self._due = self._due, {}
            for share in due:
                self._supply(share, total)
            self.listen(POLL_SECONDS)
            if progress is not None and len(self._results) > told:
                told = len(self._results)
                progress(told, total)
        for node, share in self.shares.items():
            if share.sent:
                node.call("abandon", self._number, aside=True)
        results, self._results, self._holders, self._job = self._results, {}, {}, None
        return results

    def listen(self, seconds: float) -> None:
        """Handle events, after waiting for the first one for at most ``seconds``."""
        self._nodes.wait(seconds)
        for node, event in self._nodes.take():
            match event:
                case Joined():
                    self._configuring[node] = 0
                    self._configure(node)
                case Configured():
                    self._configuring[node] -= 1
                    if node not in self.shares:
                        share = self.shares[node] = NodeShare(node)
                        self.workers += node.cores
                        self._due[share] = None
                case Report():
                    self._count(self.shares[node], event)
                case EsbenchError():
                    raise event.of(f"node {node.name}")
                case Lost():
                    del self._configuring[node]
                    if node in self.shares:
                        self._lose(node)

    def clear(self) -> None:
        """Forget all nodes, which have ended."""
        self._configuring, self.shares, self._due = {}, {}, {}
        self._setup, self.workers = None, 0

    def _configure(self, node: Node) -> None:
        if self._setup is not None:
            self._configuring[node] += 1
            node.call("configure", *self._setup, node.cores)

    def _wait(self) -> None:
        if self._clock() - self._told >= NOTICE_SECONDS:
            self._told = self._clock()
            self._notice("no node of the Ray cluster is alive; waiting for one to join")

    def _supply(self, share: NodeShare, total: int) -> None:
        """Send a node what it should play next, if it has not yet enough."""
        if not (self._pending or share.held) and not share.sent:
            self._repeat(share)
        part = share.node.cores / self.workers
        # Not while earlier messages are unanswered.
        while len(share.sent) < IN_FLIGHT and share.late <= IN_FLIGHT:
            fair = math.ceil((total - len(self._results)) * part) - len(share.held)
            least = max(share.node.cores, share.traveling)
            count = min(max(int(len(self._pending) * part / 2), least), fair)
            if share.is_fresh:
                count = math.ceil(total * part / 2)
            elif share.held and share.backlog > 2 * count:  # a report can be out of date
                count = 0
            tasks = [self._pending.popleft() for _ in range(min(count, len(self._pending)))]
            if not tasks and (share.sent or not share.held):
                return
            self._send(share, tasks, total)

    def _send(self, share: NodeShare, tasks: Sequence[Task], total: int) -> None:
        if not share.held:
            share.since = self._clock()
        for task in tasks:
            share.held[task] = None
            self._holders.setdefault(task, []).append(share)
        dropped, share.dropped = share.dropped, []
        own = max(len(tasks), math.ceil(total * share.node.cores / self.workers))
        share.is_fresh = False
        share.sent.append((len(tasks), self._clock()))
        ahead = bool(tasks and self._pending)
        job, share.has_job = None if share.has_job else self._job, True
        message = Exchange(self._number, tasks, dropped, own, ahead)
        share.node.call("exchange", message, shared=job)

    def _repeat(self, idle: NodeShare) -> None:
        """Let an idle node also play episodes of the node that has had one for the longest time."""
        oldest = next(iter(self._holders), None)
        if oldest is None:
            return
        alone = len(self._holders[oldest]) == 1  # else, every episode has been repeated
        slowest = self._holders[oldest][0]
        tasks = [
            task
            for task in slowest.held
            if (len(self._holders[task]) == 1 if alone else idle not in self._holders[task])
        ]
        tasks = tasks[len(tasks) // 2 :]
        if tasks:
            for task in tasks:  # other idle nodes repeat others first
                self._holders[task] = self._holders.pop(task)
            self.repeated += len(tasks)
            self._send(idle, tasks[::-1], len(tasks))

    def _count(self, share: NodeShare, report: Report) -> None:
        self._due[share] = None
        self.cpu_time_s += report.cpu_time_s
        for part, value in report.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value
        share.episodes += len(report.results)
        share.steps += sum(result.length for result in report.results)
        if report.number != self._number:
            share.late -= 1
            return
        now = self._clock()
        _, sent = share.sent.popleft()
        share.round_trip = share.shortest = min(share.shortest, now - sent - report.busy_s)
        share.seconds, share.since = share.seconds + now - share.since, now
        share.queued = report.queued
        for result in report.results:
            self._results.setdefault(result.task, result)
            for holder in self._holders.pop(result.task, ()):
                del holder.held[result.task]
                if holder is not share:
                    holder.dropped.append(result.task)

    def _lose(self, node: Node) -> None:
        self._notice(f"node {node.name} is gone; its episodes are played again")
        share = self.shares.pop(node)
        self.workers -= node.cores
        self._due = dict.fromkeys(self.shares.values())  # an idle node may take its episodes
        self.losses += 1
        orphans = []
        for task in share.held:
            self._holders[task].remove(share)
            if not self._holders[task]:
                del self._holders[task]
                orphans.append(task)
        self.lost_episodes += len(orphans)
        self._pending.extendleft(reversed(orphans))
