"""The nodes of a Ray cluster that play episodes for a driver (the extra ``ray``).

One actor per node runs the pool of the local engine there. A small job travels with the first
message to each node; a large one is put into Ray's object store once. Portions of episodes and
their results travel as bytes, so that no array of a result holds shared memory.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from esbench.core.errors import EsbenchError, TrainingError, UsageError
from esbench.engine.coordinator import (
    POLL_SECONDS,
    Fleet,
    NodeAnswered,
    NodeJoined,
    NodeLost,
    PlayingNode,
    PoolEvent,
)
from esbench.engine.jobs import Job
from esbench.engine.node_player import Exchange, Failure, NodePlayer
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import DEFAULT_SLOTS, MAX_DEATHS
from esbench.integrations.ray_cluster import (
    ClusterNode,
    RayCluster,
    Software,
    refusal,
    software,
)

# Fetching an object costs two more round trips. Larger arguments become objects in any case.
SMALL_JOB_BYTES: Final = 96 * 2**10
MAX_STARTS: Final = 5  # actors of a node that die before they answer
CONTROL: Final = "control"  # the actor's thread that is never busy
Call: TypeAlias = Literal["software", "configure", "exchange"]


def loaded(job: Sequence[Any], get: Callable[[Any], Any]) -> Job:
    """The job whose bytes are in ``job``, or whose reference is; ``get`` is that of Ray."""
    (found,) = job
    result: Job = pickle.loads(found if isinstance(found, bytes) else get(found))  # noqa: S301
    return result


@final
class NodeActor:
    """The actor of a node."""

    def __init__(self, paths: Sequence[str], workers: int, slots: int) -> None:
        """``paths`` are those from which the driver imports the user's modules."""
        sys.path += [path for path in paths if path not in sys.path]
        # Else every worker process would import the main module of the actor, and Ray with it.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._player = NodePlayer(workers, slots)

    def software(self, code: Mapping[str, str]) -> Software:
        """What bits depend on here, user code included."""
        return software(code)

    def configure(self, setup: bytes, log: str) -> Failure | None:
        """Prepare the workers for a trial."""
        return self._player.configure(pickle.loads(setup), Path(log))  # noqa: S301

    def exchange(self, message: bytes, job: Sequence[Any]) -> bytes:
        """Play episodes; returns an ``Answer``.

        With the first message of a job, ``job`` holds its bytes or the reference of its bytes.
        """
        import ray

        load = partial(loaded, job, ray.get)
        return pickle.dumps(self._player.exchange(pickle.loads(message), load))  # noqa: S301

    def abandon(self, number: int) -> None:
        """Play no more episodes of this job and those before it."""
        self._player.abandon(number)


@final
class RayPlayingNode(PlayingNode):
    """A node and the actor on it."""

    def __init__(self, fleet: RayFleet, place: ClusterNode, workers: int) -> None:
        self.place, self.host, self.workers = place, place.host, workers
        self._fleet = fleet
        self._number = -1  # of the last job that it was sent
        self._actor = fleet.cluster.start(
            NodeActor, place, sys.path, workers, DEFAULT_SLOTS, groups={CONTROL: 1}
        )
        self.has_joined = False
        self.has_answered = False
        self.check(fleet.code)

    def check(self, code: Mapping[str, str]) -> None:
        """Ask for its software and user code, without waiting."""
        self._call("software", code)

    def configure(self, setup: bytes, log: str) -> None:
        """Prepare for a trial, without waiting."""
        self._call("configure", setup, log)

    def exchange(self, message: Exchange) -> None:
        """Send a message, without waiting."""
        job = [self._fleet.job] if message.number != self._number else []
        self._number = message.number
        self._call("exchange", pickle.dumps(message), job)

    def abandon(self, number: int) -> None:
        """Tell the actor that a job is over."""
        self._actor.abandon.options(concurrency_group=CONTROL).remote(number)

    def end(self) -> None:
        """End the actor and with it the workers."""
        self._fleet.cluster.ray.kill(self._actor)

    def _call(self, name: Call, *arguments: object) -> None:
        answer = getattr(self._actor, name).remote(*arguments)
        self._fleet.calls[answer] = self, name


@final
class RayFleet(Fleet):
    """The nodes of a cluster: those that join are checked and prepared before they play.

    Attributes:
        job: the bytes of the current job, or their reference.
        calls: the calls without an answer, by the reference of the answer.
        code: the user code that is compared.
        mixed: how the nodes differ that ``allow_mixed`` has admitted, by host.
    """

    def __init__(
        self,
        cluster: RayCluster,
        workers: int | None,
        allow_mixed: bool,
        notice: Callable[[str], None],
    ) -> None:
        """``notice`` is called with a sentence about a node."""
        self.cluster = cluster
        self.calls: dict[Any, tuple[RayPlayingNode, Call]] = {}
        self.job: Any = None
        self.code: dict[str, str] = {}
        self.mixed: dict[str, str] = {}
        self._notice = notice
        self._workers = workers
        self._allow_mixed = allow_mixed
        self._software = software()
        self._nodes: dict[str, RayPlayingNode] = {}  # by the identifier of Ray
        self._refused: set[str] = set()
        self._deaths: dict[str, int] = {}  # of actors without an answer between
        self._setup: tuple[bytes, str] | None = None
        self._old_job: Any = None  # a late message may still name it
        self._looked = -POLL_SECONDS

    @property
    def is_preparing(self) -> bool:
        """Whether a node is being checked or prepared."""
        return any(name != "exchange" for _, name in self.calls.values())

    def look(self) -> list[PoolEvent]:
        """Start an actor on every new node, and give up those of nodes that are gone."""
        now = time.monotonic()
        if now - self._looked < POLL_SECONDS:
            return []
        self._looked = now
        places = {place.id: place for place in self.cluster.nodes()}
        lost = [node for id_, node in self._nodes.items() if id_ not in places]
        events: list[PoolEvent] = [event for node in lost for event in self._lose(node)]
        for id_, place in places.items():
            if id_ not in self._nodes and id_ not in self._refused:
                self._nodes[id_] = RayPlayingNode(self, place, self._workers or place.cores)
        return events

    def compare(self, code: Mapping[str, str]) -> None:
        """Compare this user code, too, with that of all nodes, those that join later included."""
        if not code.items() <= self.code.items():
            self.code = {**self.code, **code}
            self._software = self._software._replace(own_code=self.code)
            for node in self._nodes.values():
                node.check(self.code)

    def configure(self, setup: Setup, log: str) -> None:
        """Let every node prepare for a trial, those that join later too."""
        self._setup = pickle.dumps(setup), log
        for node in self._nodes.values():
            if node.has_answered:  # else, once it was checked
                node.configure(*self._setup)

    def begin(self, number: int, job: Job) -> None:
        """Pickle a job, and put it into the object store unless it is small."""
        data = pickle.dumps(job)
        is_small = len(data) <= SMALL_JOB_BYTES
        self._old_job, self.job = self.job, data if is_small else self.cluster.ray.put(data)

    def events(self, seconds: float) -> list[PoolEvent]:
        """Wait for events: answers, and nodes that joined or are gone."""
        events = self.look()
        if not self.calls:
            time.sleep(0 if events else seconds)
            return events
        ray = self.cluster.ray
        if ray.wait(list(self.calls), timeout=0 if events else seconds)[0]:
            refs = list(self.calls)
            for ref in ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
                if ref in self.calls:  # its node may have been given up meanwhile
                    events += self._answered(ref)
        return events

    def end(self) -> None:
        """End all actors; ``look`` starts new ones."""
        for node in self._nodes.values():
            node.end()
        self.calls, self._nodes, self._setup, self._looked = {}, {}, None, -POLL_SECONDS

    def _answered(self, ref: Any) -> Sequence[PoolEvent]:
        ray = self.cluster.ray
        node, name = self.calls.pop(ref)
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:  # for example, a module is missing there
            raise TrainingError(f"node {node.host}: {error.cause or error}") from None
        except ray.exceptions.RayError as error:
            return self._died(node, error)
        node.has_answered = True
        if name != "software":
            self._deaths.pop(node.place.id, None)
        if name == "software":
            return self._checked(node, answer)
        answer = pickle.loads(answer) if name == "exchange" else answer  # noqa: S301
        if isinstance(answer, Failure):
            raise answer.error(node.host)
        if name == "exchange":
            return [NodeAnswered(node, answer)]
        if node.has_joined:
            return []
        node.has_joined = True
        return [NodeJoined(node)]

    def _checked(self, node: RayPlayingNode, theirs: Software) -> Sequence[PoolEvent]:
        if theirs.own_code.keys() != self.code.keys():
            return []  # an answer to an older question; the next one follows
        if difference := self._software.difference(theirs):
            if not self._allow_mixed:
                return self._refuse(node, UsageError(refusal(node.place, difference)))
            self.mixed[node.host] = difference
        if self._setup is not None and not node.has_joined:
            node.configure(*self._setup)
        return []

    def _died(self, node: RayPlayingNode, error: Exception) -> Sequence[PoolEvent]:
        """An actor is gone, perhaps with its node; ``look`` starts another one if it is not."""
        id_, reason = node.place.id, " ".join(str(error).split())
        deaths = self._deaths[id_] = self._deaths.get(id_, 0) + 1
        # For a while, a node that is gone counts as alive, but starts no actor.
        if deaths >= (MAX_DEATHS if node.has_answered else MAX_STARTS):
            text = f"node {node.host}: its actor died {deaths} times without a result: {reason}"
            return self._refuse(node, TrainingError(text))
        return self._lose(node)

    def _refuse(self, node: RayPlayingNode, error: EsbenchError) -> Sequence[PoolEvent]:
        """Do not use a node; raises the error if there is no other one."""
        others = [other for other in self._nodes.values() if other is not node]
        if not any(other.has_joined for other in others):
            raise error
        self._refused.add(node.place.id)
        self._notice(str(error))
        return self._lose(node)

    def _lose(self, node: RayPlayingNode) -> Sequence[PoolEvent]:
        self.calls = {ref: call for ref, call in self.calls.items() if call[0] is not node}
        del self._nodes[node.place.id]
        with contextlib.suppress(self.cluster.ray.exceptions.RayError):
            node.end()
        if not node.has_joined:
            return []
        self._notice(f"node {node.host} is gone; its episodes are played again")
        return [NodeLost(node)]
