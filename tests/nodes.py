"""Machines of a cluster as threads of the tests' process: each has a trial server of its own."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, final

from esbench.engine.engine import Joined, Lost, Node, Nodes
from esbench.experiment.trial_processes import TrialServer


@final
class LocalNode(Node):
    """A node that can be lost: its processes are killed and their messages dropped."""

    def __init__(self, cluster: "LocalNodes", name: str, cores: int) -> None:
        self.name, self.cores = name, cores
        self.is_lost = False
        self._cluster = cluster
        self._server = TrialServer()

    def call(self, method: str, *arguments: Any, shared: Any = None, aside: bool = False) -> None:
        if aside:
            threading.Thread(target=self._receive, daemon=True).start()
            return
        if not self.is_lost:
            getattr(self._server, method)(*arguments)

    def kill_processes(self) -> None:
        """Kill the trial processes, whose workers end with them, and wait until they are gone."""
        for child in list(self._server._children.values()):
            child.process.kill()
        while self._server._children:
            time.sleep(0.01)

    def _receive(self) -> None:
        self._cluster.post(self, self._server.receive())


@final
class LocalNodes(Nodes):
    """Nodes that can join and be lost at any time."""

    def __init__(self, cores: int = 1) -> None:
        self.all: list[LocalNode] = []
        self._cores = cores
        self._arrived: deque[tuple[LocalNode, object]] = deque()
        self._changed = threading.Condition()

    def add(self) -> LocalNode:
        node = LocalNode(self, f"node-{len(self.all)}", self._cores)
        self.all.append(node)
        self.post(node, Joined())
        return node

    def lose(self, node: LocalNode) -> None:
        """Cut a node off."""
        node.is_lost = True
        node.kill_processes()
        with self._changed:
            self._arrived = deque(item for item in self._arrived if item[0] is not node)
            self._arrived.append((node, Lost(f"{node.name} was lost")))

    def restart(self) -> None:
        """Replace all nodes by new ones, for the next grid."""
        self.close()
        for number in range(len(self.all)):
            self.all[number] = LocalNode(self, f"node-{number}", self._cores)
            self.post(self.all[number], Joined())

    def close(self) -> None:
        for node in self.all:
            node.is_lost = True
            node.kill_processes()

    def post(self, node: LocalNode, arrived: object) -> None:
        with self._changed:
            if not node.is_lost:
                self._arrived.append((node, arrived))
                self._changed.notify()

    def wait(self, seconds: float) -> None:
        with self._changed:
            if not self._arrived:
                self._changed.wait(seconds)

    def take(self) -> Sequence[tuple[LocalNode, object]]:
        with self._changed:
            found, self._arrived = list(self._arrived), deque()
        return found
