"""The Ray engine on several nodes: the bits of the local engine, whatever happens to the nodes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, execute, finished, python
from ray_nodes import Nodes

from esbench import RayEngine, UsageError, make_trainer
from esbench.core.errors import EnvironmentFailedError
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec
from esbench.integrations import ray_cluster, ray_nodes
from esbench.store.origin import differences_within

Spec = Callable[..., TrialSpec]
ALGORITHMS = "openai_es", "cma_es", "nsra_es", "eggroll"
ENVIRONMENTS = "CartPole-v1", "HalfCheetah-v5"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    cluster = Nodes()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def engine(nodes: Nodes) -> Iterator[RayEngine]:
    nodes.resize(1)
    with RayEngine(nodes.address) as engine:
        yield engine


def spec_of(make_spec: Spec, algorithm: str, name: str) -> TrialSpec:
    environment = {name: {"max_episode_steps": 30}}
    settings = {"population_size": 12} if algorithm != "nsra_es" else {}
    return make_spec(name, algorithm, environment=environment, settings=settings)


def digests(spec: TrialSpec, engine: Engine, generations: int = 3) -> list[str]:
    with SearchTrainer(spec, engine) as trainer:
        while len(trainer.history) < generations:
            trainer.train(env_steps=trainer.progress.env_steps + 1)
        return [record.digest for record in trainer.history]


@pytest.mark.parametrize(("count", "in_store"), [(1, False), (2, True), (3, False)])
def test_any_number_of_nodes_gives_the_bits_of_the_local_engine(
    make_spec: Spec,
    pool: WorkerPool,
    nodes: Nodes,
    engine: RayEngine,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    in_store: bool,
) -> None:
    nodes.resize(count)
    if in_store:  # of Ray, as large jobs are
        monkeypatch.setattr(ray_nodes, "SMALL_BYTES", 0)
    for algorithm, name in itertools.product(ALGORITHMS, ENVIRONMENTS):
        spec = spec_of(make_spec, algorithm, name)
        assert digests(spec, engine) == digests(spec, pool)


def test_nodes_may_be_lost_and_join_while_a_generation_is_played(
    make_spec: Spec, pool: WorkerPool, nodes: Nodes, engine: RayEngine
) -> None:
    nodes.resize(2)
    spec = make_spec("doubles:Slow-v0", settings={"population_size": 60})
    before, told = engine.nodes["losses"], list[str]()
    changes: list[Callable[[], object]] = [
        lambda: nodes.kill(nodes.nodes[0]),
        nodes.add,
        lambda: nodes.kill_actor(nodes.nodes[0]),
        lambda: nodes.resize(0),
    ]

    def change(done: int, total: int) -> None:
        if changes and 0 < done < total:
            changes.pop(0)()

    def notice(text: str) -> None:
        told.append(text)
        if "waiting" in text and not nodes.nodes:
            nodes.add()

    engine.progress, engine.notice = change, notice
    ours = digests(spec, engine, generations=4)
    engine.progress, engine.notice = None, told.append
    assert not changes
    assert any("waiting" in text for text in told)
    assert engine.nodes["losses"] >= before + 2  # some may not have been ready to play
    assert ours == digests(spec, pool, generations=4)
    (node,) = engine.nodes["nodes"]
    assert node["workers"] == 1
    assert node["steps_per_second"] > 0


def test_an_interrupted_and_a_killed_driver_are_resumed(
    nodes: Nodes, engine: RayEngine, tmp_path: Path
) -> None:
    nodes.resize(1)
    options = ["--env", "doubles:Slow-v0", "--algorithm", "openai_es", "--seeds", "0"]
    options += ["--env-steps", "6000", "--set", "evaluation.episodes=2", "--quiet"]
    cluster = ["--engine", "ray", "--address", nodes.address]
    rows = tmp_path.joinpath("out", "doubles_Slow-v0", "openai_es", "seed-0", "metrics.jsonl")
    actors = nodes.count_actors()
    expected = [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL), (None, 0)]
    for number, (sent, code) in enumerate(expected):
        command = ["-m", "esbench", "run", *options, *cluster, "--out", "out"]
        with python(*command, cwd=tmp_path) as process:
            while sent is not None and process.poll() is None:
                if rows.exists() and rows.read_text().count("\n") > number:
                    process.send_signal(sent)
                    break
                time.sleep(0.02)
            _, err = process.communicate()
        assert process.returncode == code, err
    while nodes.count_actors() > actors:  # Ray ends them when their driver is gone
        time.sleep(0.1)
    assert execute("run", *options, "--out", str(tmp_path / "local")) == 0
    ours, theirs = (
        [json.loads(line)["digest"] for line in path.read_text().splitlines()]
        for path in (rows, tmp_path / "local" / rows.relative_to(tmp_path / "out"))
    )
    assert ours == theirs
    assert len(ours) > 2


def test_a_trainer_uses_the_engine(engine: RayEngine, nodes: Nodes) -> None:
    nodes.resize(1)
    settings: Any = {"env": "CartPole-v1", "population_size": 4, "budget": {"env_steps": 50}}
    with (
        make_trainer("openai_es", engine=engine, **settings) as ours,
        make_trainer("openai_es", workers=1, **settings) as theirs,
    ):
        ours.train()
        theirs.train()
        assert [r.digest for r in ours.history] == [r.digest for r in theirs.history]
    with pytest.raises(UsageError, match="workers = 2"):
        make_trainer("openai_es", engine=engine, workers=2, **settings)


def test_an_error_of_an_environment_is_that_of_the_trial(
    make_spec: Spec, engine: RayEngine, nodes: Nodes
) -> None:
    nodes.resize(1)
    raising = make_spec("doubles:Raises-v0")
    with pytest.raises(EnvironmentFailedError), SearchTrainer(raising, engine) as trainer:
        trainer.train()
    assert digests(make_spec(), engine, 1)  # the engine can still be used


GRID = ("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0", "--env-steps", "100")


def test_a_node_that_differs_is_refused_or_marks_the_trial(
    esbench: Run, nodes: Nodes, engine: RayEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nodes.resize(1)
    mine = ray_cluster.software()
    versions = {**mine.origin.versions, "numpy": "0.0.7"}
    changed = mine._replace(origin=mine.origin.model_copy(update={"versions": versions}))
    monkeypatch.setattr(ray_nodes, "software", lambda: changed)  # of this process
    ray = ("--engine", "ray", "--address", nodes.address, "--out", "out", "--quiet")
    code, _, err = esbench("run", *GRID, *ray)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "numpy 0.0.7 here, " in err
    assert not list(tmp_path.rglob("metrics.jsonl"))
    assert esbench("run", *GRID, *ray, "--allow-mixed")[0] == 0
    (file,) = tmp_path.rglob("trial.json")
    assert differences_within(json.loads(file.read_text()))
    assert "numpy 0.0.7 here" in file.read_text()


def test_a_local_ray_leaves_nothing_in_the_home_folder(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    out = str(tmp_path / "out")
    code, _, err = finished("-m", "esbench", "run", *GRID, "--engine", "ray", "--out", out)
    assert code == 0, err
    assert not tmp_path.joinpath(".ray").exists()


def test_plan_and_bench_use_the_nodes(esbench: Run, nodes: Nodes, engine: RayEngine) -> None:
    nodes.resize(1)
    ray = ("--engine", "ray", "--address", nodes.address)
    code, out, _ = esbench("plan", *GRID, *ray)
    assert code == 0
    assert "1 worker" in out
    code, _, err = esbench("plan", *GRID, *ray, "--at-once", "2")
    assert code == 2
    assert "at_once = 2" in err
    quick = ("--env", "CartPole-v1", "--population", "4", "--seconds", "0.05", "--rounds", "1")
    assert esbench("bench", *quick, *ray)[0] == 0
