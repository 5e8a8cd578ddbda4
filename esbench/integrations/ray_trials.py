"""The nodes of a Ray cluster as the machines that run whole trials, with one actor on each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from esbench.core.errors import UsageError
from esbench.engine.servers import Arrival, Lost, Node, Nodes
from esbench.integrations.ray_cluster import (
    ClusterNode,
    RayCluster,
    Software,
    refusal,
    software,
)

PERIOD_SECONDS: Final = 1.0  # between two looks for nodes that have joined
MAX_STARTS: Final = 5  # of the actor of one node
START_SECONDS: Final = 120.0  # for the nodes that are there at the beginning
MESSAGES: Final = "messages"  # the actor's thread that waits for messages
THREADS: Final = "OMP_NUM_THREADS"  # Ray sets it in its processes, and bits may depend on it
_NEVER: Final = float("-inf")


@final
class ServerActor:
    """A server in a process of another node; runs there."""

    def __init__(
        self, server: Callable[[], object], paths: Sequence[str], threads: str | None
    ) -> None:
        """``paths`` are those from which the driver imports modules; ``threads`` its setting."""
        sys.path += [path for path in paths if path not in sys.path]
        # Processes that start here import the main module if it has a file, and Ray's is slow.
        vars(sys.modules["__main__"]).pop("__file__", None)
        os.environ.pop(THREADS, None)
        if threads is not None:
            os.environ[THREADS] = threads
        self._server = server()

    def software(self, code: Mapping[str, str]) -> Software:
        """The software of the node, user code included."""
        return software(code)

    def call(self, method: str, arguments: Sequence[object]) -> Any:
        """Call a method of the server."""
        return getattr(self._server, method)(*arguments)


@final
class RayNode(Node):
    """A node of a Ray cluster."""

    def __init__(self, place: ClusterNode, cores: int, actor: Any) -> None:
        self.place, self.name, self.cores = place, place.host, cores
        self.actor = actor
        self.calls: list[Any] = []  # whose success is not known yet

    def call(self, method: str, *arguments: object) -> None:
        """Call a method of the server, without waiting for it; an error is the loss of the node."""
        self.calls.append(self.actor.call.remote(method, arguments))


@final
class RayNodes(Nodes):
    """The nodes of a Ray cluster, each with an actor."""

    def __init__(
        self,
        cluster: RayCluster,
        workers: int | None,
        allow_mixed: bool,
        notice: Callable[[str], None],
    ) -> None:
        """Prepare to start servers.

        Args:
            cluster: the connection, which stays open.
            workers: the workers per node; by default as many as it offers cores.
            allow_mixed: whether nodes with other software are used.
            notice: called with a sentence about a node that cannot be used.
        """
        self._cluster, self._ray = cluster, cluster.ray
        self._workers, self._allow_mixed, self._notice = workers, allow_mixed, notice
        self._server: Callable[[], object] = object
        self._code: Mapping[str, str] = {}
        self._here = software()
        self._known: set[str] = set()  # identifiers of nodes
        self._failures: dict[str, int] = {}  # to start, by identifier
        self._has_served = False  # any node
        self._starting: dict[Any, RayNode] = {}  # by the answer about its software
        self._receiving: dict[Any, RayNode] = {}  # by the messages that will arrive
        self._looked = _NEVER

    @property
    def count(self) -> int:
        """The number of living nodes that offer cores."""
        return len(self._cluster.nodes())

    def serve(self, server: Callable[[], object], code: Mapping[str, str]) -> None:
        """Start a server on every node that has this user code."""
        self._server, self._code = server, code
        self._here = self._here._replace(own_code=code)
        self._look()

    def joined(self) -> Sequence[RayNode]:
        """The nodes that are new; the first call waits for those that are there.

        UsageError if one of the first nodes cannot be used.
        """
        self._look()
        found, problems = list[RayNode](), list[str]()
        for ref in self._ready(self._starting, 0.0 if self._has_served else START_SECONDS):
            node = self._starting.pop(ref)
            if (problem := self._problem(node, ref)) is None:
                self._listen(node)
                found.append(node)
            else:
                self._ray.kill(node.actor)
                problems += [problem] if problem else []
        if problems and not self._has_served:
            raise UsageError(problems[0])
        self._has_served = self._has_served or bool(found)
        for problem in problems:
            self._notice(problem)
        return found

    def wait(self, seconds: float) -> None:
        """Wait at most so long for messages of the servers, or the loss of a node."""
        refs = [*self._starting, *self._receiving, *self._calls()]
        if refs:
            self._ray.wait(refs, timeout=seconds)
        else:
            time.sleep(seconds)

    def take(self) -> Sequence[tuple[RayNode, Sequence[Arrival] | Lost]]:
        """All messages that have arrived, or the loss of their node; at once."""
        found: list[tuple[RayNode, Sequence[Arrival] | Lost]] = []
        nodes = {**self._receiving, **self._calls()}
        for ref in self._ready(nodes, 0.0):
            node = nodes[ref]
            if node not in self._receiving.values():
                continue  # another answer has told that it is lost
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                found.append((node, Lost(f"node {node.name}: {_reason(error)}")))
                self._forget(node)
                continue
            if ref in self._receiving:
                del self._receiving[ref]
                self._listen(node)
                found.append((node, answer))
            else:
                node.calls.remove(ref)
        return found

    def close(self) -> None:
        """End the servers."""
        for node in [*self._starting.values(), *self._receiving.values()]:
            self._ray.kill(node.actor)
        self._starting, self._receiving = {}, {}

    def _look(self) -> None:
        """Start an actor on every node that is new."""
        if time.monotonic() - self._looked < PERIOD_SECONDS:
            return
        self._looked = time.monotonic()
        for place in self._cluster.nodes():
            if place.id not in self._known:
                self._known.add(place.id)
                threads = os.environ.get(THREADS)
                actor = self._cluster.start(
                    ServerActor, place, self._server, sys.path, threads, groups={MESSAGES: 1}
                )
                self._starting[actor.software.remote(self._code)] = RayNode(
                    place, self._workers or place.cores, actor
                )

    def _problem(self, node: RayNode, answer: Any) -> str | None:
        """Why a node cannot be used, empty if it may be tried again; None if it can be used."""
        try:
            difference = self._here.difference(self._ray.get(answer))
        except self._ray.exceptions.RayError as error:
            # For a while, a node that is gone counts as alive, but starts no actor.
            failures = self._failures[node.place.id] = self._failures.get(node.place.id, 0) + 1
            if failures < MAX_STARTS or node.place not in self._cluster.nodes():
                self._known.discard(node.place.id)
                return ""
            return f"node {node.name} cannot be used: {_reason(error)}"
        return refusal(node.place, difference) if difference and not self._allow_mixed else None

    def _listen(self, node: RayNode) -> None:
        call = node.actor.call.options(concurrency_group=MESSAGES)
        self._receiving[call.remote("receive", ())] = node

    def _forget(self, node: RayNode) -> None:
        """Use a node no longer, unless it is still there at the next look."""
        self._receiving = {ref: each for ref, each in self._receiving.items() if each is not node}
        self._ray.kill(node.actor)
        self._known.discard(node.place.id)
        self._looked = time.monotonic()

    def _calls(self) -> dict[Any, RayNode]:
        return {ref: node for node in self._receiving.values() for ref in node.calls}

    def _ready(self, refs: Mapping[Any, RayNode], seconds: float) -> list[Any]:
        known = list(refs)
        if not known:
            return []
        ready: list[Any] = self._ray.wait(known, num_returns=len(known), timeout=seconds)[0]
        return ready


def _reason(error: Exception) -> str:
    """What happened, of Ray's message: the error of a task, or else the first line."""
    return str(getattr(error, "cause", None) or error).strip().partition("\n")[0]
