"""The engine that plays the episodes of jobs on the nodes of a Ray cluster (the extra ``ray``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.engine.coordinator import Coordinator
from esbench.engine.engine import Engine, Question
from esbench.engine.jobs import Episodes, Job, Task, collect
from esbench.engine.node_player import NodePlayer
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import DEFAULT_SLOTS, WorkerPool
from esbench.grids.trial_spec import EnvironmentSpec, TrialSpec
from esbench.integrations.ray_cluster import RayCluster
from esbench.integrations.ray_nodes import RayNodes
from esbench.store.own_code import importable_code


@final
class RayEngine(Engine):
    """The nodes of a Ray cluster as workers; the results are those of the local engine.

    >>> with RayEngine("10.0.0.1:6379") as engine:  # doctest: +SKIP
    ...     esbench.make_trainer("openai_es", env="Ant-v5", engine=engine).train()
    """

    is_local: ClassVar[bool] = False

    def __init__(
        self, address: str | None = None, workers: int | None = None, allow_mixed: bool = False
    ) -> None:
        """Connect to a cluster and compare the nodes that are alive now.

        Args:
            address: HOST:PORT of its head; None starts a Ray of this machine alone.
            workers: worker processes per node; default one per CPU that the node offers to Ray.
            allow_mixed: also use nodes with other versions, processors or user code.

        Raises:
            UsageError: Ray is not installed, the address is wrong, ``workers`` is below 1, or a
                node differs.
        """
        super().__init__(DEFAULT_SLOTS)
        if workers is not None and workers < 1:
            raise UsageError(f"workers = {workers}: expected at least 1")
        self._workers, self._allow_mixed = workers, allow_mixed
        self._wanted: tuple[Setup, str] | None = None
        self._checker: WorkerPool | None = None
        self._cluster = RayCluster(address)
        self._nodes = self.machines()
        self._coordinator = Coordinator(self._nodes, lambda text: self.notice(text))
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """The number of workers of all nodes that are ready, or will be."""
        known = self._coordinator.workers
        return known or sum(self._workers or place.cores for place in self._cluster.nodes())

    @property
    def nodes(self) -> Json:
        """The nodes with their speed and the episodes in flight, and what was lost."""
        coordinator = self._coordinator
        return {
            "nodes": [
                {
                    "host": node.name,
                    "workers": node.cores,
                    "steps_per_second": share.steps_per_second,
                    "in_flight": len(share.held),
                }
                for node, share in coordinator.shares.items()
            ],
            "losses": coordinator.losses,
            "lost_episodes": coordinator.lost_episodes,
            "repeated_episodes": coordinator.repeated,
            "mixed": self._nodes.mixed,
        }

    def machines(self) -> RayNodes:
        """The nodes of the cluster."""
        options = self._cluster, self._workers, self._allow_mixed
        return RayNodes(*options, lambda text: self.notice(text))

    def opener(self) -> Callable[[], RayEngine]:
        """An engine on the same nodes, which have actors for each."""
        options = self._cluster.head, self._workers, self._allow_mixed
        return partial(_join, *options, self._cluster.is_local)

    def start(self) -> None:
        """Start an actor on every node without one, and wait for the nodes that are there."""
        self._nodes.serve(NodePlayer, {})

    def compare_code(self, spec: TrialSpec) -> None:
        """Compare the user code of a trial with that of the nodes, those that join included."""
        with self._ending_workers():
            self._nodes.serve(NodePlayer, importable_code([spec]))

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Prepare the nodes for a trial and wait until those that are alive now are ready."""
        wanted = setup, str(log if log and self._cluster.is_local else os.devnull)
        if wanted == self._wanted:
            return
        with self._ending_workers():
            self.start()
            self._coordinator.configure(*wanted)
        self._wanted = wanted

    def ask(self, questions: Sequence[Question], environment: EnvironmentSpec) -> list[Any]:
        """What workers on this machine answer."""
        self._checker = self._checker or WorkerPool(1)
        return self._checker.ask(questions, environment)

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play every task once and return the results in task order."""
        assert self._wanted is not None, "configure first"
        coordinator = self._coordinator
        with self._ending_workers():
            results = coordinator.play(job, tasks, self.progress)
        self.cpu_time_s = coordinator.cpu_time_s
        self.watch.add(coordinator.seconds)
        coordinator.seconds = {}
        return collect(tasks, results)

    def close(self) -> None:
        """End all workers and disconnect."""
        if self._checker is not None:
            self._checker.close()
        self._end_workers()
        self._cluster.close()

    @contextlib.contextmanager
    def _ending_workers(self) -> Iterator[None]:
        """End all workers if there is an error, or an interrupt."""
        try:
            yield
        except BaseException:
            self._end_workers()
            raise

    def _end_workers(self) -> None:
        self._wanted = None
        self._coordinator.clear()
        with contextlib.suppress(Exception):  # the connection may be what failed
            self._nodes.close()


def _join(address: str, workers: int | None, allow_mixed: bool, is_local: bool) -> RayEngine:
    engine = RayEngine(address, workers, allow_mixed)
    engine._cluster.is_local = is_local
    return engine
