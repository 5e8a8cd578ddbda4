"""One worker process: plays episodes and reports the results; its output goes to a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from esbench.core.errors import (
    USER_CODE_ERRORS,
    EnvironmentFailedError,
    EsbenchError,
    UsageError,
    UserCodeError,
    limit_error,
)
from esbench.core.escape import printable
from esbench.engine.child_process import Parent, ParentGoneError
from esbench.engine.engine import Question
from esbench.engine.jobs import EpisodeResult, Job, Task
from esbench.engine.player import Player, Suspended
from esbench.engine.setup import Setup
from esbench.environments.make_environment import reason
from esbench.environments.simulator_log import log_once
from esbench.grids.trial_spec import EnvironmentSpec


@final
class Configure(NamedTuple):
    """To a worker: the environment and policy of the next trial, and the file for its output."""

    setup: Setup
    slots: int
    log: str


@final
class Begin(NamedTuple):
    """To a worker: drop running episodes and prepare for a job, with ``width`` episodes at once."""

    job: Job
    width: int


@final
class Work(NamedTuple):
    """To a worker: episodes of the job to begin or to continue."""

    episodes: Sequence[Task | Suspended]


@final
class Share(NamedTuple):
    """To a worker: give half of the running episodes back."""


@final
class Halt(NamedTuple):
    """To a worker: stop playing; the running episodes are not needed any more."""


@final
class Halted(NamedTuple):
    """From a worker: it is idle; earlier messages belong to a job that has ended."""


@final
class Ask(NamedTuple):
    """To a worker that plays nothing: call a function of an environment; its output is dropped."""

    function: Question
    environment: EnvironmentSpec


@final
class Answer(NamedTuple):
    """From a worker: what the function of ``Ask`` returned."""

    value: Any


@final
class Ready(NamedTuple):
    """From a worker: it can begin a job of its trial, with up to ``slots`` episodes at once."""

    slots: int


@final
class Finished(NamedTuple):
    """From a worker: results, the number of idle slots, and the time spent."""

    results: list[EpisodeResult]
    free: int
    cpu_time_s: float
    seconds: dict[str, float]


@final
class Shared(NamedTuple):
    """From a worker: the answer to ``Share``; empty if no episode can be moved."""

    episodes: list[Suspended]


def worker_main(parent: Parent) -> None:
    """Run a worker until its parent ends it or is gone; errors are sent to the parent."""
    log_once()
    if "torch" in sys.modules:  # imported by the user's main module
        sys.modules["torch"].set_num_threads(1)
    player: Player | None = None
    while True:
        message = parent.receive()
        try:
            match message:
                case Configure():
                    if player is not None:
                        with contextlib.suppress(*USER_CODE_ERRORS):  # of the trial before
                            player.close()
                    _redirect_output(message.log)
                    player = Player(message.setup, message.slots)
                    parent.send(Ready(player.slots))
                case Ask(function, environment):
                    _redirect_output(os.devnull)
                    given = environment.id, environment.kwargs, environment.wrappers
                    parent.send(Answer(function(*given)))
                case Begin() if player is not None:
                    player.begin(message.job, message.width)
                case Work() if player is not None:
                    _play(player, message.episodes, parent)
                case Share():  # the last episode ended before the request arrived
                    parent.send(Shared([]))
                case Halt():
                    parent.send(Halted())
        except ParentGoneError:
            raise
        except BaseException as error:  # of user code, which may raise anything
            parent.send(failure(error, loads=isinstance(message, Configure)))


def failure(error: BaseException, loads: bool) -> EsbenchError:
    """What is reported of an exception that making or playing an environment has raised.

    While it ``loads``, this is no usage error: the trainer has made the environment.
    """
    is_usage = isinstance(error, UsageError)
    if loads and (limit := limit_error(error)):
        return limit
    if is_usage and not (loads or isinstance(error, UserCodeError)):
        return UsageError(str(error))
    text = str(error) if is_usage else reason(error)
    return EnvironmentFailedError(text, printable(traceback.format_exc()))


def _play(player: Player, episodes: Sequence[Task | Suspended], parent: Parent) -> None:
    """Play episodes, and ask for more as soon as a slot is idle."""
    started = time.process_time()
    player.add(episodes)
    results: list[EpisodeResult] = []
    asked = False

    def report(free: int) -> None:
        nonlocal results, started
        now = time.process_time()
        parent.send(Finished(results, free, now - started, player.watch.take()))
        results, started = [], now

    while player.busy:
        results += player.step()
        free = player.free
        if free and not asked:
            report(free)
            asked = True
        elif parent.has_message():
            match parent.receive():
                case Work(more):
                    player.add(more)
                    asked = False
                case Share():
                    report(free)
                    parent.send(Shared(player.give_up()))
                case Halt():
                    parent.send(Halted())
                    return
                case message:
                    raise AssertionError(f"{message} arrived before the last job ended")
    player.require_no_draws()
    if results or not asked:
        report(0 if asked else player.free)


def _redirect_output(log: str) -> None:
    """Redirect the output of this process to a file, including that of C libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        descriptor = os.open(log, flags, 0o644)
    except OSError:  # a full disk, say, on which the next row says so
        descriptor = os.open(os.devnull, flags)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
