"""Trials on nodes that come and go leave behind what local ones do."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from nodes import LocalNodes
from stored_trials import content
from watchers import Watcher
from watchers import run as run_here

from esbench.core.errors import UsageError, UserCodeError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment import trial_server
from esbench.experiment.trial_server import Died, TrialServer
from esbench.experiment.trials import Trial
from esbench.experiment.trials_on_nodes import TrialsOnNodes
from esbench.experiment.watchers import Clock, ImportedCallback, Limits
from esbench.store.provenance import user_code
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
ENDLESS: dict[str, Any] = {"budget": {"env_steps": 10**9}}


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    found = LocalNodes()
    yield found
    found.close()


def run(
    nodes: LocalNodes,
    watcher: Watcher,
    *trials: Trial,
    tell: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> None:
    with TrialsOnNodes(trials, nodes, slots=4, tell=tell, **options) as grid:
        grid.check(watcher)
        grid.run(watcher, watcher.trial_ended)


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
    assert all(node.places == {0} for node in nodes.all)
    assert len(nodes.all) == 2
    assert nodes.code == user_code(trials[0].spec)
    assert nodes.code
    for trial, local in zip(trials, locals_, strict=True):
        assert content(trial.folder.path) == content(local.folder.path)
    again = Watcher()
    run(LocalNodes(), again, *trials)  # needs none
    assert [outcome for outcome, _ in again.ends] == ["skipped"] * 4


def test_notices_of_the_nodes_arrive(make_trial: Make, nodes: LocalNodes) -> None:
    told = list[str]()
    nodes.add()
    run(nodes, Watcher(), make_trial("doubles:Valve-v0"), tell=told.append)
    (warning,) = told
    assert "0 is not within the bounds" in warning


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
    run(nodes, watcher, *trials, callbacks=[ImportedCallback("often_saved:go_on")])
    assert sorted(watcher.deaths) == ["node-0 was lost", "signal SIGKILL (out of memory?)"]
    for trial, local in zip(trials, locals_, strict=True):
        assert content(trial.folder.path) == content(local.folder.path)
    (node,), losses = (trials[0].folder.nodes()[key] for key in ("nodes", "losses"))
    assert (node["host"], node["workers"], losses) == ("node-1", 1, 1)
    assert node["steps_per_second"] > 0
    resumed = [int(watcher.events[trials[n].name][0].removeprefix("from ")) for n in (0, 2)]
    assert all(3 <= generation <= 8 for generation in resumed)
    assert watcher.events[trials[1].name][0] == "from 0"


def test_an_interrupt_saves_every_trial_and_they_can_be_resumed(
    make_trial: Make, pool: WorkerPool, nodes: LocalNodes
) -> None:
    trials = [make_trial(seed=seed, **ENDLESS) for seed in range(3)]
    for _ in range(2):
        nodes.add()
        watcher = Watcher()
        watcher._then = partial(interrupt_at, watcher, trials=len(nodes.all))
        with pytest.raises(KeyboardInterrupt):
            run(nodes, watcher, *trials)
        begun = [trial for trial in trials if trial.name in watcher.events]
        assert begun == trials[: len(nodes.all)]
        for trial in begun:
            state = trial.folder.load_checkpoint()
            assert state is not None
            assert state["progress"]["generation"] == len(trial.folder.rows())
            assert trial.folder.status == "partial"
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


def test_a_trial_that_fails_or_runs_elsewhere_stops_no_other(
    make_trial: Make, nodes: LocalNodes
) -> None:
    bad = make_trial("doubles:Raises-v0")
    doomed = make_trial("doubles:KillsTheTrainer-v0", **ENDLESS)
    held, damaged, good = (make_trial(seed=seed) for seed in (1, 2, 3))
    damaged.folder.path.mkdir(parents=True)
    (damaged.folder.path / "trial.json").write_text("no JSON")
    nodes.add()
    watcher = Watcher()
    with held.folder.locked():
        run(nodes, watcher, doomed, bad, held, damaged, good)
    assert {name: events[-1] for name, events in watcher.events.items()} == {
        doomed.name: "failed",
        bad.name: "failed",
        held.name: "elsewhere",
        damaged.name: "failed",
        good.name: "done",
    }
    assert len(watcher.deaths) == 2  # the third is the end of the doomed
    assert "died 3 times" in doomed.folder.error()
    assert "fell over" in bad.folder.error()
    assert bad.folder.status == doomed.folder.status == "failed"


def test_what_cannot_be_stored_ends_the_grid_in_one_sentence(
    make_trial: Make, nodes: LocalNodes
) -> None:
    trial = make_trial(**ENDLESS)
    trial.folder.path.mkdir(parents=True)
    (trial.folder.path / "checkpoint").write_text("a file")
    nodes.add()
    with pytest.raises(UsageError, match=r"cannot write .*checkpoint"):
        run(nodes, Watcher(), trial, callbacks=[ImportedCallback("often_saved:go_on")])


def test_what_is_not_supported_is_refused_before_any_trial(
    make_trial: Make, nodes: LocalNodes
) -> None:
    trial = make_trial("doubles:Walk-v0", policy={"template": "conv_lstm"})
    nodes.lose(nodes.add())
    nodes.add()  # the check goes on there
    with pytest.raises(UsageError, match="convolutional"):
        run(nodes, Watcher(), trial)
    assert trial.folder.status == "missing"


def test_user_code_errors_that_fails_in_the_check_fails_its_trial_alone(
    make_trial: Make, nodes: LocalNodes
) -> None:
    killed, exits, good = (
        make_trial("hostile_code:Constructor-kill-v0"),
        make_trial("hostile_code:Constructor-sys_exit-v0"),
        make_trial(),
    )
    nodes.add()
    watcher = Watcher()
    run(nodes, watcher, killed, exits, good)
    assert {name: events[-1] for name, events in watcher.events.items()} == {
        killed.name: "failed",
        exits.name: "failed",
        good.name: "done",
    }
    assert "SIGKILL" in killed.folder.error()
    assert "SystemExit" in exits.folder.error()


def test_a_grid_whose_own_code_cannot_be_made_is_refused(
    make_trial: Make, nodes: LocalNodes
) -> None:
    trials = [make_trial("hostile_code:Constructor-raise-v0", seed=seed) for seed in range(2)]
    nodes.add()
    with pytest.raises(UserCodeError, match="Constructor-raise"):
        run(nodes, Watcher(), *trials)
    assert [trial.folder.status for trial in trials] == ["missing"] * 2


@pytest.mark.parametrize(
    "limits", [Limits(trial=1.5), Limits(episode=1.5)], ids=["trial", "episode"]
)
def test_a_trial_that_hangs_fails_after_a_limit(
    make_trial: Make, nodes: LocalNodes, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.setattr("esbench.experiment.watchers.HINT_SECONDS", 0.0)
    trial, watcher = make_trial("hostile_code:Step-sleep-v0"), Watcher()
    nodes.add()
    run(nodes, watcher, trial, limits=limits)
    assert [outcome for outcome, _ in watcher.ends] == ["failed"]
    assert trial.folder.error() == f"{limits.exceeded(2.0, 2.0)}\n"
    assert set(watcher.silent) == {trial.name}
    assert not watcher.deaths


def test_after_a_limit_the_node_runs_other_trials(
    make_trial: Make, nodes: LocalNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_trial("hostile_code:Step-sleep-v0"), make_trial()
    look = lambda _, trial, *__: "too late" if trial is bad else ""  # noqa: E731
    monkeypatch.setattr(Clock, "check", look)
    nodes.add()
    watcher = Watcher()
    run(nodes, watcher, bad, good)
    assert watcher.ends[0] == ("failed", "too late")
    assert [outcome for outcome, _ in watcher.ends] == ["failed", "done"]
    assert not watcher.deaths


def test_a_limit_saves_the_trial(
    make_trial: Make, nodes: LocalNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, watcher = make_trial(**ENDLESS), Watcher()
    reached = lambda *_: "too late" if "3" in watcher.events.get(trial.name, []) else ""  # noqa: E731
    monkeypatch.setattr(Clock, "check", reached)
    nodes.add()
    run(nodes, watcher, trial)
    state = trial.folder.load_checkpoint()
    assert state is not None
    assert state["progress"]["generation"] == len(trial.folder.rows()) >= 3
    assert trial.folder.status == "failed"


def deaf_engine(ready: Path) -> WorkerPool:
    """Ignore the request to end, for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.touch()
    while True:
        signal.pause()


def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_server, "PATIENCE", 0.1)
    server, ready = TrialServer(), tmp_path / "ready"
    server.assign(0, 0, (partial(deaf_engine, ready), ()), None)
    while not ready.exists():
        time.sleep(0.01)
    server.end(0)
    server.end(1)  # there is none
    assert server.receive() == [(0, Died("signal SIGKILL (out of memory?)"))]


class MortalChild:
    """A process that ends on request, and keeps the work that arrives."""

    made: ClassVar[list["MortalChild"]] = []

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[object] = []
        self.ends = threading.Event()
        self.made.append(self)

    def send(self, work: object) -> None:
        self.sent.append(work)

    def receive(self) -> None:
        self.ends.wait(60)

    def cause_of_death(self) -> str:
        return "on request"


def test_work_that_crosses_the_news_of_a_death_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_server, "Child", MortalChild)
    monkeypatch.setattr(MortalChild, "made", [])
    monkeypatch.setattr(trial_server, "end", lambda children: None)
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


def test_the_death_of_an_idle_process_is_counted(make_trial: Make) -> None:
    cluster = LocalNodes()
    cluster.add()
    grid = TrialsOnNodes([make_trial()], cluster, slots=4)
    grid._join()
    (place,) = grid._places
    grid._inbox.append((place, Died("killed")))
    grid._handle()
    assert place.deaths == 1  # or all further work for the place would be dropped


def test_a_node_runs_as_many_trials_at_once_as_its_cores_allow(make_trial: Make) -> None:
    trials = [make_trial(seed=seed, budget={"env_steps": 10**6}) for seed in range(6)]
    cluster = LocalNodes(cores=4)
    cluster.add(), cluster.add()
    grid = TrialsOnNodes(trials, cluster, slots=4)
    grid._join()
    assert [(place.node.name, place.number, place.workers) for place in grid._places] == [
        ("node-0", 0, 2),
        ("node-1", 0, 2),
        ("node-0", 1, 2),
        ("node-1", 1, 2),
    ]
