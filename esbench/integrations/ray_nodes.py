"""The nodes of a Ray cluster, with one actor on each, which runs a server.

Arguments and answers travel as bytes, so that no array holds shared memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from esbench.core.clock import within
from esbench.core.errors import EsbenchError, TrainingError, UsageError
from esbench.core.user_code import FOLDERS
from esbench.engine.engine import Cluster, Joined, Lost, Node
from esbench.integrations.ray_cluster import ClusterNode, RayCluster, Software, software

PERIOD_SECONDS: Final = 1.0  # between two looks for nodes that have joined or are gone
START_SECONDS: Final = 120.0  # for the nodes that are there at the beginning
MAX_STARTS: Final = 5  # of the actor of one node, without an answer
# Fetching an object costs two more round trips. Larger arguments become objects in any case.
SMALL_BYTES: Final = 96 * 2**10
ASIDE: Final = "aside"  # the actor's second thread
THREADS: Final = "OMP_NUM_THREADS"  # Ray sets it in its processes, and bits may depend on it


@final
class NodeActor:
    """The actor of a node."""

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
        """What bits depend on here, user code included."""
        return software(code)

    def call(self, method: str, arguments: bytes, *shared: bytes) -> bytes | None:
        """Call a method of the server."""
        answer = getattr(self._server, method)(*pickle.loads(arguments), *shared)  # noqa: S301
        return None if answer is None else pickle.dumps(answer)


@final
class RayNode(Node):
    """A node of a Ray cluster and the actor on it."""

    def __init__(self, place: ClusterNode, cores: int, actor: Any, calls: Calls) -> None:
        """``calls`` receives the references of answers."""
        self.place, self.name, self.cores = place, place.host, cores
        self.actor, self._calls = actor, calls
        self.has_joined = self.is_used = self.is_lost = False

    def ask_software(self, code: Mapping[str, str]) -> None:
        """Ask for the software of the node, and for its user code."""
        self._calls[self.actor.software.remote(code)] = self, True

    def call(
        self, method: str, *arguments: object, shared: Any = None, aside: bool = False
    ) -> None:
        """Call a method of the server; an error is the loss of the node."""
        if self.is_lost:  # which the caller will hear
            return
        call = self.actor.call.options(concurrency_group=ASIDE) if aside else self.actor.call
        more = () if shared is None else (shared,)
        self._calls[call.remote(method, pickle.dumps(arguments), *more)] = self, False


Calls: TypeAlias = dict[Any, tuple[RayNode, bool]]
"""By the reference of an answer: its node, and whether it is about the node's software."""


@final
class RayNodes(Cluster):
    """The nodes of a Ray cluster that run a server.

    Attributes:
        mixed: how the nodes differ that ``allow_mixed`` has admitted, by host.
    """

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
        self.mixed: dict[str, str] = {}
        self._server: Callable[[], object] = object
        self._code: dict[str, str] = {}
        self._here = software()
        self._nodes: dict[str, RayNode] = {}  # by Ray's identifier
        self._calls: Calls = {}
        self._refused: set[str] = set()
        self._failures: dict[str, int] = {}  # of actors, since the last answer
        self._events: list[tuple[RayNode, object]] = []
        self._looked = -PERIOD_SECONDS

    @property
    def count(self) -> int:
        """The number of living nodes that offer cores."""
        return len(self._cluster.nodes())

    def serve(self, server: Callable[[], object], code: Mapping[str, str]) -> None:
        """Start a server on every node without one, and compare the user code of all nodes.

        Waits for the nodes that are there.
        """
        self._server = server
        if not code.items() <= self._code.items():
            self._code = {**self._code, **code}
            self._here = self._here._replace(own_code=self._code)
            for node in self._nodes.values():
                node.ask_software(self._code)
        self._look()
        for seconds in within(START_SECONDS):
            checks = [ref for ref, (_, is_check) in self._calls.items() if is_check]
            if not checks:
                break
            self._ray.wait(checks, timeout=seconds)
            self._settle()

    def share(self, value: object) -> Any:
        """Pickle a value, and put it into the object store unless it is small."""
        data = pickle.dumps(value)
        return data if len(data) <= SMALL_BYTES else self._ray.put(data)

    def wait(self, seconds: float) -> None:
        """Wait for an event, at most so long."""
        if self._events:
            return
        if self._calls:
            self._ray.wait(list(self._calls), timeout=seconds)
        else:
            time.sleep(seconds)

    def take(self) -> Sequence[tuple[RayNode, object]]:
        """All events at once."""
        self._look()
        self._settle()
        events, self._events = self._events, []
        for node, event in events:
            node.is_used = node.is_used or isinstance(event, Joined)
        return events

    def close(self) -> None:
        """End all actors; ``serve`` starts new ones."""
        nodes, self._nodes = self._nodes, {}
        self._calls.clear()
        self._events, self._looked = [], -PERIOD_SECONDS
        for node in nodes.values():
            self._ray.kill(node.actor)

    def _look(self) -> None:
        """Start an actor on every new node, and give up those of nodes that are gone."""
        if time.monotonic() - self._looked < PERIOD_SECONDS:
            return
        self._looked = time.monotonic()
        places = {place.id: place for place in self._cluster.nodes()}
        for node in [node for id_, node in self._nodes.items() if id_ not in places]:
            self._drop(node, f"node {node.name} is gone")
        for id_, place in places.items():
            if id_ not in self._nodes and id_ not in self._refused:
                threads = os.environ.get(THREADS)
                actor = self._cluster.start(
                    NodeActor,
                    place,
                    self._server,
                    [*sys.path, *FOLDERS],
                    threads,
                    groups={ASIDE: 1},
                )
                node = RayNode(place, self._workers or place.cores, actor, self._calls)
                self._nodes[id_] = node
                node.ask_software(self._code)

    def _settle(self) -> None:
        """Handle all answers that have arrived."""
        refs = list(self._calls)
        ready = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else []
        for ref in ready:
            if ref not in self._calls:
                continue  # the node has been given up meanwhile
            node, is_check = self._calls.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._fail(node, error)
                continue
            if is_check:
                self._compare(node, answer)
                continue
            self._failures.pop(node.place.id, None)
            if answer is not None:
                self._events.append((node, pickle.loads(answer)))  # noqa: S301

    def _compare(self, node: RayNode, theirs: Software) -> None:
        if theirs.own_code.keys() != self._code.keys():
            return  # an answer to an older question; the next one follows
        difference = self._here.difference(theirs)
        if difference and not self._allow_mixed:
            text = (
                f"node {node.name} would not give the same bits ({difference}); expected the same "
                "versions, processor and files of user code on every node, or --allow-mixed"
            )
            self._refuse(node, UsageError(text))
            return
        if difference:
            self.mixed[node.name] = difference
        if not node.has_joined:
            node.has_joined = True
            self._events.append((node, Joined()))

    def _fail(self, node: RayNode, error: Exception) -> None:
        """An actor is gone, perhaps with its node; ``_look`` starts another one if it is not."""
        # What its Python lacks, the error of a task, or else the first line of Ray's message.
        missing = re.search(r"No module named '[\w.]+'", str(error))
        cause = str(getattr(error, "cause", None) or error).strip().partition("\n")[0]
        reason = f"{missing[0]}; expected the packages of this machine" if missing else cause
        count = self._failures[node.place.id] = self._failures.get(node.place.id, 0) + 1
        # For a while, a node that is gone counts as alive, but starts no actor.
        if count < MAX_STARTS or node.place not in self._cluster.nodes():
            self._drop(node, f"node {node.name}: {reason}")
        else:
            text = f"node {node.name} cannot be used: its actor died {count} times: {reason}"
            self._refuse(node, TrainingError(text))

    def _refuse(self, node: RayNode, error: EsbenchError) -> None:
        """Use a node no more; raises the error if no other one is in use."""
        self._drop(node, str(error))
        if not any(other.is_used for other in self._nodes.values()):
            raise error
        self._refused.add(node.place.id)
        self._notice(str(error))

    def _drop(self, node: RayNode, cause: str) -> None:
        del self._nodes[node.place.id]
        node.is_lost = True
        for ref in [ref for ref, (each, _) in self._calls.items() if each is node]:
            del self._calls[ref]
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(node.actor)
        if node.is_used:
            self._events.append((node, Lost(cause)))
        else:  # its joining was not reported yet
            self._events = [event for event in self._events if event[0] is not node]
