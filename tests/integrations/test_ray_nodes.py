"""Nodes that differ are refused by the Ray engine; stubs of nodes play real episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from stub_cluster import Answer, RayError, StubCluster, other_code, other_version

from esbench.core.errors import UsageError
from esbench.engine.engine import Joined
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec
from esbench.integrations import ray_engine, ray_nodes
from esbench.integrations.ray_cluster import Software, software
from esbench.integrations.ray_engine import RayEngine
from esbench.integrations.ray_nodes import MAX_STARTS, RayNodes

Spec = Callable[..., TrialSpec]
Open = Callable[..., RayEngine]
Make = Callable[..., Trial]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a maker of engines on stub clusters."""
    monkeypatch.setattr(ray_nodes, "PERIOD_SECONDS", 0.0)
    with ExitStack() as engines:

        def connect(cluster: StubCluster, **options: Any) -> RayEngine:
            monkeypatch.setattr(ray_engine, "RayCluster", lambda _: cluster)
            engine = engines.enter_context(RayEngine(**options))
            engine.notice = cluster.told.append
            return engine

        yield connect


@pytest.mark.parametrize("answer", [other_version, other_code])
def test_a_node_that_joins_later_and_differs_is_refused_while_training_goes_on(
    make_spec: Spec, pool: WorkerPool, connect: Open, answer: Answer
) -> None:
    cluster = StubCluster(first=software)
    engine, spec = connect(cluster), make_spec()
    with SearchTrainer(spec, engine) as ours, SearchTrainer(spec, pool) as theirs:
        ours.train(callbacks=[lambda _: cluster.answers.update(late=answer)])
        theirs.train()
    assert [record.digest for record in ours.history] == [r.digest for r in theirs.history]
    assert len(ours.history) > 2
    (refused,) = cluster.told
    assert "node late" in refused
    assert " there" in refused
    assert cluster.killed == ["late"]
    assert [node["host"] for node in engine.nodes["nodes"]] == ["first"]
    assert engine.nodes["mixed"] == {}


def test_other_own_code_ends_the_command_before_anything_is_played(
    make_spec: Spec, connect: Open
) -> None:
    for nodes in ({"one": software, "two": other_code}, {"two": other_code}):
        engine = connect(StubCluster(**nodes))
        SearchTrainer(make_spec("CartPole-v1"), engine).close()
        for _ in range(2):
            with pytest.raises(UsageError, match=r"node two.*doubles sha256:\w+ here, sha256:0"):
                SearchTrainer(make_spec(), engine)
        assert engine.nodes["nodes"] == []


def test_a_node_without_the_own_code_of_a_later_trial_is_not_used_any_more(
    make_spec: Spec, connect: Open
) -> None:
    cluster = StubCluster(good=software, poor=other_code)
    engine = connect(cluster)
    first = make_spec("CartPole-v1", budget={"env_steps": 50})
    with SearchTrainer(first, engine) as trainer:
        trainer.train()
    assert len(engine.nodes["nodes"]) == 2
    with SearchTrainer(make_spec(), engine) as trainer:
        trainer.train()
    assert [node["host"] for node in engine.nodes["nodes"]] == ["good"]
    assert "doubles" in cluster.told[0]
    assert cluster.killed == ["poor"]


def test_an_admitted_node_marks_the_trial(make_spec: Spec, connect: Open) -> None:
    engine = connect(StubCluster(one=other_code), allow_mixed=True)
    with SearchTrainer(make_spec(budget={"env_steps": 50}), engine) as trainer:
        trainer.train()
    assert "doubles" in engine.nodes["mixed"]["one"]


def opened(cluster: StubCluster, allow_mixed: bool = False, **code: str) -> RayNodes:
    nodes = RayNodes(cast("Any", cluster), 2, allow_mixed, cluster.told.append)
    nodes.serve(object, code)
    return nodes


def joined(nodes: RayNodes) -> list[str]:
    return [node.name for node, event in nodes.take() if event == Joined()]


@pytest.mark.parametrize(
    ("answer", "code", "there"),
    [
        (other_version, {}, r"0\.0\.1 there"),
        (other_code, {"nowhere": "sha256:1"}, "nowhere sha256:1 here, sha256:0 there"),
        (software, {"nowhere": "sha256:1"}, "nowhere sha256:1 here, missing there"),
    ],
)
def test_a_node_with_other_software_is_refused_or_admitted_on_request(
    answer: Answer, code: dict[str, str], there: str
) -> None:
    stub = StubCluster(one=answer)
    with pytest.raises(UsageError, match=f"node one.*{there}"):
        opened(stub, **code)
    assert stub.killed == ["one"]
    mixed = StubCluster(one=answer)
    assert joined(opened(mixed, allow_mixed=True, **code)) == ["one"]
    assert mixed.told == mixed.killed == []


def test_a_node_that_joins_later_and_cannot_be_used_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: object) -> Software:
        raise RayError("The actor died.\n\nModuleNotFoundError: No module named 'esbench'")

    monkeypatch.setattr(ray_nodes, "PERIOD_SECONDS", 0.0)
    cluster = StubCluster(one=software)
    nodes = opened(cluster)
    assert joined(nodes) == ["one"]
    cluster.answers |= {"two": other_version, "three": missing, "four": software}
    assert joined(nodes) == ["four"]
    assert cluster.killed == ["two", "three"]
    for _ in range(10):
        assert joined(nodes) == []
    assert cluster.killed == ["two", *["three"] * MAX_STARTS]
    refused, broken = cluster.told
    assert "node two" in refused
    assert "node three" in broken
    assert "No module named 'esbench'" in broken
