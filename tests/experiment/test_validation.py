"""Selection of the final policy by validation episodes."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trainers import results, train, train_interrupted

from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.final_policy import Validation
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec, ValidationSpec

Spec = Callable[..., TrialSpec]
EPISODES, QUARTER = 8, 2


def make(make_spec: Spec, **validation: Any) -> TrialSpec:
    evaluation = {"episodes": 4, **({"validation": validation} if validation else {})}
    return make_spec(budget={"env_steps": 3000}, evaluation=evaluation)


def played(trainer: SearchTrainer) -> tuple[np.ndarray, np.ndarray]:
    """The last center on the validation episodes, in a plain Gymnasium loop: returns, lengths."""
    policy = trainer.policy()
    env = policy.make_environment()
    totals, lengths = np.zeros(EPISODES), np.zeros(EPISODES, int)
    for number in range(EPISODES):
        seed = episode_seed(trainer.spec.seed, Purpose.VALIDATION_EPISODE, 0, number)
        observation, _ = env.reset(seed=seed)
        policy.reset()
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            totals[number] += float(reward)
            lengths[number] += 1
            ended = terminated or truncated
    env.close()
    return totals, lengths


def test_the_final_policy_is_the_best_candidate(make_spec: Spec, pool: WorkerPool) -> None:
    spec = make(make_spec, start=300, interval=1, episodes=EPISODES)
    selected = train(spec, pool)
    plain = SearchTrainer(make(make_spec), pool)
    best, chosen, spent, rejected = np.full(EPISODES, -np.inf), 0, 0, 0
    for record in selected.history:
        if plain.history and selected.history[record.generation - 2].env_steps >= 300:
            returns, lengths = played(plain)
            promising = returns[:QUARTER].mean() >= best[:QUARTER].mean()
            spent += int(lengths.sum() if promising else lengths[:QUARTER].sum())
            rejected += not promising
            if promising and returns.mean() > best.mean():
                best, chosen = returns, plain.progress.generation
                policy, scored = plain.policy(), plain.evaluate().returns
        plain.train(env_steps=plain.progress.env_steps + 1)
        assert plain.history[-1].digest == record.digest
        assert record.env_steps == plain.history[-1].env_steps + spent
    assert 0 < chosen < plain.progress.generation - 1
    assert rejected > 0
    assert selected.validated_generation == selected.policy().generation == chosen
    np.testing.assert_array_equal(selected.policy().parameters, policy.parameters)
    np.testing.assert_array_equal(selected.evaluate().returns, scored)
    assert not np.array_equal(selected.center, policy.parameters)


def test_an_interval_spaces_the_candidates(make_spec: Spec, pool: WorkerPool) -> None:
    often, seldom, never = (
        train(make(make_spec, start=start, interval=interval, episodes=EPISODES), pool)
        for start, interval in ((300, 1), (300, 1000), (2999, 1))
    )
    plain = train(make(make_spec), pool)
    steps = [
        trainer.history[5].env_steps - plain.history[5].env_steps
        for trainer in (often, seldom, never)
    ]
    assert steps[0] > steps[1] > steps[2] == 0
    assert never.validated_generation is plain.validated_generation is None
    np.testing.assert_array_equal(never.policy().parameters, never.center)


@pytest.mark.parametrize(
    ("env_steps", "due"), [(300, 400), (330, 400), (399, 400), (400, 500), (650, 700)]
)
def test_candidates_are_due_at_whole_intervals_from_the_start(env_steps: int, due: int) -> None:
    validation = Validation(ValidationSpec(start=300, interval=100, episodes=4))
    assert not validation.is_due(299)
    assert validation.is_due(300)
    job: Any = SimpleNamespace(center=np.zeros(1), normalizer=None)
    validation.add(job, np.zeros(4), 1, env_steps)
    assert not validation.is_due(due - 1)
    assert validation.is_due(due)


@pytest.mark.parametrize("stops", [(4,), (3, 9)])
def test_a_resumed_trial_selects_the_same_policy(
    make_spec: Spec, pool: WorkerPool, single: WorkerPool, stops: tuple[int, ...]
) -> None:
    spec = make(make_spec, start=300, interval=150, episodes=EPISODES)
    whole, resumed = train(spec, pool), train(spec, single, *stops)
    assert results(resumed) == results(whole)
    assert resumed.validated_generation == whole.validated_generation
    np.testing.assert_array_equal(resumed.policy().parameters, whole.policy().parameters)
    np.testing.assert_array_equal(resumed.evaluate().returns, whole.evaluate().returns)


def test_an_interrupt_at_any_moment_validates_no_candidate_twice(
    make_spec: Spec, pool: WorkerPool
) -> None:
    spec = make(make_spec, start=300, interval=1, episodes=EPISODES)
    whole = train(spec, pool)
    for play in range(10, 20):
        again = train_interrupted(spec, pool, play)
        assert results(again) == results(whole)
        assert again.validated_generation == whole.validated_generation


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_time_of_validation_counts_once(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    ticks, added = itertools.count(), []
    add = Validation.add

    def count(self: Validation, *arguments: Any) -> None:
        added.append(arguments)
        add(self, *arguments)

    monkeypatch.setattr(Validation, "add", count)
    monkeypatch.setattr(SearchTrainer, "_clocks", lambda _: (float(next(ticks)),) * 2)
    spec = make(make_spec, start=300, interval=1, episodes=EPISODES)
    trainer = train_interrupted(spec, pool, 12) if interrupted else train(spec, pool)
    progress = trainer.progress
    assert progress.wall_time_s == progress.cpu_time_s == progress.generation + len(added)
