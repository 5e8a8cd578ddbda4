import math
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trainers import Memory, results, train

from esbench.algorithms.openai_es import OpenAIES
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.jobs import CENTER, Task
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord

Spec = Callable[..., TrialSpec]
WALK = "doubles:Walk-v0"


def test_training_ends_at_the_first_generation_past_the_budget(
    make_spec: Spec, pool: WorkerPool
) -> None:
    trainer = train(make_spec(budget={"env_steps": 700}), pool)
    assert trainer.history[-1].env_steps >= 700 > trainer.history[-2].env_steps
    generations = [record.generation for record in trainer.history]
    assert generations == list(range(1, len(generations) + 1))
    limited = train(make_spec(budget={"env_steps": 10**9, "generations": 3}), pool)
    assert limited.progress.generation == 3


def test_counters_add_up(make_spec: Spec, pool: WorkerPool) -> None:
    spec = make_spec(environment={WALK: {"episodes_per_member": 3}})
    trainer = train(spec, pool)
    for number, record in enumerate(trainer.history, start=1):
        assert record.episodes == number * 8 * 3
        assert record.population_size == 8
        assert 1 <= record.center_rank <= 9
        assert record.center_rank_fraction == (record.center_rank - 1) / 8
        assert record.non_finite == 0
        assert record.population_return_min <= record.population_return_mean
        assert record.population_return_mean <= record.population_return_max
    steps = np.diff([0, *(record.env_steps for record in trainer.history)])
    lengths = [record.episode_length_mean for record in trainer.history]
    np.testing.assert_allclose(steps / 24, lengths)
    assert trainer.history[-1].eval_env_steps > 0


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_rank_is_of_the_center_among_what_the_algorithm_was_told(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    told: list[np.ndarray] = []
    tell = OpenAIES._tell

    def listen(self: OpenAIES, *arguments: Any) -> None:
        told.append(arguments[1])
        tell(self, *arguments)

    monkeypatch.setattr(OpenAIES, "_tell", listen)
    length = {"max_episode_steps": 1}  # so that the shift moves every return by the same
    trainer = train(make_spec(environment={WALK: {"reward_shift": shift, **length}}), pool)
    assert len(told) == len(trainer.history) > 3
    for record, returns in zip(trainer.history, told, strict=True):
        assert record.center_rank == 1 + np.count_nonzero(returns > record.center_return - shift)


def test_a_generation_grows_until_it_has_made_its_interactions(
    make_spec: Spec, pool: WorkerPool
) -> None:
    base = {"population_size": 8, "sigma": 0.1}
    trainer = train(make_spec(settings={**base, "num_interactions": 400}), pool)
    record = trainer.history[0]
    assert record.env_steps >= 400
    assert record.population_size > 8
    assert record.population_size % 8 == 0
    assert record.env_steps - 8 * 20 < 400  # without the last eight it was not enough
    capped = train(
        make_spec(settings={**base, "num_interactions": 400, "population_size_max": 20}), pool
    )
    assert capped.history[0].population_size == 20
    episodes = train(make_spec(settings={**base, "min_episodes": 30}), pool)
    assert episodes.history[0].population_size == 32


def test_reward_shift_changes_what_is_learnt_and_not_what_is_reported(
    make_spec: Spec, pool: WorkerPool
) -> None:
    plain = train(make_spec(), pool)
    shifted = train(make_spec(environment={WALK: {"reward_shift": -10.0}}), pool)
    half = {"environment": {WALK: {"reward_shift": -4.0}}, "settings": {"reward_shift": -6.0}}
    assert results(train(make_spec(**half), pool)) == results(shifted)  # both are subtracted
    first, second = plain.history[0], shifted.history[0]
    assert first.population_return_mean == second.population_return_mean
    assert first.center_return == second.center_return
    assert first.digest != second.digest  # the update was another one


def test_clipped_rewards_change_what_is_learnt_and_not_what_is_reported(
    make_spec: Spec, pool: WorkerPool
) -> None:
    """The oracle is an environment whose rewards Gymnasium clips, for its scores too."""
    wrapper = {"wrapper": "gymnasium.wrappers:ClipReward", "min_reward": -2.0, "max_reward": -0.5}
    shift = {"reward_shift": -0.3, "episodes_per_member": 2}
    wrapped = train(make_spec(environment={WALK: {"wrappers": [wrapper], **shift}}), pool)
    clipped = train(make_spec(environment={WALK: {"reward_clip": [-2.0, -0.5], **shift}}), pool)
    np.testing.assert_array_equal(clipped.center, wrapped.center)
    for one, other in zip(clipped.history, wrapped.history, strict=True):
        assert one.center_rank == other.center_rank
        assert one.population_return_mean < other.population_return_mean
    plain = train(make_spec(environment={WALK: shift}), pool)
    assert clipped.history[0].center_return == plain.history[0].center_return
    assert clipped.history[0].digest != plain.history[0].digest  # the update was another one


def test_the_adaptive_cap_is_twice_the_mean_length(make_spec: Spec, pool: WorkerPool) -> None:
    trainer = train(make_spec(environment={WALK: {"max_episode_steps": "adaptive"}}), pool)
    assert trainer.history[0].max_episode_steps is None
    for before, after in zip(trainer.history, trainer.history[1:], strict=False):
        assert after.max_episode_steps == math.ceil(2 * before.episode_length_mean)
    fixed = train(make_spec(environment={WALK: {"max_episode_steps": 2}}), pool)
    assert all(record.episode_length_mean <= 2 for record in fixed.history)


def test_a_schedule_cuts_episodes_later_and_later(make_spec: Spec, pool: WorkerPool) -> None:
    table = {"max_episode_steps": [[0, 2], [60, 4], [150, 100]]}
    spec = make_spec(environment={WALK: table}, budget={"env_steps": 1_000})
    trainer = train(spec, pool)
    begun = [0, *(record.env_steps for record in trainer.history[:-1])]
    expected = [2 if steps < 60 else 4 if steps < 150 else 100 for steps in begun]
    assert [record.max_episode_steps for record in trainer.history] == expected
    assert set(expected) == {2, 4, 100}
    for record in trainer.history:
        assert record.episode_length_mean <= (record.max_episode_steps or 0)
    assert max(record.episode_length_mean for record in trainer.history) > 4
    middle = expected.index(4) + 1  # a resumed trial is in the same place of the schedule
    assert results(train(spec, pool, middle)) == results(trainer)
    constant = train(make_spec(environment={WALK: {"max_episode_steps": [[0, 2]]}}), pool)
    fixed = train(make_spec(environment={WALK: {"max_episode_steps": 2}}), pool)
    assert results(constant) == results(fixed)


def test_the_score_is_of_the_unmodified_environment(make_spec: Spec, pool: WorkerPool) -> None:
    clip = {"reward_clip": [-0.1, 0.1]}
    table = {"max_episode_steps": 2, "action_noise": 0.5, "reward_shift": 3.0, **clip}
    with SearchTrainer(make_spec(environment={WALK: table}), pool) as trained:
        trained.train()
        state = trained.state_dict()
        score = trained.evaluate(20)
    with SearchTrainer(make_spec(), pool) as plain:
        plain.load_state_dict(state)
        expected = plain.evaluate(20)
    np.testing.assert_array_equal(score.returns, expected.returns)
    assert score.lengths.max() > 2


def test_the_score_is_of_the_averaged_center(make_spec: Spec, pool: WorkerPool) -> None:
    plain = train(make_spec(), pool)
    averaged = train(make_spec(settings={"center_average": 3}), pool, 2)
    assert results(averaged) == results(plain)
    job = averaged.held_out_job()
    np.testing.assert_array_equal(job.center, averaged.algorithm.averaged_center)
    assert not np.array_equal(job.center, averaged.center)
    whole = train(make_spec(settings={"center_average": 3}), pool)
    np.testing.assert_array_equal(whole.held_out_job().center, job.center)
    np.testing.assert_array_equal(averaged.policy().parameters, job.center)


def test_held_out_episodes_do_not_depend_on_training(make_spec: Spec, pool: WorkerPool) -> None:
    with SearchTrainer(make_spec(), pool) as trainer:
        jobs = [trainer.held_out_job()]
        trainer.train(env_steps=1)
        jobs.append(trainer.held_out_job())
    tasks = [Task(CENTER, episode) for episode in range(4)]
    before, after = ([job.environment_seed(task) for task in tasks] for job in jobs)
    assert before == after
    assert len(set(before)) == len(tasks)


def test_observations_are_clipped_as_set(make_spec: Spec) -> None:
    spec = make_spec(policy={"normalize_observations": True, "observation_clip": 0.5})
    normalizer = SearchTrainer(spec).next_job().normalizer
    assert normalizer is not None
    assert normalizer.clip == 0.5


def test_returns_that_are_not_finite_are_counted_and_the_trial_goes_on(
    make_spec: Spec, pool: WorkerPool
) -> None:
    trainer = train(make_spec("doubles:BadReward-v0"), pool)
    assert sum(record.non_finite for record in trainer.history) > len(trainer.history)
    assert np.isfinite(trainer.center).all()
    assert all(math.isfinite(record.population_return_mean) for record in trainer.history)


@pytest.mark.parametrize(
    ("name", "kwargs", "settings"),
    [
        ("doubles:BadReward-v0", {"always": True}, {}),
        # Members without a step do not grow the population for ever.
        ("doubles:BadObservation-v0", {"share": 1.0}, {"num_interactions": 100}),
    ],
)
def test_a_generation_without_a_finite_return_ends_the_trial(
    make_spec: Spec, pool: WorkerPool, name: str, kwargs: dict[str, Any], settings: dict[str, Any]
) -> None:
    spec = make_spec(name, environment={name: {"kwargs": kwargs}}, settings=settings)
    with pytest.raises(TrainingError, match="none of the 8 returns is finite"):
        train(spec, pool)


def test_callbacks_receive_every_record_and_the_reason_to_stop_survives_a_resume(
    make_spec: Spec, pool: WorkerPool
) -> None:
    seen: list[int] = []

    def stop_at_three(record: GenerationRecord) -> Stop | None:
        seen.append(record.generation)
        return Stop("three") if record.generation == 3 else None

    memory, spec = Memory(), make_spec()
    with SearchTrainer(spec, pool, memory) as trainer:
        assert trainer.train(callbacks=stop_at_three) == Stop("three")
    assert seen == [1, 2, 3]
    assert memory.rows == trainer.history
    assert memory.states[-1]["progress"]["generation"] == 3
    with SearchTrainer(spec, pool) as resumed:
        resumed.load_state_dict(memory.states[-1], memory.rows)
        assert resumed.stopped == Stop("three")
        resumed.train()  # an explicit call continues
        assert resumed.stopped is None
        assert resumed.progress.generation > 3


def test_early_stopping_on_a_target(make_spec: Spec, pool: WorkerPool) -> None:
    budget = {"env_steps": 100_000, "target_return": 150.0, "target_window": 3}
    settings = {"population_size": 32, "sigma": 0.2, "learning_rate": 0.1}
    spec = make_spec("CartPole-v1", budget=budget, settings=settings)
    with SearchTrainer(spec, pool) as trainer:
        stop = trainer.train()
        assert stop is not None
        assert "reached 150" in stop.reason
        returns = [record.center_return for record in trainer.history]
        means = [np.mean(returns[max(0, k - 2) : k + 1]) for k in range(len(returns))]
        assert means[-1] >= 150
        assert all(mean < 150 for mean in means[2:-1])
        assert trainer.train() == stop  # reached before: nothing more is trained
        assert len(trainer.history) == len(returns)


@pytest.mark.parametrize("environment", [WALK, "CartPole-v1"])
def test_a_state_goes_on_bit_for_bit(make_spec: Spec, pool: WorkerPool, environment: str) -> None:
    table = {"max_episode_steps": "adaptive"}
    spec = make_spec(environment, environment={environment: table})
    whole = train(spec, pool)
    resumed = train(spec, pool, (len(whole.history) + 1) // 2)
    assert results(resumed) == results(whole)
    np.testing.assert_array_equal(resumed.center, whole.center)
    assert resumed.evaluate(3).returns.tolist() == whole.evaluate(3).returns.tolist()


def test_an_update_is_completed_before_an_interrupt(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = OpenAIES._tell

    def interrupted(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        tell(*arguments)

    memory = Memory()
    with SearchTrainer(make_spec(), pool, memory) as trainer:
        trainer.train(env_steps=1)
        with monkeypatch.context() as patch:
            patch.setattr(OpenAIES, "_tell", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.train()
        trainer.save()
        assert memory.states[-1]["progress"]["generation"] == 2
        trainer.train()
    assert results(trainer) == results(train(make_spec(), pool))


def test_a_failed_update_is_not_saved(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError("no step")

    memory = Memory()
    monkeypatch.setattr(OpenAIES, "_tell", failing)
    with SearchTrainer(make_spec(), pool, memory) as trainer:
        with pytest.raises(RuntimeError, match="no step"):
            trainer.train()
        trainer.save()
        assert memory.states == []
        with pytest.raises(TrainingError):
            trainer.train()


@pytest.mark.parametrize("interrupted", ["an update", "a callback"])
def test_an_interrupt_before_the_callbacks_delays_them(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    seen: list[int] = []
    tell = OpenAIES.tell

    def raise_once(*_: Any) -> None:
        if len(seen) == 1 and pending:
            pending.pop()
            signal.raise_signal(signal.SIGINT)

    def told(*arguments: Any) -> None:
        tell(*arguments)
        if interrupted == "an update":
            raise_once()

    def stop_at_two(record: GenerationRecord) -> Stop | None:
        seen.append(record.generation)
        return Stop("two") if record.generation == 2 else None

    pending, spec = [True], make_spec(budget={"env_steps": 10_000})
    callbacks = [*([raise_once] if interrupted == "a callback" else []), stop_at_two]
    monkeypatch.setattr(OpenAIES, "tell", told)
    trainer, again = SearchTrainer(spec, pool), SearchTrainer(spec, pool)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(callbacks=callbacks)
    assert (trainer.progress.generation, seen) == (2, [1])
    again.load_state_dict(trainer.state_dict(), trainer.history)
    assert again.train(callbacks=callbacks) == Stop("two")
    assert (again.progress.generation, seen) == (2, [1, 2])


@pytest.mark.parametrize("error", [UsageError("the disk is full"), RuntimeError("no state")])
def test_an_interrupt_is_not_replaced_by_an_error_of_saving(
    make_spec: Spec, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    told: list[str] = []

    def fail(_: object) -> None:
        raise error

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    memory = Memory()
    memory.checkpoint = fail  # type: ignore[method-assign]
    monkeypatch.setattr(pool, "notice", told.append)
    with SearchTrainer(make_spec(), pool, memory) as trainer, pytest.raises(KeyboardInterrupt):
        trainer.train(callbacks=interrupt)
    assert str(error) in told[0]
