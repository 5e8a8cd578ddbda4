"""Runs trials on other machines; this one hands them out and is the only one that stores them.

Every node runs trial processes, which send their rows and checkpoints as messages. They are applied
to the folders here in their order, so that a folder is always as complete as that of a local trial.
If a node or process is lost, its trial resumes on another node from the last checkpoint.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

from esbench.core.errors import DamagedTrialError, EsbenchError
from esbench.core.json_text import Json
from esbench.core.process import interrupts_delayed
from esbench.engine.engine import Joined, Lost, Node, Nodes
from esbench.engine.worker_pool import MAX_DEATHS, WorkerPool
from esbench.experiment.engines import schedule
from esbench.experiment.run_trial import check_each, outcome_without_training
from esbench.experiment.trial_processes import (
    Away,
    Notice,
    Recorded,
    SpecCheck,
    SpecChecked,
    TrialArguments,
    UnfinishedTrial,
    WatcherCall,
)
from esbench.experiment.trial_server import Died, TrialServer
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import (
    UNLIMITED,
    Clock,
    GridWatcher,
    ImportedCallback,
    Limits,
    Outcome,
)
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance import importable_code

PERIOD_SECONDS: Final = 1.0  # between two looks for nodes that have joined


@final
@dataclass(eq=False)
class _Place:
    """Where a node runs one trial at a time."""

    node: Node
    number: int
    workers: int
    arguments: TrialArguments
    run: UnfinishedTrial | None = None
    records: list[GenerationRecord] = field(default_factory=list)  # the first and the latest here
    in_flight: int = 0  # episodes
    exceeded: str = ""  # the limit for which its process is being ended
    deaths: int = 0  # of its processes, as far as they are handled

    def begin(self, run: UnfinishedTrial) -> None:
        """Run a trial that is not done."""
        self.run = run
        self.records, self.in_flight = [], 0
        run.clock.start()
        self.assign(Away(run.trial))

    def nodes(self, losses: int) -> Json:
        """The node as ``Engine.nodes`` describes the nodes of a trial."""
        steps = seconds = 0.0
        if self.records:
            first, latest = self.records[0], self.records[-1]
            steps = latest.env_steps - first.env_steps
            seconds = latest.wall_time_s - first.wall_time_s
        node = {
            "host": self.node.name,
            "workers": self.workers,
            "steps_per_second": steps / seconds if seconds else 0.0,
            "in_flight": self.in_flight,
        }
        return {"nodes": [node], "losses": losses, "lost_episodes": 0, "mixed": {}}

    def end(self, why: str) -> None:
        """End the trial process there, which exceeds a limit."""
        self.exceeded = why
        self.node.call("end", self.number)

    def assign(self, work: object) -> None:
        """Send work to the trial process there, which starts if there is none."""
        self.node.call("assign", self.number, self.deaths, self.arguments, work)


@final
class TrialsOnNodes:
    """Trials that nodes run; a context manager, which ends them after they have been saved."""

    def __init__(
        self,
        trials: Sequence[Trial],
        nodes: Nodes,
        slots: int,
        callbacks: Sequence[ImportedCallback] = (),
        at_once: int | None = None,
        limits: Limits = UNLIMITED,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare to run trials.

        Args:
            trials: in the order in which they are handed out.
            nodes: where they run.
            slots: the largest number of environments per worker.
            callbacks: of every trial; the nodes import them.
            at_once: the number of trials side by side on one node; by default, ``schedule`` decides
                from the node's cores and its share of the trials.
            limits: of every trial, and of its check.
            tell: called with the notices of the nodes, and with a message when none is left.
        """
        self._trials = trials
        self._nodes = nodes
        self._slots, self._callbacks, self._at_once = slots, callbacks, at_once
        self._limits, self._tell = limits, tell
        self._joined: list[Node] = []  # without places
        self._places: list[_Place] = []
        self._pending = deque(UnfinishedTrial(trial) for trial in trials if not trial.is_done)
        # Of trials that have begun here.
        self._locks: dict[UnfinishedTrial, contextlib.ExitStack] = {}
        self._inbox: deque[tuple[_Place, Any]] = deque()
        self._alone = False  # no node is left, and the user has been told
        self._stopping = False
        nodes.serve(TrialServer, importable_code(run.trial.spec for run in self._pending))

    def __enter__(self) -> TrialsOnNodes:
        return self

    def __exit__(self, *_: object) -> None:
        """End the trials that run after they have been saved."""
        self._stopping = True
        try:
            for node in {place.node for place in self._places}:
                node.call("stop")
            while self._inbox or any(place.run for place in self._places):
                self._receive()
                while self._inbox:
                    with contextlib.suppress(EsbenchError):  # the first one has ended the grid
                        self._handle()
        finally:
            for lock in self._locks.values():
                lock.close()

    def check(self, watcher: GridWatcher) -> None:
        """``check_each`` on a node, so that this machine loads no simulator."""
        check_each(self._trials, partial(self._check, watcher=watcher))

    def _check(self, trial: Trial, watcher: GridWatcher) -> None:
        """Check one trial on the nodes: build everything, and play some episodes there.

        Gives up if the process of the check dies or takes too long, or ``MAX_DEATHS`` nodes are
        lost. Training then reports the cause.
        """
        work, clock, losses = SpecCheck.of(trial), Clock(), 0
        checker: _Place | None = None
        while True:
            self._join()
            if checker not in self._places and self._places:  # the first one, or that one is lost
                checker = self._places[0]
                checker.assign(work)
                clock.start()
            self._receive()
            while self._inbox:
                sender, message = self._inbox.popleft()
                match message:
                    case SpecChecked(work.spec.hash, error) if not sender.exceeded:
                        if error is not None:
                            raise error
                        return
                    case Notice(text):
                        self._tell(text)
                    case Died():
                        sender.deaths += 1
                        if sender is not checker:
                            continue
                        sender.exceeded = ""
                        losses += 1
                        if sender in self._places or losses >= MAX_DEATHS:
                            return
            alive = checker if checker in self._places else None
            if alive and not alive.exceeded and (why := clock.check(trial, self._limits, watcher)):
                alive.end(why)

    def run(self, watcher: GridWatcher, ended: Callable[[Trial, Outcome, str], None]) -> None:
        """Run every trial that is not done; ``ended`` is called with every trial that has ended.

        UsageError as in ``run_trial``; TrainingError, with its traceback, if a process failed.
        """
        for trial in self._trials:
            if trial.is_done:
                self._open(UnfinishedTrial(trial), ended)
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
                run = None if place.exceeded else place.run
                if run and (why := run.clock.check(run.trial, self._limits, watcher)):
                    place.end(why)

    def _join(self) -> None:
        """Make places on the nodes that are new, as many as suit their share of the trials."""
        self._take()
        joined, self._joined = self._joined, []
        count = len({place.node for place in self._places}) + len(joined)
        runs = dict.fromkeys([*self._locks, *self._pending])
        left = [run.trial.spec.budget.env_steps for run in runs]
        for node in joined:
            layout = schedule(left[: -(-len(left) // count)], node.cores, self._at_once)
            workers = layout.workers_each
            arguments = partial(WorkerPool, workers, self._slots), self._callbacks
            self._places += [_Place(node, n, workers, arguments) for n in range(layout.at_once)]
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
                        place.begin(run)

    def _open(self, run: UnfinishedTrial, ended: Callable[[Trial, Outcome, str], None]) -> bool:
        """Lock the folder of a trial; whether it is to be trained. Otherwise it has ended."""
        try:
            with contextlib.ExitStack() as lock:
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
            self._nodes.wait(PERIOD_SECONDS)
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
                case Recorded() if run is not None:
                    self._record(place, run, message)
                case Died(cause):
                    place.deaths += 1
                    exceeded, place.exceeded = place.exceeded, ""
                    if run is not None and exceeded:
                        run.trial.folder.fail(f"{exceeded}\n")
                        message = self._fail(place, run, exceeded)
                    elif run is not None:
                        message = self._lose(place, run, cause)
                case WatcherCall("generation_done", (record,)) if run is not None:
                    run.advance(record)
                    place.records = [*place.records[:1], record]
                case WatcherCall("episodes_done", (done, total)):
                    place.in_flight = total - done
                case WatcherCall("trial_ended") if run is not None:
                    self._close(place, run)
                case Notice(text):
                    self._tell(text)
                case EsbenchError():
                    raise message
        return (
            (run.trial, message) if run is not None and isinstance(message, WatcherCall) else None
        )

    def _record(self, place: _Place, run: UnfinishedTrial, call: Recorded) -> None:
        trial, folder = run.trial, run.trial.folder
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

    def _lose(self, place: _Place, run: UnfinishedTrial, cause: str) -> WatcherCall:
        """Let a trial, whose process has died, go on elsewhere; it fails after too many deaths."""
        run.deaths += not self._stopping
        run.losses += not self._stopping
        if run.deaths >= MAX_DEATHS:
            return self._fail(place, run, run.store_cause(cause))
        place.run = None
        run.clock.stop()
        run.trial.folder.close()
        self._pending.appendleft(run)
        return WatcherCall("trial_died", (cause,))

    def _fail(self, place: _Place, run: UnfinishedTrial, why: str) -> WatcherCall:
        """End a trial whose failure is stored."""
        self._close(place, run)
        return WatcherCall("trial_ended", ("failed", why))

    def _close(self, place: _Place, run: UnfinishedTrial) -> None:
        place.run = None
        self._locks.pop(run).close()
