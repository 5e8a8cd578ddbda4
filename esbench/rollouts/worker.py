"""One worker process: plays the episodes it is given and reports what it has played.

It ignores Ctrl-C (the trainer decides) and watches its parent: when that is gone, however it died,
the worker ends at once. What it prints, MuJoCo's warnings for instance, goes to the trial's log.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, final

from esbench.environments.make import reason
from esbench.environments.simulator_log import log_once
from esbench.errors import UsageError
from esbench.rollouts.jobs import Job, Setup, Task
from esbench.rollouts.player import Player, Suspended
from esbench.rollouts.results import EpisodeResult


class Configure(NamedTuple):
    """To a worker: the next trial's environment and policy, and where its output goes."""

    setup: Setup
    slots: int
    log: str


class Begin(NamedTuple):
    """To a worker: drop what is running and take episodes of this job, so many at once."""

    job: Job
    width: int


class Work(NamedTuple):
    """To a worker: episodes of the job to play, or to go on with."""

    episodes: Sequence[Task | Suspended]


class Share(NamedTuple):
    """To a worker: give up half of the episodes that are running, for another to go on with."""


class Ready(NamedTuple):
    """From a worker: it can begin a job of its trial, with so many episodes at once."""

    slots: int


class Finished(NamedTuple):
    """From a worker: what it has played, how many slots wait for more, and where its time went."""

    results: list[EpisodeResult]
    free: int
    cpu_time_s: float
    seconds: dict[str, float]


class Shared(NamedTuple):
    """From a worker: what it gives up for ``Share``; empty if nothing can be moved."""

    episodes: list[Suspended]


class Failed(NamedTuple):
    """From a worker: an exception, with its kind, message and traceback."""

    usage: bool
    message: str
    traceback: str


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back in the block; a process started there never sees it, even while it loads."""
    # Starting the tracker unblocks the signal; started before, it is not started in the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_main(connection: Connection) -> None:
    """Run a worker until its parent closes the connection or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    log_once()
    if "torch" in sys.modules:  # the person's own main module may have imported it
        sys.modules["torch"].set_num_threads(1)
    with contextlib.suppress(_ParentGoneError):
        _serve(_Link(connection))


def end_with_parent() -> None:
    """End this process at once when its parent is gone, however that died."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is a child process"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _ParentGoneError(Exception):
    """The trainer has closed the connection. An environment may raise EOFError; never this."""


@final
class _Link:
    """A worker's end of the connection to its trainer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Asked after every step: 1 us, where Connection.poll takes 6.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)

    def send(self, message: Ready | Finished | Shared | Failed) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise _ParentGoneError from error

    def receive(self) -> Configure | Begin | Work | Share:
        try:
            message: Configure | Begin | Work | Share = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _ParentGoneError from error
        return message

    def has_message(self) -> bool:
        return bool(self._arrivals.poll(0))


def _serve(link: _Link) -> None:
    player: Player | None = None
    while True:
        message = link.receive()
        try:
            match message:
                case Configure():
                    if player is not None:
                        player.close()
                    _redirect_output(message.log)
                    player = Player(message.setup, message.slots)
                    link.send(Ready(player.slots))
                case Begin() if player is not None:
                    player.begin(message.job, message.width)
                case Work() if player is not None:
                    _play(player, message.episodes, link)
                case Share():  # it ended while it was asked
                    link.send(Shared([]))
        except _ParentGoneError:
            raise
        except Exception as error:  # whatever an environment raises belongs to its trial
            usage = isinstance(error, UsageError)
            summary = str(error) if usage else reason(error)
            link.send(Failed(usage, summary, traceback.format_exc()))


def _play(player: Player, episodes: Sequence[Task | Suspended], link: _Link) -> None:
    """Play a chunk, asking for more as soon as a slot would stand idle."""
    started = time.process_time()
    player.add(episodes)
    results: list[EpisodeResult] = []
    asked = False

    def report(free: int) -> None:
        nonlocal results, started
        now = time.process_time()
        link.send(Finished(results, free, now - started, player.watch.take()))
        results, started = [], now

    while player.busy:
        results += player.step()
        free = player.free
        if free and not asked:
            report(free)
            asked = True
        elif link.has_message():
            match link.receive():
                case Work(more):
                    player.add(more)
                    asked = False
                case Share():
                    report(free)
                    link.send(Shared(player.give_up()))
                case message:
                    raise AssertionError(f"{message} before the last job ended")
    if results or not asked:
        report(0 if asked else player.free)


def _redirect_output(log: str) -> None:
    """Send what this process prints to a file, also what C libraries print."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
