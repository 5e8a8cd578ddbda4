"""Runs trials side by side, in processes of this machine or of the nodes of a cluster.

Trials share nothing, so the results equal those of one trial after the other. A trial whose node or
process is lost goes on in another process from its last checkpoint. Trials on nodes send what they
record as messages, which are applied to the folders here, so a folder is always as complete as that
of a local trial.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, final

from esbench.core.clock import TICK, RunningTime
from esbench.core.errors import (
    LIMITS,
    DamagedTrialError,
    EsbenchError,
    LimitError,
    memory_is_limited,
)
from esbench.core.json_text import Json
from esbench.core.process import interrupts_delayed
from esbench.core.units import counted
from esbench.engine.engine import Engine, Joined, Lost, Node, Nodes
from esbench.engine.worker_pool import MAX_DEATHS
from esbench.experiment.run_trial import check_each, outcome_without_training
from esbench.experiment.trial_processes import (
    Away,
    Died,
    Notice,
    Recorded,
    SpecCheck,
    SpecChecked,
    TrialArguments,
    TrialServer,
    WatcherCall,
)
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import UNLIMITED, Clock, ImportedCallback, Limits, Outcome, Watcher
from esbench.results.run import score_text
from esbench.store.generation_record import GenerationRecord

SAVE_SECONDS: Final = 60.0  # without a message, from the end of a grid until its trials are killed

Layout: TypeAlias = Callable[[Sequence[int], int], tuple[int, Callable[[], Engine]]]
"""From the budgets of a node's share of the trials and its cores: how many run there at once, and
what opens the engine of each."""


@final
class ThisMachine(Nodes, Node):
    """A cluster of one node, which runs trials in processes of this machine."""

    name, cores = "this machine", 0  # which no layout asks for

    def __init__(self) -> None:
        self._server = TrialServer()
        self._events: list[tuple[Node, object]] = [(self, Joined())]

    def call(
        self, method: str, *arguments: object, shared: Any = None, aside: bool = False
    ) -> None:
        """Call a method of the server, unless it waits for messages, which ``wait`` does."""
        if not aside:
            getattr(self._server, method)(*arguments)

    def wait(self, seconds: float) -> None:
        """Wait for messages of trial processes, at most so long."""
        if not self._events and (arrived := self._server.receive(seconds)):
            self._events.append((self, arrived))

    def take(self) -> Sequence[tuple[Node, object]]:
        """All events at once."""
        found, self._events = self._events, []
        return found

    def close(self) -> None:
        """End the trial processes."""
        self._server.close()


@final
@dataclass(eq=False)
class _Run:
    """A trial that has not ended, and the deaths of the processes that ran it."""

    trial: Trial
    generation: int = 0  # the latest
    deaths: int = 0  # since that generation
    losses: int = 0  # deaths in all
    clock: Clock = field(default_factory=Clock)

    def advance(self, record: GenerationRecord) -> None:
        """Forget the deaths if a generation is new, not computed again."""
        if record.generation > self.generation:
            self.generation, self.deaths = record.generation, 0


@final
@dataclass(eq=False)
class _Place:
    """Where a node runs one trial at a time."""

    node: Node
    number: int
    arguments: TrialArguments
    run: _Run | None = None
    exceeded: str = ""  # the limit for which its process is being ended
    deaths: int = 0  # of its processes, as far as they are handled
    workers: int = 0
    latest: GenerationRecord | None = None
    in_flight: int = 0  # episodes

    def assign(self, work: object) -> None:
        """Send work to the process there, which starts if there is none."""
        self.node.call("assign", self.number, self.deaths, self.arguments, work)

    def nodes(self, losses: int) -> Json:
        """The node as ``Engine.nodes`` describes the nodes of a trial."""
        latest = self.latest
        speed = latest.env_steps / latest.wall_time_s if latest and latest.wall_time_s else 0.0
        node = {
            "host": self.node.name,
            "workers": self.workers,
            "steps_per_second": speed,
            "in_flight": self.in_flight,
        }
        return {"nodes": [node], "losses": losses, "lost_episodes": 0, "mixed": {}}


@final
class TrialScheduler:
    """Runs trials in processes; a context manager, which ends them after they have saved."""

    def __init__(
        self,
        trials: Sequence[Trial],
        layout: Layout,
        nodes: Nodes | None = None,
        callbacks: Sequence[ImportedCallback] = (),
        limits: Limits = UNLIMITED,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare to run trials that are not done, in this order.

        They run on ``nodes`` with a ``TrialServer`` each; None is this machine. ``tell`` is called
        with notices, and with a message when no node is left.
        """
        self._nodes = ThisMachine() if nodes is None else nodes
        self._away = nodes is not None
        self._layout, self._callbacks = layout, callbacks
        self._limits, self._tell = limits, tell
        self._joined: list[Node] = []  # without places
        self._places: list[_Place] = []
        self._pending = deque(map(_Run, trials))
        # Of trials that have begun; those of trials on nodes are held here.
        self._locks: dict[_Run, contextlib.ExitStack] = {}
        self._inbox: deque[tuple[_Place, Any]] = deque()
        self._alone = False  # no node is left, and the user has been told
        self._stopping = False

    def __enter__(self) -> TrialScheduler:
        with contextlib.ExitStack() as failed:
            failed.push(self)
            self._join()  # the processes load during the check
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the trials that run after they have been saved."""
        self._stopping = True
        try:
            for node in {place.node for place in self._places}:
                node.call("stop")
            running, heard = RunningTime(), 0.0
            while any(place.run for place in self._places) and running() - heard < SAVE_SECONDS:
                self._receive()
                while self._inbox:
                    heard = running()
                    with contextlib.suppress(EsbenchError):  # the first one has ended the grid
                        self._handle()
            if killed := sum(place.run is not None for place in self._places):
                self._tell(f"{counted(killed, 'trial')} did not end, and resume where last saved")
        finally:
            for lock in self._locks.values():
                lock.close()
            self._nodes.close()

    def check(self, trials: Sequence[Trial], watcher: Watcher) -> None:
        """``check_each`` in a process, so that this one loads no simulator."""
        check_each(trials, partial(self._check, watcher=watcher))

    def _check(self, trial: Trial, watcher: Watcher) -> None:
        """Build everything that a trial needs, and play some episodes.

        Gives up if the process of the check dies or takes too long: training reports the cause.
        """
        while not self._places:
            self._receive()
            self._join()
        checker, clock = self._places[0], Clock()
        checker.assign(SpecCheck(trial.spec, not trial.folder.has_begun))
        while True:
            self._receive()
            while self._inbox:
                place, message = self._inbox.popleft()
                match message:
                    case SpecChecked():
                        return
                    case EsbenchError():
                        raise message
                    case Notice(text):
                        self._tell(text)
                    case Died():
                        place.deaths += 1
                        place.exceeded = ""
                        if place is checker:
                            return
            self._limit(checker, clock, trial, watcher)

    def run(self, watcher: Watcher, ended: Callable[[Trial, Outcome, str], None]) -> None:
        """Run every trial; ``ended`` is called with every trial that has ended.

        A trial fails after ``MAX_DEATHS`` deaths of its process without a new generation, and when
        it exceeds a limit.

        UsageError as in ``run_trial``; TrainingError, with its traceback, if a process failed.
        """
        while self._pending or self._locks:
            self._join()
            self._give(ended)
            self._receive()
            while self._inbox:
                if shown := self._handle():
                    trial, event = shown
                    show = ended if event.name == "trial_ended" else getattr(watcher, event.name)
                    show(trial, *event.arguments)
            for place in self._places:
                if run := place.run:
                    self._limit(place, run.clock, run.trial, watcher)

    def _limit(self, place: _Place, clock: Clock, trial: Trial, watcher: Watcher) -> None:
        """End the process of a place, once, whose trial exceeds a limit."""
        if not place.exceeded and (why := clock.check(trial, self._limits, watcher)):
            place.exceeded = why
            place.node.call("end", place.number)

    def _join(self) -> None:
        """Make places on the nodes that are new, as many as suit their share of the trials."""
        self._take()
        joined, self._joined = self._joined, []
        count = len({place.node for place in self._places}) + len(joined)
        runs = dict.fromkeys([*self._locks, *self._pending])
        left = [run.trial.spec.budget.env_steps for run in runs]
        for node in joined:
            at_once, open_engine = self._layout(left[: -(-len(left) // count)], node.cores)
            for number in range(at_once):
                place = _Place(node, number, (open_engine, self._callbacks))
                self._places.append(place)
                with interrupts_delayed():
                    place.assign(None)  # only starts the process
        self._places.sort(key=lambda place: place.number)  # a trial on every node comes first
        alone = not self._places
        if alone and not self._alone:
            self._tell("all nodes are lost; waiting for one to join (Ctrl-C stops)")
        self._alone = alone

    def _give(self, ended: Callable[[Trial, Outcome, str], None]) -> None:
        """Send trials to the places that have none."""
        for place in self._places:
            while self._pending and place.run is None and not place.exceeded:
                run = self._pending.popleft()
                if run in self._locks or self._open(run, ended):
                    with interrupts_delayed():
                        place.run, place.latest, place.in_flight = run, None, 0
                        run.clock.note_progress()
                        place.assign(Away(run.trial) if self._away else run.trial)

    def _open(self, run: _Run, ended: Callable[[Trial, Outcome, str], None]) -> bool:
        """Lock the folder of a trial on a node; whether it is to be trained, or else has ended."""
        found: tuple[Outcome, str] | None = None
        try:
            with contextlib.ExitStack() as lock:
                if self._away:
                    mine = lock.enter_context(run.trial.folder.locked())
                    found = outcome_without_training(run.trial, mine)
                if found is None:
                    self._locks[run] = lock.pop_all()
        except DamagedTrialError as error:  # the other trials can run
            found = "failed", str(error)
        if found is not None:
            ended(run.trial, *found)
        return found is None

    def _receive(self) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._nodes.wait(TICK)
            self._take()

    def _take(self) -> None:
        """Take the messages that have arrived; a lost node is the death of all its processes."""
        with interrupts_delayed():
            for node, event in self._nodes.take():
                places = {place.number: place for place in self._places if place.node is node}
                match event:
                    case Joined():
                        self._joined.append(node)
                        node.call("receive", aside=True)
                    case Lost(cause):
                        self._inbox.extend((place, Died(cause)) for place in places.values())
                        self._places = [place for place in self._places if place.node is not node]
                        self._joined = [each for each in self._joined if each is not node]
                    case list(arrived):
                        node.call("receive", aside=True)
                        self._inbox.extend((places[number], message) for number, message in arrived)
                        for run in (places[number].run for number, _ in arrived):
                            if run is not None:
                                run.clock.note_progress()

    def _handle(self) -> tuple[Trial, WatcherCall] | None:
        """Apply the next message completely; returns what is left to display."""
        with interrupts_delayed():
            place, message = self._inbox.popleft()
            run = place.run
            match message:
                case Notice(text):
                    self._tell(text)
                case EsbenchError():
                    raise message.of(f"node {place.node.name}") if self._away else message
                case Died(cause):
                    place.deaths += 1
                    exceeded, place.exceeded = place.exceeded, ""
                    if run is not None:
                        return run.trial, self._lose(place, run, cause, exceeded)
                case Recorded() if run is not None:
                    self._record(place, run, message)
                case WatcherCall(name, arguments) if run is not None:
                    if name == "trial_ended":
                        self._close(place, run)
                        outcome, detail = arguments
                        if self._away and outcome == "failed":  # perhaps of a missing module
                            detail = f"node {place.node.name}: {detail}"
                        return run.trial, WatcherCall(name, (outcome, detail))
                    if name == "generation_done":
                        (record,) = arguments
                        run.advance(record)
                        place.latest = record
                    elif name == "episodes_done":
                        done, total = arguments
                        place.in_flight = total - done
                    return run.trial, message
        return None

    def _record(self, place: _Place, run: _Run, call: Recorded) -> None:
        """Call a method of a trial or of its folder for the node that runs it."""
        trial, folder = run.trial, run.trial.folder
        if call.name == "begin":
            place.workers = call.arguments[0]["workers"]
        try:
            answer = getattr(trial if call.name == "begin" else folder, call.name)(*call.arguments)
            if call.name in {"begin", "checkpoint"}:
                folder.record_nodes(place.nodes(run.losses))
        except EsbenchError as error:
            if not call.asked:
                raise
            answer = error  # ends the trial, and perhaps the grid, as it does where it is raised
        if call.asked:
            place.node.call("answer", place.number, answer)

    def _lose(self, place: _Place, run: _Run, cause: str, exceeded: str) -> WatcherCall:
        """Let a trial, whose process has died, go on elsewhere, or end it."""
        folder = run.trial.folder
        run.deaths += not self._stopping
        run.losses += not self._stopping
        if run.trial.is_done:  # it has ended at the last moment
            self._close(place, run)
            return WatcherCall("trial_ended", ("done", score_text(folder.result())))
        if not exceeded and run.deaths < MAX_DEATHS:
            place.run = None
            folder.close()
            self._pending.appendleft(run)
            return WatcherCall("trial_died", (cause,))
        died = f"its process died {run.deaths} times without a new generation, last by {cause}"
        try:
            if not (exceeded or run.generation) and memory_is_limited():
                raise LimitError(f"{run.trial.name}: {died}: {LIMITS}")
            folder.fail(f"{exceeded or died}\n")
        finally:
            self._close(place, run)
        return WatcherCall("trial_ended", ("failed", exceeded or died))

    def _close(self, place: _Place, run: _Run) -> None:
        place.run = None
        self._locks.pop(run).close()
