"""The interfaces of what plays the episodes of jobs, and of the nodes of a cluster.

An engine is a pool of local processes, the calling process, or plays on nodes. A node runs a
server, whose methods are called without waiting for them.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, final

from esbench.core.json_text import Json
from esbench.engine.jobs import Episodes, Job, Task
from esbench.engine.setup import Setup
from esbench.environments.episode_check import (
    bounds_without_zero,
    check_episodes,
    fingerprint,
    is_deterministic,
    require_equal_processes,
)
from esbench.environments.make_environment import Wrappers
from esbench.grids.environment_files import is_proven
from esbench.grids.trial_spec import EnvironmentSpec, TrialSpec


@final
class Stopwatch:
    """Adds up the seconds of each part between laps, in ``seconds``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begin a lap; the time since the last lap is not counted."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap or start to a part."""
        last, self._last = self._last, time.perf_counter()
        self.add({part: self._last - last})

    def add(self, seconds: dict[str, float]) -> None:
        """Add the seconds of another stopwatch."""
        for part, value in seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value

    def take(self) -> dict[str, float]:
        """Return the seconds so far and reset them."""
        taken, self.seconds = self.seconds, {}
        return taken


@final
class Joined(NamedTuple):
    """A node has joined: its software was compared, and its server runs."""


@final
class Lost(NamedTuple):
    """A node is lost, with everything that runs there."""

    cause: str


class Node(ABC):
    """A machine of a cluster, which runs a server.

    Attributes:
        name: of the machine, in messages.
        cores: the number of cores that it offers.
    """

    name: str
    cores: int

    @abstractmethod
    def call(
        self, method: str, *arguments: object, shared: Any = None, aside: bool = False
    ) -> None:
        """Call a method of the server; an answer that is not None becomes an event of the node.

        Calls are executed in order, except those made ``aside``. ``shared`` is a result of
        ``Cluster.share``; the method receives it as bytes, after the arguments.
        """


class Nodes(ABC):
    """Nodes that come and go, and run servers."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait for an event, at most so long."""

    @abstractmethod
    def take(self) -> Sequence[tuple[Node, object]]:
        """All events at once: ``Joined``, ``Lost`` and the answers of servers.

        EsbenchError as ``Cluster.serve``.
        """

    @abstractmethod
    def close(self) -> None:
        """End all servers."""


class Cluster(Nodes):
    """The nodes of a cluster."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of nodes at the moment."""

    @abstractmethod
    def serve(self, server: Callable[[], object], code: Mapping[str, str]) -> None:
        """Start ``server()`` on every node that has this user code, also those that join later.

        UsageError if a node cannot be used, and no other one is in use.
        """

    @abstractmethod
    def share(self, value: object) -> Any:
        """Pickle a value for ``Node.call``; a large one is stored once for all nodes."""


Question: TypeAlias = Callable[[str, dict[str, Any], Wrappers], Any]
"""A function of an environment, its kwargs and its wrappers; its output is dropped."""


class Engine(ABC):
    """Workers that play jobs, for one trial after the other.

    The results do not depend on the engine. Use it as a context manager, or call ``close``.

    Attributes:
        is_local: whether trials side by side may use as many workers of their own instead.
        is_here: whether the calling process itself plays, which nothing can end from outside.
        slots: the largest number of environments per worker.
        cpu_time_s, watch: CPU time of all workers in jobs, and the seconds of each part of a job.
        progress: called during a job with the number of its episodes that are done, and of all.
        notice: called with a sentence about the workers, such as that a node is gone.
    """

    is_local: ClassVar[bool] = True
    is_here: ClassVar[bool] = False

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.cpu_time_s = 0.0
        self.watch = Stopwatch()
        self._answers: list[tuple[Sequence[Question], EnvironmentSpec, list[Any]]] = []
        self.progress: Callable[[int, int], None] | None = None
        self.notice: Callable[[str], None] = logging.getLogger("esbench").warning

    @final
    def __enter__(self) -> Self:
        return self

    @final
    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of workers, at the moment."""

    @property
    @abstractmethod
    def nodes(self) -> Json:
        """What ``esbench status`` shows about the nodes of a cluster; empty on this machine."""

    @abstractmethod
    def machines(self) -> Cluster | None:
        """The machines that can also run whole trials; None if there is only this one."""

    @abstractmethod
    def opener(self) -> Callable[[], Engine]:
        """What opens another engine with the same workers, or as many, in another process."""

    @abstractmethod
    def start(self) -> None:
        """Start the workers in the background if none run, as ``configure`` does."""

    @abstractmethod
    def compare_code(self, spec: TrialSpec) -> None:
        """Compare the user code of a trial with that of all machines, before they play it.

        Raises:
            UsageError: it differs or is missing on a machine that plays nothing yet.
        """

    @abstractmethod
    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Prepare the workers for a trial.

        Returns at once if they are prepared already, so trainers may share an engine in turns. Any
        exception, including Ctrl-C, ends all workers. Those of this machine append their output to
        the file ``log``.

        Raises:
            EnvironmentFailedError: a worker cannot make the environment or the policy.
        """

    @final
    def check(self, environment: EnvironmentSpec) -> None:
        """Let workers check the episodes of an environment, once per engine.

        The episodes of two processes are compared, except for an environment of ``envs/``. Returns
        without an error if a worker dies, because training then reports it.

        Raises:
            UsageError: episodes do not end, or depend on more than their seeds.
        """
        prints = [] if is_proven(environment) else self._ask_once([fingerprint] * 2, environment)
        known = len(self._answers)
        self._ask_once([check_episodes], environment)
        (warning,) = self._ask_once([bounds_without_zero], environment)
        if prints and all(prints):
            require_equal_processes(environment.id, *prints)
        if warning and len(self._answers) > known:
            self.notice(warning)

    @final
    def is_deterministic(self, environment: EnvironmentSpec) -> bool | None:
        """Let one worker find out whether seeds make no difference to episodes, once per engine.

        None if the environment fails or the worker dies.
        """
        found: bool | None
        (found,) = self._ask_once([is_deterministic], environment)
        return found

    @final
    def _ask_once(self, questions: Sequence[Question], environment: EnvironmentSpec) -> list[Any]:
        for asked, about, values in self._answers:
            if (asked, about) == (questions, environment):
                return values
        values = self.ask(questions, environment)
        self._answers.append((questions, environment, values))
        return values

    @abstractmethod
    def ask(self, questions: Sequence[Question], environment: EnvironmentSpec) -> list[Any]:
        """What processes that play nothing answer, one for each question; None if it died.

        Raises:
            UsageError: a function has raised an exception.
        """

    @abstractmethod
    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play every task once and return the results in task order.

        Any exception, including Ctrl-C, ends all workers; ``configure`` starts new ones.

        Raises:
            EnvironmentFailedError: an environment raised an exception.
            UsageError: the policy or the behavior does not support the environment.
            TrainingError: workers died too often without a result.
        """

    @abstractmethod
    def close(self) -> None:
        """End every worker at once."""
