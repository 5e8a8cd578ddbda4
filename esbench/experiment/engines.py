"""Opens the engine that plays the episodes, and decides how trials share its workers.

A trial on all workers leaves them idle during its updates and at the end of each generation.
Therefore as many trials as divide the workers run at once; the remaining ones run one after the
other on all workers. The results do not depend on the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final, get_args

from esbench.core.errors import UsageError, require_choice, require_integer, shown
from esbench.core.settings import MOST
from esbench.core.units import counted
from esbench.grids.trial_spec import TrialSpec

if TYPE_CHECKING:
    from esbench.engine.engine import Engine


EngineName: TypeAlias = Literal["local", "ray"]


@final
@dataclass(frozen=True)
class EngineChoice:
    """An engine and its options.

    Attributes:
        name: "local" for processes of this machine, or "ray".
        workers: worker processes, per node with "ray"; default one per core, 0 for none.
        address: HOST:PORT of a Ray cluster; None starts a Ray of this machine alone.
        allow_mixed: also use nodes with other versions, processors or user code.

    Raises:
        UsageError: there is no engine of that name.
    """

    workers: int | None = None
    name: EngineName = "local"
    address: str | None = None
    allow_mixed: bool = False

    def __post_init__(self) -> None:
        require_choice("engine", self.name, get_args(EngineName))

    def open(self, specs: Iterable[TrialSpec] = ()) -> Engine:
        """The engine for trials, which the caller closes.

        Raises:
            UsageError: the options do not fit together, or the engine is not available.
        """
        if self.name == "ray":
            from esbench.integrations.ray_engine import RayEngine

            return RayEngine(self.address, self.workers, self.allow_mixed)
        if self.address is not None or self.allow_mixed:
            option = "allow_mixed" if self.address is None else f"address {self.address}"
            raise UsageError(f"{option}: expected the engine 'ray', not 'local'")
        return local_engine(self.workers, specs)


def local_engine(workers: int | None, specs: Iterable[TrialSpec] = ()) -> Engine:
    """Workers on this machine, or this process in place of 0 workers.

    By default, this process plays ``specs`` if it alone knows an environment or a policy of them.
    Only a notebook or a prompt reads them. UsageError for a wrong number.
    """
    from esbench.core.user_code import is_interactive
    from esbench.engine.setup import only_here
    from esbench.engine.this_process import ThisProcess
    from esbench.engine.worker_pool import WorkerPool

    if workers is not None:
        require_integer("workers", workers, 0, MOST)
    if workers == 0:
        return ThisProcess()
    own = (only_here(spec.environment, spec.policy) for spec in specs)
    if workers is None and is_interactive() and (found := next(filter(None, own), None)):
        reason = f"{found.problem}, so this process plays the episodes, as with workers=0"
        return ThisProcess(reason=reason)
    return WorkerPool(workers)


FEW_STEPS: Final = 200_000  # of all trials: too few to start more processes for


@final
@dataclass(frozen=True)
class Schedule:
    """How trials share the workers."""

    trials: int
    workers: int
    at_once: int
    side_by_side: int  # the first ones; the others follow one after the other on all workers
    reason: str  # why trials run one after the other; on nodes, why this layout
    nodes: int = 0  # of a cluster, if any

    @property
    def is_on_nodes(self) -> bool:
        """Whether each trial runs on one node, and all nodes run trials at once."""
        return self.nodes > 0 and self.side_by_side > 0

    @property
    def workers_each(self) -> int:
        """The number of workers of a trial that runs beside others."""
        return self.workers // self.at_once

    @property
    def words(self) -> str:
        """The schedule and its reason as text."""
        if self.nodes:
            others = "each population on all nodes, one trial after the other"
            return f"{'each trial on one node' if self.is_on_nodes else others}, {self.reason}"
        all_workers = "all workers" if self.workers > 1 else "one worker"
        if self.at_once == 1:
            text = f"one trial after the other on {all_workers}"
            return text if self.trials < 2 or self.workers < 2 else f"{text}, {self.reason}"
        each = "one worker" if self.workers_each == 1 else f"{self.workers_each} workers"
        text = f"{self.at_once} trials side by side with {each} each"
        rest = self.trials - self.side_by_side
        return f"{text}; the last {'one' if rest == 1 else rest} on {all_workers}" if rest else text


def schedule(steps: Sequence[int], workers: int, at_once: int | None = None) -> Schedule:
    """The schedule of trials that are not done, whose budgets are ``steps``.

    By default, as many trials run ``at_once`` as divide the workers.

    Raises:
        UsageError: ``at_once`` is below 1 or above the number of workers.
    """
    trials = len(steps)
    if at_once is not None:
        if not isinstance(at_once, int) or not 1 <= at_once <= workers:
            raise UsageError(
                f"at_once = {shown(at_once)}: expected at least 1, and at most the number of "
                f"workers, {workers}"
            )
        at_once = max(1, min(at_once, trials))
        return Schedule(trials, workers, at_once, trials if at_once > 1 else 0, "as requested")
    if sum(steps) < FEW_STEPS:
        return Schedule(trials, workers, 1, 0, "because the budgets are small")
    divisors = (n for n in range(2, min(trials, workers) + 1) if workers % n == 0)
    most = max(divisors, default=1)
    reason = f"because {trials} trials cannot share {workers} workers evenly"
    return Schedule(trials, workers, most, trials // most * most if most > 1 else 0, reason)


def schedule_on_nodes(specs: Sequence[TrialSpec], workers: int, nodes: int) -> Schedule:
    """The schedule of trials that are not done on the nodes of a cluster.

    Nodes that each run trials of their own never wait for each other. With fewer trials than nodes,
    all of them play the population of one trial.
    """
    trials = len(specs)
    if any(spec.init_from is not None for spec in specs):
        reason = "because init_from names a folder that other nodes cannot read"
        return Schedule(trials, workers, 1, 0, reason, nodes)
    compared = "more" if trials > nodes else "not more"
    counts = f"{counted(trials, 'unfinished trial')}, {counted(nodes, 'node')}"
    reason = f"because there are {compared} trials than nodes ({counts})"
    beside = trials if trials > nodes else 0
    return Schedule(trials, workers, nodes if beside else 1, beside, reason, nodes)
