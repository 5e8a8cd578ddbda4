"""Coordinator time per episode with workers that return at once: the table in docs/experiments.

Every fake node answers in this process with bytes, as an actor does, so the time includes
serialization on both sides, but no network. ``python
tests/campaigns/ray_coordinator.py`` prints Markdown.
"""

from __future__ import annotations

import pickle
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esbench import make_algorithm
from esbench.core.seeding import Purpose
from esbench.engine.coordinator import (
    Coordinator,
    Fleet,
    NodeAnswered,
    NodeJoined,
    PlayingNode,
    PoolEvent,
)
from esbench.engine.jobs import EpisodeResult, Job, Task, member_tasks
from esbench.engine.node_player import Report

MOMENTS = 17  # observations of HalfCheetah-v5


class InstantNode(PlayingNode):
    """Answers every message with all results."""

    def __init__(self, workers: int) -> None:
        self.host, self.workers = "fake", workers
        self.messages: deque[bytes] = deque()
        self.spent = 0.0  # on the node's side of the messages

    def exchange(self, message: Any) -> None:
        self.messages.append(pickle.dumps(message))

    def abandon(self, number: int) -> None:
        """There is nothing to abandon."""

    def answer(self) -> bytes:
        started = time.process_time()
        message = pickle.loads(self.messages.popleft())  # noqa: S301
        moments = (1000, np.zeros(MOMENTS), np.zeros(MOMENTS))
        results = [EpisodeResult(Task(*task), 1.0, 1000, moments) for task in message.tasks]
        packed = pickle.dumps(Report(message.number, results, 0, 0.0, {}, 0.0))
        self.spent += time.process_time() - started
        return packed


class InstantFleet(Fleet):
    """Nodes with ``each`` workers, ``workers`` in all."""

    def __init__(self, workers: int, each: int) -> None:
        counts = [each] * (workers // each) or [workers]
        self.nodes = [InstantNode(count) for count in counts]
        self._new: list[PoolEvent] = [NodeJoined(node) for node in self.nodes]
        self.job_seconds = 0.0
        self.job_bytes = 0

    def begin(self, number: int, job: Job) -> None:
        started = time.process_time()
        self.job_bytes = len(pickle.dumps(job))
        self.job_seconds = time.process_time() - started

    def events(self, seconds: float) -> Sequence[PoolEvent]:
        new, self._new = self._new, []
        found = [(node, node.answer()) for node in self.nodes if node.messages]
        answers = [NodeAnswered(node, pickle.loads(text)) for node, text in found]  # noqa: S301
        return [*new, *answers]


def measure(workers: int, size: int, parameters: int, each: int) -> tuple[float, float, int, float]:
    """Microseconds per episode, of a job, its bytes, and the peak of memory [MB]."""
    algorithm = make_algorithm("openai_es", num_params=parameters, population_size=size)
    population = algorithm.ask()
    job = Job(0, 0, Purpose.TRAINING_EPISODE, population, algorithm.center, episodes=1)
    fleet = InstantFleet(workers, each)
    coordinator, tasks = Coordinator(fleet), member_tasks(range(size), 1)
    coordinator.play(job, tasks[:1])
    best = np.inf
    for _ in range(2):
        for node in fleet.nodes:
            node.spent = 0.0
        started = time.process_time()
        coordinator.play(job, tasks)
        spent = time.process_time() - started - sum(node.spent for node in fleet.nodes)
        best = min(best, spent - fleet.job_seconds)
    tracemalloc.start()
    coordinator.play(job, tasks)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return 1e6 * best / size, 1e3 * fleet.job_seconds, fleet.job_bytes, peak


def main(out: Path | None) -> None:
    columns = ["Workers", "Workers per node", "Population", "Parameters", "µs per episode"]
    columns += ["Job [ms]", "Job [MB]", "Peak memory [MB]"]
    lines = [f"| {' | '.join(columns)} |", "|" + " --: |" * len(columns)]
    fleets, sizes = ((1, 1), (64, 64), (1000, 1), (960, 64)), (256, 10_000, 100_000)
    cases = [(w, n, p, e) for p in (5_000, 1_700_000) for w, e in fleets for n in sizes]
    for workers, size, parameters, each in cases:
        episode, job, length, peak = measure(workers, size, parameters, each)
        lines.append(
            f"| {workers:,} | {each} | {size:,} | {parameters:,} | {episode:.0f} | {job:.1f} | "
            f"{length / 1e6:.2f} | {peak:.0f} |"
        )
        print(lines[-1], flush=True)
    if out is not None:
        out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
