"""A Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

import os
import warnings
from typing import Any, final


@final
class Nodes:
    """A head that runs no work, and nodes with one worker each."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Only what runs in this process is of interest.
        os.environ["RAY_enable_metrics_collection"] = "0"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            self._cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": 0, "object_store_memory": 80 * 2**20},
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

    def close(self) -> None:
        self._cluster.shutdown()
