"""The trial processes of one node, for a driver on another one that has the folders."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import Any, Final, NamedTuple, TypeAlias, final

from esbench.core.errors import TrainingError
from esbench.engine.child_process import Child, end
from esbench.engine.worker_pool import PATIENCE
from esbench.experiment.trial_processes import TrialArguments, trial_main

MOST_MESSAGES: Final = 100  # that wait for the driver; then the trials wait

Arrival: TypeAlias = tuple[int, Any]
"""The number of a place, and a message of the process there."""


@final
class Died(NamedTuple):
    """A trial process has died, or did not start."""

    cause: str


@final
class TrialServer:
    """Processes that run one trial at a time each, in numbered places. Its methods are thread-safe.

    Every message is passed on once and in order. The last one of a process is ``Died``.
    """

    def __init__(self) -> None:
        self._arrived: queue.Queue[Arrival] = queue.Queue(MOST_MESSAGES)
        self._children: dict[int, Child] = {}
        self._deaths: Counter[int] = Counter()  # messages of ``Died`` by place
        self._lock = threading.Lock()
        self._stopped = False

    def assign(self, place: int, deaths: int, arguments: TrialArguments, work: object) -> None:
        """Send work to the process of a place, which starts with ``arguments`` if there is none.

        ``deaths`` are those of the place that the sender knows of. If there are more, the work is
        dropped: the sender will take it for work of the process that has died, and send it again.
        """
        try:
            with self._lock:
                if deaths < self._deaths[place]:
                    return
                if self._stopped:
                    raise TrainingError("the trials are being stopped")
                if place not in self._children:
                    child = Child(trial_main, *arguments, daemon=False)  # it has workers
                    self._children[place] = child
                    threading.Thread(target=self._pass_on, args=(place, child), daemon=True).start()
                self._children[place].send(work)
        except Exception as error:  # such as too many processes
            with self._lock:
                self._deaths[place] += 1
            self._arrived.put((place, Died(f"{type(error).__name__}: {error}")))

    def answer(self, place: int, answer: object) -> None:
        """Send the answer to a message to the process of a place, if it still runs."""
        with self._lock:
            if place in self._children:
                self._children[place].send(answer)

    def receive(self) -> list[Arrival]:
        """Wait for messages and return all that have arrived."""
        found = [self._arrived.get()]
        while len(found) < MOST_MESSAGES:
            try:
                found.append(self._arrived.get_nowait())
            except queue.Empty:
                break
        return found

    def end(self, place: int) -> None:
        """Let the process of a place, if any, save its trial and end; kill it if it does not."""
        with self._lock:
            if child := self._children.get(place):
                child.process.terminate()
                killer = threading.Timer(PATIENCE, self._kill, (place, child))
                killer.daemon = True
                killer.start()

    def stop(self) -> None:
        """Let every process save its trial and end."""
        with self._lock:
            self._stopped = True
            for child in self._children.values():
                child.process.terminate()

    def _kill(self, place: int, child: Child) -> None:
        with self._lock:
            if self._children.get(place) is child:
                child.process.kill()

    def _pass_on(self, place: int, child: Child) -> None:
        while (message := child.receive()) is not None:
            self._arrived.put((place, message))
        died = Died(child.cause_of_death())
        with self._lock:
            del self._children[place]
            self._deaths[place] += 1
            end([child])
        self._arrived.put((place, died))
