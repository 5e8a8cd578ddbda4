"""A Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from pathlib import Path
from typing import Any, final

import pytest


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process has ended."""
    status = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return int(status[1]) if status else 0


@final
class Nodes:
    """A head that runs no work, and nodes with one worker each."""

    def __init__(self) -> None:
        if "ESBENCH_TEST_RAY" not in os.environ:
            pytest.skip("clusters of Ray take minutes on two cores: tox -e ray")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            self._cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={
                    "num_cpus": 0,
                    "object_store_memory": 80 * 2**20,
                    "_system_config": {"worker_niceness": 0},
                },
            )
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, wait: bool = True) -> Any:
        """Add a node with one worker."""
        node = self._cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, wait=wait)
        self.nodes.append(node)
        return node

    def resize(self, count: int) -> None:
        """Add or remove nodes until there are ``count``."""
        while len(self.nodes) < count:
            self.add()
        while len(self.nodes) > count:
            self.kill(self.nodes[-1])

    def kill(self, node: Any) -> None:
        """Kill the processes of a node."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_actor(self, node: Any) -> None:
        """Kill the processes of the actors on a node."""
        for pid in self._actors():
            if parent(pid) == node.all_processes["raylet"][0].process.pid:
                os.kill(pid, signal.SIGKILL)

    def freeze(self, node: Any, frozen: bool = True) -> None:
        """Stop the processes of a node without a trace, as a cut network does, or let them go on.

        Ray counts a node as lost after about half a minute.
        """
        raylet = node.all_processes["raylet"][0].process.pid
        actors = [pid for pid in self._actors() if parent(pid) == raylet]
        for pid in [raylet, *actors]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def count_actors(self) -> int:
        """The number of actors that play episodes on the nodes."""
        raylets = {node.all_processes["raylet"][0].process.pid for node in self.nodes}
        return sum(parent(pid) in raylets for pid in self._actors())

    def _actors(self) -> list[int]:
        names = {path.parent.name: read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
        return [int(pid) for pid, name in names.items() if name.startswith("ray::NodeActor")]

    def close(self) -> None:
        self._cluster.shutdown()
