"""Trials on the nodes of a real Ray cluster; what happens to them there is tested without Ray."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, final

import pytest
from stored_trials import content
from watchers import Watcher
from watchers import run as run_here

from esbench.errors import UsageError
from esbench.integrations.ray_cluster import ClusterNode, RayCluster, Software, software
from esbench.integrations.ray_trials import MAX_STARTS, RayNodes
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.provenance.changes import Origin
from esbench.store.trial_folder import TrialFolder
from esbench.training.callbacks import ImportedCallback
from esbench.training.trials import Trial
from esbench.training.trials_on_nodes import TrialsOnNodes

Make = Callable[..., Trial]
STORE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster whose processes have a folder of their own as the current one."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    before, folder = Path.cwd(), tmp_path_factory.mktemp("nodes")
    os.chdir(folder)
    try:
        cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**STORE, "include_dashboard": False}
        )
        cluster.first = cluster.add_node(**STORE)
    finally:
        os.chdir(before)
    cluster.folder = folder
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def cluster(machines: Any) -> Iterator[RayCluster]:
    with RayCluster(machines.address) as connected:
        yield connected


def run(cluster: RayCluster, watcher: Watcher, *trials: Trial, **options: Any) -> list[str]:
    """Run trials on the nodes; returns what was told."""
    told: list[str] = []
    nodes = RayNodes(cluster, allow_mixed=False, notice=told.append)
    with nodes, TrialsOnNodes(trials, nodes, slots=4, tell=told.append, **options) as grid:
        grid.check()
        grid.run(watcher, watcher.trial_ended)
    return told


def beside(trial: Trial) -> Trial:
    path = trial.folder.path
    return replace(trial, folder=TrialFolder(path.with_name(f"local-{path.name}")))


def test_more_trials_than_nodes_are_stored_here_as_local_ones(
    cluster: RayCluster,
    machines: Any,
    make_trial: Make,
    pool: WorkerPool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [make_trial(seed=seed) for seed in range(3)]
    bad = make_trial("doubles:Raises-v0")
    run_here(pool, *(locals_ := [beside(trial) for trial in made]))
    monkeypatch.chdir(tmp_path)  # a path below it is another one for the nodes
    trials = [
        replace(trial, folder=TrialFolder(trial.folder.path.relative_to(tmp_path)))
        for trial in (*made, bad)
    ]
    watcher = Watcher()
    assert run(cluster, watcher, *trials) == []
    assert {name: events[-1] for name, events in watcher.events.items()} == {
        **{trial.name: "done" for trial in made},
        bad.name: "failed",
    }
    for trial, local in zip(made, locals_, strict=True):
        assert content(trial) == content(local)
    assert "fell over" in bad.folder.error()
    assert list(machines.folder.rglob("*")) == []


def test_the_trial_of_a_killed_node_goes_on_elsewhere_and_an_interrupt_saves_it(
    cluster: RayCluster, machines: Any, make_trial: Make, pool: WorkerPool
) -> None:
    trials = [make_trial(seed=seed, budget={"env_steps": 10**9}) for seed in range(2)]

    def strike() -> None:
        seen = watcher.events.values()
        if machines.first and sum("2" in events for events in seen) == 2:
            machines.remove_node(machines.first, allow_graceful=False)
            machines.first = None
            machines.add_node(**STORE)
        resumed = [events for events in seen if events[0] != "from 0"]
        if resumed and len(resumed[0]) >= 3:
            raise KeyboardInterrupt

    watcher = Watcher(strike)
    with pytest.raises(KeyboardInterrupt):
        run(cluster, watcher, *trials, callbacks=[ImportedCallback("often_saved:go_on")])
    assert len(watcher.deaths) == 1
    budget = {"env_steps": 10**9, "generations": 20}
    run_here(pool, *(locals_ := [beside(make_trial(seed=n, budget=budget)) for n in range(2)]))
    for trial, local in zip(trials, locals_, strict=True):
        records, state = trial.folder.records(), trial.folder.load_checkpoint()
        assert state is not None
        assert state["progress"]["generation"] == len(records) >= 2
        pairs = zip(records, local.folder.records(), strict=False)
        assert all(one.digest == other.digest for one, other in pairs)


@final
class Reference:
    """The answer of a remote call, which is there at once; an error is raised."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


@final
class StubCluster:
    """A cluster whose nodes answer at once what they have been given."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.told: list[str] = []
        self.killed: list[str] = []
        self.ray = SimpleNamespace(
            exceptions=SimpleNamespace(RayError=LookupError),
            wait=lambda refs, num_returns=1, timeout=None: (refs, []),
            get=self._get,
            kill=lambda actor: self.killed.append(actor.name),
        )

    def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(name, name, 1) for name in self.answers]

    def start(self, cls: type, node: ClusterNode, *_: object, **__: object) -> Any:
        return Actor(node.id, self.answers[node.id])

    def open(self, **options: Any) -> RayNodes:
        return RayNodes(cast("Any", self), notice=self.told.append, **options)

    def _get(self, reference: Reference) -> Any:
        if isinstance(reference.answer, Exception):
            raise reference.answer
        return reference.answer


@final
class Actor:
    """The actor of a node."""

    def __init__(self, name: str, answer: Any) -> None:
        self.name = name
        self.software = SimpleNamespace(remote=lambda: Reference(answer))
        remote = SimpleNamespace(remote=lambda *_: Reference([]))
        self.call = SimpleNamespace(options=lambda **_: remote)


OTHER = Software("0.0.1", Origin())


def test_a_node_with_other_software_is_refused_or_admitted_on_request() -> None:
    same = software()
    with pytest.raises(UsageError, match=r"node two.*0\.0\.1 there"):
        StubCluster(two=OTHER).open(allow_mixed=False).joined()
    mixed = StubCluster(one=same, two=OTHER)
    assert [node.name for node in mixed.open(allow_mixed=True).joined()] == ["one", "two"]
    assert mixed.told == mixed.killed == []


def test_a_node_that_joins_later_and_cannot_be_used_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("esbench.integrations.ray_trials.PERIOD_SECONDS", 0.0)
    cluster = StubCluster(one=software())
    nodes = cluster.open(allow_mixed=False)
    assert [node.name for node in nodes.joined()] == ["one"]
    cluster.answers |= {"two": OTHER, "three": LookupError("no module esbench"), "four": software()}
    assert [node.name for node in nodes.joined()] == ["four"]
    assert cluster.killed == ["two", "three"]
    for _ in range(10):
        assert list(nodes.joined()) == []
    assert cluster.killed == ["two", *["three"] * MAX_STARTS]
    refused, broken = cluster.told
    assert "node two" in refused
    assert "node three" in broken
    assert "no module esbench" in broken
