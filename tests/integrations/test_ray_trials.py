"""Trials on the nodes of a real Ray cluster; what happens to them there is tested without Ray."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from command_line import Run, working_in
from ray_nodes import Nodes
from stored_trials import content
from watchers import Watcher
from watchers import run as run_here

from esbench.bench.grid_cost import Cost
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trial_processes import TrialServer
from esbench.experiment.trial_scheduler import TrialScheduler
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import ImportedCallback
from esbench.integrations.ray_cluster import RayCluster
from esbench.integrations.ray_nodes import RayNodes
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
GRID = """
name = "small"
seeds = [0, 1]
environments = ["doubles:Walk-v0", "doubles:Raises-v0"]
[budget]
env_steps = 500
[algorithms.openai_es]
population_size = 8
sigma = 0.1
[policy]
template = "mlp"
hidden = [4]
[evaluation]
episodes = 4
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder of the processes of the nodes."""
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def machines(folder: Path) -> Iterator[Nodes]:
    """Two nodes."""
    pytest.importorskip("ray")
    with working_in(folder):
        cluster = Nodes()
        cluster.resize(2)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def cluster(machines: Nodes) -> Iterator[RayCluster]:
    with RayCluster(machines.address) as connected:
        yield connected


def test_more_trials_than_nodes_are_stored_here_as_local_ones(
    cluster: RayCluster,
    machines: Nodes,
    folder: Path,
    esbench: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "grid.toml").write_text(GRID)
    here, there = ("run", "grid.toml", "--out", "here"), ("grid.toml", "--out", "there")
    ray = "--engine", "ray", "--address", machines.address
    assert esbench(*here, "--at-once", "1")[0] == 1
    code, out, err = esbench("run", *there, *ray)  # a relative path is another one for the nodes
    assert code == 1, err
    assert "each trial on one node" in out.splitlines()[0]
    assert "4 unfinished trials, 2 nodes" in out.splitlines()[0]
    for seed in ("seed-0", "seed-1"):
        good, bad = (Path(f"doubles_{name}-v0/openai_es/{seed}") for name in ("Walk", "Raises"))
        assert content(tmp_path / "there" / good) == content(tmp_path / "here" / good)
        hardware = TrialFolder(tmp_path / "there" / good).description()["hardware"]
        assert hardware["host"]
        assert "fell over" in TrialFolder(tmp_path / "there" / bad).error()
    assert list(folder.rglob("*")) == []
    cost = Cost("doubles:Walk-v0", 4, 0, 500, 1000.0, 1.0, {})
    monkeypatch.setattr("esbench.bench.grid_cost.costs", lambda *_: [cost])
    code, out, _ = esbench("plan", *there, *ray, "--seeds", "2,3")
    assert code == 0
    assert "4 unfinished trials, 2 nodes" in " ".join(out.split())


def test_the_trial_of_a_killed_node_goes_on_elsewhere_and_an_interrupt_saves_it(
    cluster: RayCluster, machines: Nodes, make_trial: Make, pool: WorkerPool
) -> None:
    trials = [make_trial(seed=seed, budget={"env_steps": 10**9}) for seed in range(2)]
    first = machines.nodes[0]

    def strike() -> None:
        seen = watcher.events.values()
        if first in machines.nodes and sum("2" in events for events in seen) == 2:
            machines.kill(first)
            machines.add()
        resumed = [events for events in seen if events[0] != "from 0"]
        if resumed and len(resumed[0]) >= 3:
            raise KeyboardInterrupt

    watcher = Watcher(strike)
    nodes = RayNodes(cluster, workers=None, allow_mixed=False, notice=lambda _: None)
    callbacks = [ImportedCallback("often_saved:go_on")]
    nodes.serve(TrialServer, {})
    layout = lambda *_: (1, partial(WorkerPool, 1, 4))  # noqa: E731
    with TrialScheduler(trials, layout, nodes, callbacks, tell=pytest.fail) as grid:
        grid.check(trials, watcher)
        with pytest.raises(KeyboardInterrupt):
            grid.run(watcher, watcher.trial_ended)
    assert len(watcher.deaths) == 1
    for trial in trials:
        short = make_trial(seed=trial.spec.seed, budget={"env_steps": 10**4})
        path = trial.folder.path.with_name(f"local-{trial.spec.seed}")
        local = replace(short, folder=TrialFolder(path))
        run_here(pool, local)
        records, state = trial.folder.records(), trial.folder.load_checkpoint()
        assert state is not None
        assert state["progress"]["generation"] == len(records) >= 2
        pairs = zip(records, local.folder.records(), strict=False)
        assert all(one.digest == other.digest for one, other in pairs)
