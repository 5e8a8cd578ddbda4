"""Probes between generations, and meta-populations with a lineage each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
import pytest
from trainers import results, train, train_interrupted

from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.algorithms.search_settings import AlgorithmSettings
from esbench.core.arrays import Matrix, State, Vector
from esbench.core.population import Population, SampledPopulation, StoredPopulation
from esbench.engine.jobs import CENTER, Job, Task
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec

Spec = Callable[..., TrialSpec]
WALK = "doubles:Walk-v0"
LINEAGES = 2


@final
class Curious(Algorithm[Population]):
    """Probes its center before every generation, and stores the arguments of ``tell``."""

    Settings = AlgorithmSettings
    needs_behaviors: ClassVar[bool] = True
    sigma = 0.1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[tuple[bool, Vector, Matrix]] = []
        self._plan(True, 0)

    def _plan(self, probe: bool, generation: int, **changes: int) -> None:
        """Plan a probe before each generation, and a lineage for each generation in turn."""
        episodes, lineage = 3 if probe else None, generation % LINEAGES
        self.plan = replace(self.plan, probe=probe, episodes=episodes, lineage=lineage, **changes)

    def _ask(self) -> Population:
        if self.plan.probe:
            return StoredPopulation(size=2, stored=np.stack([self._center, self._center]))
        return SampledPopulation(
            size=self.population_size, center=self._center, sigma=0.1, noise=self.gaussian_noise()
        )

    def _tell(self, population: Population, returns: Vector, behaviors: Matrix) -> None:
        probe = self.plan.probe
        self.told.append((probe, returns, behaviors))
        if probe:
            self._plan(False, self.generation)
            return
        self._center = population.member(int(np.argmax(returns)))
        self._plan(True, self.generation + 1, center_lineage=self.generation % LINEAGES)

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
    ALGORITHMS.names()
    monkeypatch.setitem(ALGORITHMS._classes, "curious", Curious)

    def make(**table: Any) -> TrialSpec:
        name = table.pop("name", WALK)
        return make_spec(
            name, "curious", **{"algorithms": {"curious": {"population_size": 6}}} | table
        )

    return make


def trained(spec: TrialSpec, pool: WorkerPool, generations: int = 5) -> SearchTrainer:
    with SearchTrainer(spec, pool) as trainer:
        for _ in range(generations):
            trainer.train(env_steps=trainer.progress.env_steps + 1)
    return trainer


def told(trainer: SearchTrainer) -> list[tuple[bool, Vector, Matrix]]:
    assert isinstance(trainer.algorithm, Curious)
    return trainer.algorithm.told


def test_probes_come_before_each_generation_with_episodes_of_their_own(
    curious: Spec, pool: WorkerPool
) -> None:
    trainer = trained(curious(environment={WALK: {"action_noise": 0.5}}), pool)
    assert [len(returns) for _, returns, _ in told(trainer)] == [2, 6] * 5
    assert [record.generation for record in trainer.history] == [1, 2, 3, 4, 5]
    assert trainer.algorithm.generation == 5
    probes = set()
    for probe, returns, behaviors in told(trainer):
        if probe:  # both members are the center and play the same episodes, without noise
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


def test_every_lineage_has_its_own_observation_statistics(curious: Spec, pool: WorkerPool) -> None:
    trainer = trained(curious(), pool, 4)
    statistics = trainer.state_dict()["statistics"]
    assert set(statistics) == {"0", "1"}
    assert statistics["0"]["count"] != statistics["1"]["count"]
    lengths = [r.episode_length_mean * r.population_size for r in trainer.history]
    for lineage in range(LINEAGES):
        seen = sum(lengths[lineage::LINEAGES])
        assert statistics[str(lineage)]["count"] == pytest.approx(seen, abs=0.1)


def test_the_center_plays_under_the_statistics_of_its_own_lineage(
    curious: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, tuple[Any, Any]] = {}  # the first job of each generation with the center
    play = WorkerPool.play

    def watched(self: WorkerPool, job: Job, tasks: list[Task]) -> Any:
        played = play(self, job, tasks)
        if tasks[0].member == CENTER:
            seen.setdefault(job.generation, (job.normalizer, played))
        return played

    monkeypatch.setattr(WorkerPool, "play", watched)
    trainer = trained(curious(), pool, 4)
    centers = list(seen.values())
    assert len(centers) == 4
    for (normalizer, played), record in zip(centers, trainer.history, strict=True):
        assert played.center_returns.mean() == record.center_return
        assert normalizer is not None
    # In generation 3 the center is of lineage 1, which has learnt from generation 2 alone; the
    # members are of lineage 0.
    after_one = trained(curious(), pool, 2)._evaluator.normalizer(lineage=1)
    assert after_one is not None
    np.testing.assert_array_equal(centers[2][0].mean, after_one.mean)
    assert centers[2][1].returns.size == 0


def test_an_interrupt_at_any_moment_changes_no_bit(curious: Spec, pool: WorkerPool) -> None:
    generations = train(curious(budget={"generations": 3, "env_steps": 10**6}), pool).history
    # The probe of the last generation passes the budget, as a generation may.
    spec = curious(budget={"env_steps": generations[1].env_steps + 1})
    whole = train(spec, pool)
    assert len(whole.history) == 3
    for play in range(1, 9):  # probe, population and, from the second generation on, center
        assert results(train_interrupted(spec, pool, play)) == results(whole)


EIGHT = 8  # generations


@pytest.fixture
def repeats(make_spec: Callable[..., TrialSpec]) -> Callable[..., TrialSpec]:
    def make(normalized: bool = True) -> TrialSpec:
        return make_spec(
            environments=["doubles:Repeats-v0"],
            algorithms={"random_search": {"population_size": 6, "sigma": 1.0}},
            policy={"normalize_observations": normalized},
            budget={"generations": EIGHT, "env_steps": 10**6},
        )

    return make


@pytest.mark.parametrize("normalized", [True, False])
def test_the_center_returns_what_the_best_member_has_returned(
    repeats: Callable[..., TrialSpec], pool: WorkerPool, normalized: bool
) -> None:
    trainer = train(repeats(normalized), pool)
    best = np.maximum.accumulate([record.population_return_max for record in trainer.history])
    assert len(np.unique(best)) > 2  # several members have become the center
    centers = [record.center_return for record in trainer.history]
    np.testing.assert_array_equal(centers[1:], best[:-1])
    for record in trainer.history[1:]:
        # Equal members each count for half.
        assert (record.center_rank == 1.0) == (record.population_return_max < record.center_return)
    np.testing.assert_array_equal(trainer.evaluate(3).returns, best[-1])
