"""Plays the episodes of jobs in the calling process, which knows what a notebook defines.

The results are those of workers: one thread computes, and an environment that other processes can
import is compared with one of them before training. What only a notebook has cannot be compared.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Final, final

from threadpoolctl import ThreadpoolController

from esbench.core.errors import (
    USER_CODE_ERRORS,
    EnvironmentFailedError,
    EsbenchError,
    UsageError,
    location,
)
from esbench.core.files import shorten_log
from esbench.core.global_streams import STREAMS
from esbench.core.json_text import Json
from esbench.core.one_thread import one_thread
from esbench.engine.engine import Engine, Question
from esbench.engine.jobs import EpisodeResult, Episodes, Job, Task, collect
from esbench.engine.player import Player
from esbench.engine.setup import Setup, only_here
from esbench.engine.worker import failure
from esbench.engine.worker_pool import DEFAULT_SLOTS, WorkerPool, round_size
from esbench.environments.simulator_log import handled, once_to_stderr, silenced
from esbench.grids.trial_spec import EnvironmentSpec, TrialSpec


@final
class ThisProcess(Engine):
    """The calling process in place of workers."""

    is_local: ClassVar[bool] = False
    is_here: ClassVar[bool] = True

    def __init__(self, slots: int = DEFAULT_SLOTS, reason: str = "") -> None:
        """``reason``, if there is one, is the notice before the first episode."""
        super().__init__(slots)
        self._reason = reason
        self._player: Player | None = None
        self._configuration: tuple[Setup, Path | None] | None = None
        self._warn: Final = once_to_stderr()

    @property
    def size(self) -> int:
        """One."""
        return 1

    @property
    def nodes(self) -> Json:
        """Empty."""
        return {}

    def machines(self) -> None:
        """None."""

    def compare_code(self, spec: TrialSpec) -> None:
        """There is only this process."""

    def opener(self) -> Callable[[], Engine]:
        """Another process that plays by itself."""
        return partial(ThisProcess, self.slots)

    def start(self) -> None:
        """Nothing runs in the background."""

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Make environments and policy, unless that was done.

        Their output goes to the file ``log`` if there is one, else to that of this process.
        """
        wanted = setup, log
        if wanted == self._configuration:
            return
        self.close()
        self._explain()
        with (
            self._reported(setup.environment, loads=True),
            STREAMS,  # always before the lock of ``one_thread``
            one_thread(ThreadpoolController()),
            silenced(),
            _appended(log) as stream,
            _output_to(stream),
        ):
            self._player = Player(setup, setup.useful_slots(self.slots))
        self._libraries = ThreadpoolController()  # those that are loaded now
        self._configuration = wanted

    def ask(self, questions: Sequence[Question], environment: EnvironmentSpec) -> list[Any]:
        """What this process answers and, to further questions, others that can import as much."""
        self._explain()
        first, *others = questions
        with (
            STREAMS,
            one_thread(ThreadpoolController()),
            _appended(Path(os.devnull)) as nowhere,
            _output_to(nowhere),
            silenced(),
        ):
            try:
                found = first(environment.id, environment.kwargs, environment.wrappers)
            except USER_CODE_ERRORS as error:
                raise UsageError(str(failure(error, loads=False))) from error
        if not others or only_here(environment, in_script=True):
            return [found, *(None for _ in others)]
        with WorkerPool(len(others), imports_main=False) as pool:
            return [found, *pool.ask(others, environment)]

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play the tasks, and return their results in order; an exception closes the player."""
        assert self._configuration is not None, "configure first"
        assert self._player is not None, "configure first"
        (setup, log), player = self._configuration, self._player
        results = dict[Task, EpisodeResult]()
        with (
            self._reported(setup.environment, loads=False),
            STREAMS,  # the player sees who draws from them
            one_thread(self._libraries),
            handled(self._warn),
            _appended(log) as stream,
        ):
            player.begin(job, round_size(len(tasks), 1, player.slots))
            player.add(tasks)
            if self.progress is not None:
                self.progress(0, len(tasks))
            while player.busy:
                with _output_to(stream):
                    ended = player.step()
                results |= {result.task: result for result in ended}
                if self.progress is not None and ended:
                    self.progress(len(results), len(tasks))
            player.require_no_draws()
        self.watch.add(player.watch.take())
        if log is not None:
            shorten_log(str(log))
        return collect(tasks, results)

    def close(self) -> None:
        """Close the environments."""
        player, self._player, self._configuration = self._player, None, None
        if player is not None:
            with contextlib.suppress(*USER_CODE_ERRORS):
                player.close()

    def _explain(self) -> None:
        if self._reason:
            self.notice(self._reason)
            self._reason = ""

    @contextlib.contextmanager
    def _reported(self, environment: EnvironmentSpec, loads: bool) -> Iterator[None]:
        """A block whose errors of user code are those that workers report, with their cause."""
        try:
            yield
        except USER_CODE_ERRORS as error:
            self.close()
            found = failure(error, loads)
            if isinstance(found, EnvironmentFailedError) and not loads:
                text = f"{found}{location(error)}, while environment {environment.id!r} was played"
                found = EnvironmentFailedError(text, found.traceback)
            raise found from (None if isinstance(error, EsbenchError) else error)
        except BaseException:  # Ctrl-C, within an episode
            self.close()
            raise


@contextlib.contextmanager
def _appended(log: Path | None) -> Iterator[IO[str] | None]:
    """The end of a file for output; None without one."""
    if log is None:
        yield None
        return
    with log.open("a", encoding="utf-8", errors="backslashreplace") as stream:
        yield stream


@contextlib.contextmanager
def _output_to(stream: IO[str] | None) -> Iterator[None]:
    """A block whose output in Python goes to a stream, or stays as it is without one."""
    if stream is None:
        yield
        return
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield
