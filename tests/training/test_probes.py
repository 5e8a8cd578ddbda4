"""Probes between generations, and meta-populations with a lineage each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
import pytest

from esbench.algorithms.base import ALGORITHMS, Algorithm, State
from esbench.algorithms.population import Population, SampledPopulation, StoredPopulation
from esbench.algorithms.settings import AlgorithmSettings
from esbench.arrays import Matrix, Vector
from esbench.errors import UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.jobs import CENTER, Job, Task
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.trainer import Trainer

Spec = Callable[..., TrialSpec]
WALK = "doubles:Walk-v0"
LINEAGES = 2


@final
class Curious(Algorithm[Population]):
    """Probes its centre before every generation, and stores the arguments of ``tell``."""

    Settings = AlgorithmSettings
    needs_behaviors: ClassVar[bool] = True
    sigma = 0.1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[tuple[bool, Vector, Matrix]] = []
        self._plan(probe=True)

    def _plan(self, probe: bool) -> None:
        """Plan a probe before each generation, and a lineage for each generation in turn."""
        self.plan = replace(
            self.plan,
            probe=probe,
            episodes=3 if probe else None,
            lineage=self.generation % LINEAGES,
        )

    def _ask(self) -> Population:
        if self.plan.probe:
            return StoredPopulation(size=2, stored=np.stack([self._center, self._center]))
        return SampledPopulation(
            size=self.population_size,
            center=self._center,
            sigma=0.1,
            noise=self.gaussian_noise(),
        )

    def _tell(self, population: Population, returns: Vector, behaviors: Matrix) -> None:
        probe = self.plan.probe
        self.told.append((probe, returns, behaviors))
        if probe:
            self._plan(probe=False)
            return
        self._center = population.member(int(np.argmax(returns)))
        lineage = self.generation % LINEAGES
        self.plan = replace(
            self.plan,
            probe=True,
            episodes=3,
            lineage=(self.generation + 1) % LINEAGES,
            center_lineage=lineage,
        )

    def _state_dict(self) -> State:
        names = ("probe", "episodes", "lineage", "center_lineage")
        return {name: int(getattr(self.plan, name) or 0) for name in names}

    def _load_state_dict(self, state: State) -> None:
        self.plan = replace(
            self.plan,
            **{**state, "probe": bool(state["probe"]), "episodes": state["episodes"] or None},
        )


@pytest.fixture
def curious(make_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrialSpec]:
    """Makes specifications of trials of ``Curious``."""
    ALGORITHMS.names()
    monkeypatch.setitem(ALGORITHMS._classes, "curious", Curious)

    def make(**table: Any) -> TrialSpec:
        name = table.pop("name", WALK)
        return make_spec(
            name, "curious", **{"algorithms": {"curious": {"population_size": 6}}} | table
        )

    return make


def trained(spec: TrialSpec, pool: WorkerPool, generations: int = 5) -> Trainer:
    with Trainer(spec, pool) as trainer:
        for _ in range(generations):
            trainer.train(env_steps=trainer.progress.env_steps + 1)
    return trainer


def assert_resumed(stopped: Trainer, whole: Trainer, pool: WorkerPool) -> None:
    """A new trainer continues from ``stopped`` to the end of ``whole`` with the same bits."""
    with Trainer(whole.spec, pool) as again:
        again.load_state_dict(stopped.state_dict(), stopped.history)
        while again.progress.generation < whole.progress.generation:
            again.train(env_steps=again.progress.env_steps + 1)
    assert [r.digest for r in again.history] == [r.digest for r in whole.history]
    assert again.progress.env_steps == whole.progress.env_steps


def told(trainer: Trainer) -> list[tuple[bool, Vector, Matrix]]:
    assert isinstance(trainer.algorithm, Curious)
    return trainer.algorithm.told


def test_probes_come_before_each_generation_with_episodes_of_their_own(
    curious: Spec, pool: WorkerPool
) -> None:
    trainer = trained(curious(), pool)
    assert [len(returns) for _, returns, _ in told(trainer)] == [2, 6] * 5
    assert [record.generation for record in trainer.history] == [1, 2, 3, 4, 5]
    assert trainer.algorithm.generation == 5
    probes = set()
    for probe, returns, behaviors in told(trainer):
        if probe:  # both members are the centre and play the same episodes
            probes.add(float(returns[0]))
            assert returns[0] == returns[1]
            np.testing.assert_array_equal(behaviors[0], behaviors[1])
        else:
            assert len(set(returns.tolist())) == 6
    assert len(probes) == 5


def test_the_episodes_of_a_probe_are_training_episodes(curious: Spec, pool: WorkerPool) -> None:
    spec = curious(environment={WALK: {"max_episode_steps": 1}}, evaluation={"center": False})
    trainer = trained(spec, pool)
    # Two members of three episodes, then six members of one, a step each.
    assert trainer.progress.episodes == 5 * (2 * 3 + 6)
    assert trainer.progress.env_steps == 5 * (2 * 3 + 6)
    assert trainer.history[-1].eval_env_steps == 0


def test_behaviors_are_the_mean_over_a_members_episodes(curious: Spec, pool: WorkerPool) -> None:
    spec = curious(environment={WALK: {"max_episode_steps": 1, "episodes_per_member": 1}})
    one = told(trained(spec, pool, 1))[1][2]
    assert one.shape == (6, 3)  # the last observation of the walk
    several = curious(environment={WALK: {"max_episode_steps": 1, "episodes_per_member": 20}})
    mean = told(trained(several, pool, 1))[1][2]
    assert mean.shape == (6, 3)
    assert np.abs(mean).mean() < np.abs(one).mean()


def test_every_lineage_has_its_own_observation_statistics(curious: Spec, pool: WorkerPool) -> None:
    trainer = trained(curious(), pool, 4)
    statistics = trainer.state_dict()["statistics"]
    assert set(statistics) == {"0", "1"}
    assert statistics["0"]["count"] != statistics["1"]["count"]
    lengths = [r.episode_length_mean * r.population_size for r in trainer.history]
    for lineage in range(LINEAGES):
        seen = sum(lengths[lineage::LINEAGES])
        assert statistics[str(lineage)]["count"] == pytest.approx(seen, abs=0.1)


def test_the_score_is_under_the_statistics_of_the_centres_lineage(
    curious: Spec, pool: WorkerPool
) -> None:
    trainer = trained(curious(), pool, 3)
    assert trainer.algorithm.plan.center_lineage == 0
    right = trainer.evaluate(5).returns
    trainer.algorithm.plan = replace(trainer.algorithm.plan, center_lineage=1)
    assert not np.array_equal(trainer.evaluate(5).returns, right)


def test_the_centre_plays_under_the_statistics_of_its_own_lineage(
    curious: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    play = WorkerPool.play

    def watched(self: WorkerPool, job: Job, tasks: list[Task]) -> Any:
        played = play(self, job, tasks)
        seen.extend((task.member, job.normalizer, played) for task in tasks[:1])
        return played

    monkeypatch.setattr(WorkerPool, "play", watched)
    trainer = trained(curious(), pool, 4)
    centers = [(normalizer, played) for member, normalizer, played in seen if member == CENTER]
    assert len(centers) == 4
    for (normalizer, played), record in zip(centers, trainer.history, strict=True):
        assert played.center_returns.mean() == record.center_return
        assert normalizer is not None
    # In generation 3 the centre is of lineage 1, which has learnt from generation 2 alone; the
    # members are of lineage 0.
    after_one = trained(curious(), pool, 2)._evaluator.normalizer(lineage=1)
    np.testing.assert_array_equal(centers[2][0].mean, after_one.mean)
    assert centers[2][1].returns.size == 0


@pytest.mark.parametrize("generations", [1, 2, 3])
def test_a_resumed_trial_is_an_uninterrupted_one(
    curious: Spec, pool: WorkerPool, generations: int
) -> None:
    spec = curious()
    whole = trained(spec, pool, 5)
    first = trained(spec, pool, generations)
    assert_resumed(first, whole, pool)


def test_an_interrupt_after_a_probe_leaves_a_state_that_goes_on(
    curious: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = curious()
    whole = trained(spec, pool, 3)
    play, calls = WorkerPool.play, 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # probe, population, probe, population
            raise KeyboardInterrupt
        return play(*arguments)

    with Trainer(spec, pool) as trainer:
        with monkeypatch.context() as patch:
            patch.setattr(WorkerPool, "play", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.train(env_steps=10**6)
        assert trainer.algorithm.state_dict()["probe"] == 0
    assert_resumed(trainer, whole, pool)


def test_one_worker_is_as_good_as_two(curious: Spec, pool: WorkerPool) -> None:
    spec = curious()
    with WorkerPool(1, slots=2) as single:
        one = trained(spec, single)
    two = trained(spec, pool)
    assert [r.digest for r in one.history] == [r.digest for r in two.history]
    for (_, _, first), (_, _, second) in zip(told(one), told(two), strict=True):
        np.testing.assert_array_equal(first, second)


def test_an_unknown_behavior_is_refused_before_training(curious: Spec) -> None:
    with pytest.raises(UsageError, match="did you mean 'final_observation'"):
        curious(environment={WALK: {"behavior": "final_obsevation"}})


def test_a_behavior_that_nobody_looks_at_is_not_gathered(make_spec: Spec, pool: WorkerPool) -> None:
    with Trainer(make_spec(), pool) as trainer:
        _, played = trainer._evaluator.play(trainer.algorithm)
    assert played.behaviors.shape == (8, 0)
