"""Runs the trials of a grid, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from esbench.agents.agent import agent_class
from esbench.algorithms.base import algorithm_class
from esbench.core.errors import UsageError
from esbench.core.user_code import is_interactive, names_in
from esbench.engine.child_process import require_main_process
from esbench.engine.engine import Engine, Nodes
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.engines import Schedule, schedule, schedule_on_nodes
from esbench.experiment.run_trial import check_trials, run_trial
from esbench.experiment.trial_processes import TrialServer
from esbench.experiment.trial_scheduler import Layout, TrialScheduler
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import (
    UNLIMITED,
    Callback,
    ImportedCallback,
    Limits,
    Outcome,
    Watcher,
)
from esbench.grids.trial_spec import TrialSpec
from esbench.store.own_code import importable_code, is_of_main, user_code


def run_grid(
    trials: Sequence[Trial],
    pool: Engine,
    watcher: Watcher,
    callbacks: Sequence[Callback] = (),
    at_once: int | None = 1,
    limits: Limits = UNLIMITED,
    apart: bool = False,
) -> list[Outcome]:
    """Run every trial that is not done, and return the outcomes in the order in which they ended.

    A failed or damaged trial does not stop the others. ``at_once`` trials run side by side (None:
    as ``schedule`` chooses), on each node of a cluster, and share as many workers as ``pool`` has.

    Trials run in processes of their own if several run at once, if there are ``limits``, on the
    nodes of a cluster, and, with ``apart``, if they use user code, which can end or block its
    process. Those processes import the callbacks by name.

    Raises:
        UsageError: a trial is not supported, a callback of trials in processes of their own has no
            name, a folder holds another specification or format, or a folder cannot be written.
            Stored trials are not changed.
        TrainingError: a process that runs trials failed.
        KeyboardInterrupt: after the running trials were saved.
    """
    require_main_process()
    outcomes: list[Outcome] = []

    def ended(trial: Trial, outcome: Outcome, detail: str) -> None:
        outcomes.append(outcome)
        watcher.trial_ended(trial, outcome, detail)

    todo = [trial for trial in trials if not trial.is_done]
    groups = _groups(todo, pool, callbacks, at_once, limits != UNLIMITED, apart)
    named = [each for each in callbacks if isinstance(each, ImportedCallback)]
    for number, (group, layout, nodes) in enumerate(groups):
        with TrialScheduler(group, layout, nodes, named, limits, pool.notice) as scheduler:
            if number == 0:
                scheduler.check(trials, watcher)
            scheduler.run(watcher, ended)
    if not groups:
        if todo:
            pool.start()  # the workers load during the check
        check_trials(trials, pool)
    handled = {trial.folder.path for group, *_ in groups for trial in group}
    for trial in trials:
        if trial.folder.path not in handled:
            ended(trial, *run_trial(trial, pool, watcher, callbacks))
    return outcomes


def layout_of(trials: Sequence[Trial], engine: Engine, at_once: int | None = None) -> Schedule:
    """How the trials that are not done share the workers; UsageError for a wrong ``at_once``."""
    specs = [trial.spec for trial in trials if not trial.is_done]
    if engine.is_here and at_once not in {None, 1}:
        raise UsageError(f"at_once = {at_once}: expected 1 with workers=0, which is one process")
    if own := next(filter(None, map(_only_here, specs)), ""):
        if at_once not in {None, 1}:
            raise UsageError(
                f"at_once = {at_once} with {own}, which a notebook or a prompt defines: expected "
                "1, or it in a file such as mine.py, which other processes can import"
            )
        at_once = 1
    if (machines := engine.machines()) is None:
        return schedule([spec.budget.env_steps for spec in specs], engine.size, at_once)
    found = schedule_on_nodes(specs, engine.size, machines.count)
    if not found.is_on_nodes and at_once not in {None, 1}:
        raise UsageError(f"at_once = {at_once}: expected 1 with nodes that all play one trial")
    return found


def _groups(
    todo: Sequence[Trial],
    pool: Engine,
    callbacks: Sequence[Callback],
    at_once: int | None,
    limited: bool,
    apart: bool,
) -> list[tuple[Sequence[Trial], Layout, Nodes | None]]:
    """Trials for other processes, their layout, and the nodes of a cluster if they run there.

    UsageError if a callback is a plain function, where these processes are needed, or if they are
    needed and there are none.
    """
    if limited and pool.is_here:
        raise UsageError(
            "episode_timeout or trial_timeout with workers=0: expected worker processes, which can "
            "be ended"
        )
    if limited and (own := next(filter(None, (_only_here(trial.spec) for trial in todo)), "")):
        raise UsageError(
            f"episode_timeout or trial_timeout with {own}, which a notebook or a prompt defines: "
            "expected it in a file such as mine.py, which the process of the trial can import"
        )
    chosen = layout_of(todo, pool, at_once)
    if chosen.is_on_nodes and (machines := pool.machines()):
        _named(callbacks, "trials on nodes")
        machines.serve(TrialServer, importable_code(trial.spec for trial in todo))

        def on_node(steps: Sequence[int], cores: int) -> tuple[int, Callable[[], Engine]]:
            found = schedule(steps, cores, at_once)
            return found.at_once, partial(WorkerPool, found.workers_each, pool.slots)

        return [(todo, on_node, machines)]
    beside, alone = todo[: chosen.side_by_side], todo[chosen.side_by_side :]
    groups = list[tuple[Sequence[Trial], Layout, Nodes | None]]()
    if beside:
        share = partial(WorkerPool, chosen.workers_each, pool.slots)
        groups.append((beside, lambda *_: (chosen.at_once, share), None))
    if beside or limited:
        why = f"at_once = {chosen.at_once}" if beside else "episode_timeout or trial_timeout"
        _named(callbacks, why)
    importable = all(isinstance(each, ImportedCallback) for each in callbacks)
    if apart and pool.is_local and importable and not limited:
        code = {name for trial in alone for name in user_code(trial.spec)}
        # Other processes cannot import what the main module defines.
        limited = bool(code) and not any(map(is_of_main, code))
    if alone and limited:
        opener = pool.opener()
        groups.append((alone, lambda *_: (1, opener), None))
    return groups


def _only_here(spec: TrialSpec) -> str:
    """The algorithm or optimizer of a trial that other processes cannot import; empty if none."""
    if not is_interactive():
        return ""
    name = spec.algorithm.name
    cls = agent_class(name) if spec.is_agent else algorithm_class(name)
    if cls.__module__ == "__main__":
        return f"algorithm {name!r}"
    names = names_in(spec.algorithm.model_dump(mode="json"))
    return next((f"optimizer {each!r}" for each in names if each.startswith("__main__:")), "")


def _named(callbacks: Sequence[Callback], where: str) -> None:
    """Raises UsageError if a callback is a plain function, which other processes cannot call."""
    if not all(isinstance(each, ImportedCallback) for each in callbacks):
        raise UsageError(
            f"{where} with a function as callback: expected its name, such as "
            "'package.file:function', which other processes can import"
        )
