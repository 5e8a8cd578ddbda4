"""The Ray engine on several nodes: the bits of the local engine, whatever happens to the nodes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest
from ray_nodes import Nodes

from esbench import RayEngine
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.engine import Engine
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.search_trainer import SearchTrainer

Spec = Callable[..., TrialSpec]
CASES = {
    "openai_es": "HalfCheetah-v5",
    "cma_es": "CartPole-v1",
    "nsra_es": "HalfCheetah-v5",
    "eggroll": "CartPole-v1",
}

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


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_nodes_gives_the_bits_of_the_local_engine(
    make_spec: Spec, pool: WorkerPool, nodes: Nodes, engine: RayEngine, count: int
) -> None:
    nodes.resize(count)
    for algorithm, name in CASES.items():
        spec = spec_of(make_spec, algorithm, name)
        assert digests(spec, engine) == digests(spec, pool)


def test_nodes_may_be_lost_and_join_while_a_generation_is_played(
    make_spec: Spec, pool: WorkerPool, nodes: Nodes, engine: RayEngine
) -> None:
    nodes.resize(2)
    spec = make_spec("doubles:Slow-v0", settings={"population_size": 60})
    before = engine.nodes["losses"]
    changes: list[Callable[[], object]] = [lambda: nodes.kill(nodes.nodes[0]), nodes.add]

    def change(done: int, total: int) -> None:
        if changes and 0 < done < total:
            changes.pop(0)()

    engine.progress = change
    ours = digests(spec, engine)
    engine.progress = None
    assert not changes
    assert engine.nodes["losses"] > before
    assert ours == digests(spec, pool)
    assert len(engine.nodes["nodes"]) == 2
