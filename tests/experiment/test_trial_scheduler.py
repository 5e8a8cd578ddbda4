"""Trials in processes here, or on nodes that come and go, leave behind what they do alone."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, final

import pytest
from command_line import children
from nodes import LocalNodes
from stored_trials import content
from watchers import Watcher
from watchers import run as run_here

from esbench.core import clock as core_clock
from esbench.core.errors import UsageError, UserCodeError
from esbench.engine import child_process
from esbench.engine.engine import Engine, Joined, Node, Nodes
from esbench.engine.this_process import ThisProcess
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment import trial_processes, trial_scheduler
from esbench.experiment import watchers as limits_module
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trial_processes import Died, TrialServer
from esbench.experiment.trial_scheduler import TrialScheduler
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Clock, ImportedCallback, Limits
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
Run = Callable[..., None]
ENDLESS: dict[str, Any] = {"budget": {"env_steps": 10**9}}
ALONE = (1, partial(WorkerPool, 1, 4))
SAVE_OFTEN = [ImportedCallback("often_saved:go_on")]


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    found = LocalNodes()
    yield found
    found.close()


def one_each(steps: Sequence[int], cores: int) -> tuple[int, Callable[[], Engine]]:
    return cores, partial(WorkerPool, 1, 4)


def here_each(steps: Sequence[int], cores: int) -> tuple[int, Callable[[], Engine]]:
    return cores, partial(ThisProcess, 4)  # the processes of the trials play, too


def run(
    nodes: LocalNodes | None,
    watcher: Watcher,
    *trials: Trial,
    layout: Any = one_each,
    **options: Any,
) -> None:
    todo = [trial for trial in trials if not trial.is_done]
    with TrialScheduler(todo, layout, nodes, **options) as grid:
        grid.check(trials, watcher)
        grid.run(watcher, watcher.trial_ended)


@pytest.fixture
def run_in_processes(nodes: LocalNodes) -> Run:
    """Runs trials on one node, whose server is that of a machine without nodes, too."""
    nodes.add()
    return partial(run, nodes)


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    assert not children("trial_main")


def beside(trial: Trial) -> Trial:
    """The same trial in another folder."""
    path = trial.folder.path
    return replace(trial, folder=TrialFolder(path.with_name(f"local-{path.name}")))


def test_every_file_is_that_of_a_local_run_on_whatever_nodes_join(
    make_trial: Make, pool: WorkerPool, nodes: LocalNodes
) -> None:
    members = replace(make_trial("doubles:Chatty-v0"), record_members=True, keep=3)
    trials = [members, *(make_trial(seed=seed) for seed in (1, 2, 3))]
    run_here(pool, *(locals_ := [beside(trial) for trial in trials]))
    told: list[str] = []

    def join(text: str) -> None:
        told.append(text)
        nodes.add()

    def grow() -> None:
        if len(nodes.all) == 1:
            nodes.add()

    watcher = Watcher(grow)
    run(nodes, watcher, *trials, tell=join)
    assert len(told) == 1
    assert [outcome for outcome, _ in watcher.ends] == ["done"] * 4
    assert len(nodes.all) == 2
    for trial, local in zip(trials, locals_, strict=True):
        assert content(trial.folder.path) == content(local.folder.path)


def test_trials_of_lost_nodes_and_processes_go_on_from_their_last_checkpoint(
    make_trial: Make, pool: WorkerPool, nodes: LocalNodes
) -> None:
    table = {"budget": {"env_steps": 10**9, "generations": 8}}
    trials = [make_trial(seed=seed, **table) for seed in range(3)]
    run_here(pool, *(locals_ := [beside(trial) for trial in trials]))
    nodes.add(), nodes.add()
    losses: dict[str, Callable[[], None]] = {
        trials[0].name: lambda: nodes.lose(nodes.all[0]),
        trials[2].name: lambda: nodes.all[1].kill_processes(),
    }
    watcher = Watcher()

    def strike() -> None:
        for name in [name for name in losses if watcher.events.get(name, [])[-1:] == ["4"]]:
            losses.pop(name)()

    watcher._then = strike
    run(nodes, watcher, *trials, layout=here_each, callbacks=SAVE_OFTEN)
    assert sorted(watcher.deaths) == ["node-0 was lost", "signal SIGKILL (out of memory?)"]
    for trial, local in zip(trials, locals_, strict=True):
        assert content(trial.folder.path) == content(local.folder.path)
    (node,), losses = (trials[0].folder.nodes()[key] for key in ("nodes", "losses"))
    assert (node["host"], node["workers"], losses) == ("node-1", 1, 1)
    assert node["steps_per_second"] > 0
    resumed = [int(watcher.events[trials[n].name][0].removeprefix("from ")) for n in (0, 2)]
    assert all(3 <= generation <= 8 for generation in resumed)
    assert watcher.events[trials[1].name][0] == "from 0"


def kill_a_process() -> None:
    os.kill(children("trial_main")[0], signal.SIGKILL)


def test_side_by_side_the_results_are_the_same_also_if_a_process_is_killed(
    make_trial: Make, pool: WorkerPool
) -> None:
    trials = [make_trial(seed=seed) for seed in range(3)]
    run_here(pool, *(locals_ := [beside(trial) for trial in trials]))
    deadly = iter([kill_a_process])
    watcher = Watcher(lambda: next(deadly, lambda: None)())
    assert run_grid(trials, pool, watcher, at_once=2) == ["done"] * 3
    assert watcher.deaths == ["signal SIGKILL (out of memory?)"]
    for trial, local in zip(trials, locals_, strict=True):
        assert content(trial.folder.path) == content(local.folder.path)


def test_an_interrupt_saves_every_trial_and_they_can_be_resumed(
    make_trial: Make, pool: WorkerPool, nodes: LocalNodes
) -> None:
    trials = [make_trial(seed=seed, **ENDLESS) for seed in range(3)]
    for _ in range(2):
        nodes.add()
        watcher = Watcher()
        watcher._then = partial(interrupt_at, watcher, trials=len(nodes.all))
        with pytest.raises(KeyboardInterrupt):
            run(nodes, watcher, *trials, layout=here_each)
        begun = [trial for trial in trials if trial.name in watcher.events]
        assert begun == trials[: len(nodes.all)]
        require_saved(begun)
        nodes.restart()
    assert watcher.events[trials[0].name][0] != "from 0"
    assert trials[2].folder.status == "missing"
    local = beside(make_trial(budget={"env_steps": 10**9, "generations": 100}))
    run_here(pool, local)
    pairs = zip(trials[0].folder.records(), local.folder.records(), strict=False)
    digests = [(one.digest, other.digest) for one, other in pairs]
    assert len(digests) >= 2
    assert all(one == other for one, other in digests)


def interrupt_at(watcher: Watcher, trials: int) -> None:
    """An interrupt as soon as this number of trials have a generation."""
    if sum(events[-1].isdigit() for events in watcher.events.values()) == trials:
        raise KeyboardInterrupt


def require_saved(trials: Sequence[Trial], status: str = "partial") -> None:
    for trial in trials:
        state = trial.folder.load_checkpoint()
        assert state is not None
        assert state["progress"]["generation"] == len(trial.folder.records()) >= 1
        assert trial.folder.status == status


def test_a_trial_that_fails_or_runs_elsewhere_stops_no_other(
    make_trial: Make, run_in_processes: Run
) -> None:
    bad = make_trial("doubles:Raises-v0")
    doomed = make_trial("doubles:KillsTheTrainer-v0", **ENDLESS)
    held, damaged, good = (make_trial(seed=seed) for seed in (1, 2, 3))
    damaged.folder.path.mkdir(parents=True)
    (damaged.folder.path / "trial.json").write_text("no JSON")
    watcher = Watcher()
    with held.folder.locked():
        run_in_processes(watcher, doomed, bad, held, damaged, good)
    assert {name: events[-1] for name, events in watcher.events.items()} == {
        doomed.name: "failed",
        bad.name: "failed",
        held.name: "elsewhere",
        damaged.name: "failed",
        good.name: "done",
    }
    assert len(watcher.deaths) == 2  # the third is the end of the doomed
    assert "died 3 times" in doomed.folder.error()
    assert "SIGKILL" in doomed.folder.error()
    assert "fell over" in bad.folder.error()
    assert any("fell over" in detail and "node-0" in detail for _, detail in watcher.ends)
    assert bad.folder.status == doomed.folder.status == "failed"


def test_a_refused_specification_ends_the_grid_in_one_sentence(
    make_trial: Make, run_in_processes: Run
) -> None:
    trial = make_trial("doubles:Walk-v0", policy={"template": "conv_lstm"})
    with pytest.raises(UsageError, match="convolutional"):
        run_in_processes(Watcher(), trial)
    assert not trial.folder.is_done


def test_a_trial_that_hangs_fails_after_a_limit(
    make_trial: Make, run_in_processes: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "HINT_SECONDS", 0.0)
    trial, watcher, limits = make_trial("hostile_code:Step-sleep-v0"), Watcher(), Limits(1.0)
    run_in_processes(watcher, trial, limits=limits)
    assert [outcome for outcome, _ in watcher.ends] == ["failed"]
    assert trial.folder.error() == f"{limits.exceeded(2.0, 2.0)}\n"
    assert set(watcher.silent) == {trial.name}
    assert not watcher.deaths


def test_after_a_limit_the_process_is_replaced_for_other_trials(
    make_trial: Make, run_in_processes: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_trial("hostile_code:Step-sleep-v0"), make_trial()
    look = lambda _, trial, *__: "too late" if trial is bad else ""  # noqa: E731
    monkeypatch.setattr(Clock, "check", look)
    watcher = Watcher()
    run_in_processes(watcher, bad, good)
    assert watcher.ends[0] == ("failed", "too late")
    assert [outcome for outcome, _ in watcher.ends] == ["failed", "done"]
    assert not watcher.deaths


def test_a_limit_saves_the_trial(
    make_trial: Make, run_in_processes: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, watcher = make_trial(**ENDLESS), Watcher()
    reached = lambda *_: "too late" if "3" in watcher.events.get(trial.name, []) else ""  # noqa: E731
    monkeypatch.setattr(Clock, "check", reached)
    run_in_processes(watcher, trial)
    require_saved([trial], "failed")


def test_the_clock_of_a_trial_counts_only_what_its_processes_could_run(
    make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, watcher, trial = [100.0], Watcher(), make_trial()
    monkeypatch.setattr(core_clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clock = Clock()

    def look(**limits: float) -> bool:
        return bool(clock.check(trial, Limits(**limits), watcher))

    def run_for(seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            now[0] += 0.5
            look()

    run_for(9)
    assert (look(episode=9), look(trial=9), look(episode=10, trial=10)) == (True, True, False)
    clock.note_progress()
    assert (look(episode=1), look(trial=9)) == (False, True)
    now[0] += 1000  # another process has yet to start
    clock.note_progress()
    assert (look(episode=1), look(trial=9), look(trial=10)) == (False, True, False)
    now[0] += 1000  # the container is frozen
    assert (look(episode=1), look(trial=11)) == (False, False)
    run_for(1)
    assert (look(episode=1), look(trial=11)) == (True, True)
    assert not watcher.silent
    run_for(60)
    look(), look()
    assert watcher.silent == [trial.name]


def test_an_error_of_user_code_keeps_its_class_between_processes() -> None:
    error = trial_processes._sendable(UserCodeError("it fell over"))
    assert (type(error), str(error)) == (UserCodeError, "it fell over")


def deaf_engine(ready: Path) -> WorkerPool:
    """Ignore the request to end, for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.touch()
    while True:
        signal.pause()


@pytest.mark.parametrize("closed", [True, False])
def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    for module in (child_process, trial_processes):
        monkeypatch.setattr(module, "PATIENCE", 0.1)
    server, ready = TrialServer(), tmp_path / "ready"
    server.assign(0, 0, (partial(deaf_engine, ready), ()), None)
    while not ready.exists():
        time.sleep(0.01)
    server.end(1)  # there is none
    server.close() if closed else server.end(0)
    assert server.receive() == [(0, Died("signal SIGKILL (out of memory?)"))]


def test_an_interrupt_ends_a_trial_that_cannot_be_saved(make_trial: Make) -> None:
    trial, told = make_trial(**ENDLESS), list[str]()

    def interrupt() -> None:
        if "3" in watcher.events[trial.name]:  # the callback has been imported
            raise KeyboardInterrupt

    watcher = Watcher(interrupt)
    full = [ImportedCallback("full_disk:go_on")]
    with pytest.raises(KeyboardInterrupt):
        run(None, watcher, trial, callbacks=full, tell=told.append, layout=lambda *_: ALONE)
    assert "No space left on device" in told[0]
    assert trial.folder.status == "partial"


@final
class SilentNode(Nodes, Node):
    """A node that joins, and says nothing more."""

    name, cores = "silent", 1

    def __init__(self) -> None:
        self.events: list[tuple[Node, object]] = [(self, Joined())]

    def call(self, *_: object, **__: object) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def take(self) -> Sequence[tuple[Node, object]]:
        found, self.events = self.events, []
        return found

    def close(self) -> None: ...


def test_trials_that_do_not_end_are_not_waited_for(
    make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_scheduler, "SAVE_SECONDS", 0.02)
    trial, told = make_trial(), list[str]()
    with TrialScheduler([trial], one_each, SilentNode(), tell=told.append) as grid:
        grid._give(Watcher().trial_ended)
    assert "1 trial did not end" in told[0]
    with trial.folder.locked() as mine:
        assert mine


class MortalChild:
    """A process that ends on request, and keeps the work that arrives."""

    made: ClassVar[list["MortalChild"]] = []

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[object] = []
        self.ends = threading.Event()
        self.made.append(self)
        self.require_start = nullcontext

    def send(self, work: object) -> None:
        self.sent.append(work)

    def receive(self) -> None:
        self.ends.wait(60)

    def cause_of_death(self) -> str:
        return "on request"


def test_work_that_crosses_the_news_of_a_death_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_processes, "Child", MortalChild)
    monkeypatch.setattr(MortalChild, "made", [])
    monkeypatch.setattr(trial_processes, "end", lambda children: None)
    server, arguments = TrialServer(), (WorkerPool, ())
    server.assign(0, 0, arguments, "a")
    MortalChild.made[-1].ends.set()
    while server._children:
        time.sleep(0.001)
    server.assign(0, 0, arguments, "b")  # the sender does not know of the death yet
    assert server.receive() == [(0, Died("on request"))]
    server.assign(0, 1, arguments, "b")
    assert [child.sent for child in MortalChild.made] == [["a"], ["b"]]
    MortalChild.made[-1].ends.set()
    assert server.receive() == [(0, Died("on request"))]


def test_a_trial_runs_on_every_node_before_a_second_one_does(make_trial: Make) -> None:
    trials = [make_trial(seed=seed, budget={"env_steps": 10**6}) for seed in range(6)]
    cluster, asked = LocalNodes(cores=4), list[tuple[int, int]]()

    def layout(steps: Sequence[int], cores: int) -> tuple[int, Callable[[], Engine]]:
        asked.append((len(steps), cores))
        return 2, WorkerPool

    cluster.add(), cluster.add()
    grid = TrialScheduler(trials, layout, cluster)
    grid._join()
    assert asked == [(3, 4)] * 2
    places = [(place.node.name, place.number) for place in grid._places]
    assert places == [("node-0", 0), ("node-1", 0), ("node-0", 1), ("node-1", 1)]
    grid._inbox.append((grid._places[0], Died("killed while it was idle")))
    grid._handle()
    assert grid._places[0].deaths == 1  # or all further work for the place would be dropped
    cluster.close()
