"""The reference batch: gathered once, stored with the trial, the same in all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.testing as npt
import pytest
from test_player import make_job, play
from watchers import run

import esbench.training.evaluator
from esbench.errors import DamagedTrialError, UsageError
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec, TrialSpec
from esbench.policies.normalization import Normalizer
from esbench.policies.spaces import Observations
from esbench.rollouts.jobs import CENTER, Job, ReferenceBatch, Setup, Task, member_tasks
from esbench.rollouts.player import Player
from esbench.rollouts.reference_batch import gather
from esbench.rollouts.worker_pool import WorkerPool
from esbench.seeding import Purpose, episode_seed
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Stop
from esbench.training.scoring import evaluate_trial
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial

Make = Callable[..., Trial]
Spec = Callable[..., TrialSpec]
PICTURES = "doubles:Pictures-v0"
SMALL = {"template": "small_conv", "layers": [[3, 4, 2]], "hidden": [4]}
NORMALIZED = {**SMALL, "virtual_batch_norm": True, "reference_size": 6}
RECURRENT = {"template": "conv_lstm", "layers": [[3, 4, 2]], "units": 4}


def random_play(name: str, size: int, seed: int) -> np.ndarray:
    """Every eighth observation of random play, computed with Gymnasium alone."""
    env = gymnasium.make(name)
    env.action_space.seed(episode_seed(seed, Purpose.REFERENCE_BATCH))
    encode = Observations(env.observation_space, name).encode
    seen: list[np.ndarray] = []
    episode = 0
    while len(seen) < 8 * size:
        observation, _ = env.reset(seed=episode_seed(seed, Purpose.REFERENCE_BATCH, episode))
        episode, ended = episode + 1, False
        while not ended:
            seen.append(encode(np.asarray(observation)[None])[0])
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated
    env.close()
    assert episode > 1
    return np.array(seen)[::8][:size]


def setup_of(name: str, policy: dict[str, Any] | None = None) -> Setup:
    values = dict(policy or NORMALIZED)
    template = values.pop("template")
    return Setup(EnvironmentSpec(id=name), PolicySpec(template=template, settings=values))


@pytest.mark.parametrize("name", ["CartPole-v1", "doubles:Walk-v0", PICTURES])
def test_it_is_every_eighth_observation_of_random_play(name: str) -> None:
    batch = gather(setup_of(name), 12, seed=3)
    expected = random_play(name, 12, seed=3)
    npt.assert_array_equal(batch.observations, expected)
    assert batch.observations.dtype == expected.dtype
    assert len(np.unique(expected, axis=0)) == 12
    assert (gather(setup_of(name), 12, seed=4).observations != expected).any()


def test_setups_are_equal_if_their_batches_are() -> None:
    zeros, ones = (ReferenceBatch(np.full((2, 3), value, np.uint8)) for value in (0, 1))
    same = ReferenceBatch(zeros.observations.copy())
    setup = replace(setup_of(PICTURES), reference_batch=zeros)
    assert setup == replace(setup, reference_batch=same)
    assert setup != replace(setup, reference_batch=ones)
    assert setup != replace(setup, reference_batch=None)


def alone(setup: Setup, job: Job, task: Task) -> float:
    """The return of an episode with Gymnasium and a new batch of one slot."""
    env = gymnasium.make(setup.environment.id)
    policy = setup.make_policy(env.observation_space, env.action_space)

    def inputs(rows: np.ndarray) -> np.ndarray:
        if job.normalizer is None:
            return rows.astype(np.float32)
        scaled = (rows - job.normalizer.mean) * job.normalizer.scale
        return np.clip(scaled, -job.normalizer.clip, job.normalizer.clip).astype(np.float32)

    batch = policy.batch(1)
    if setup.reference_batch is not None:
        batch.refer(inputs(setup.reference_batch.observations))
    batch.load(0, job.parameters(task.member))
    observation, _ = env.reset(seed=job.environment_seed(task))
    total, ended = 0.0, False
    while not ended:
        action = batch.forward(inputs(np.asarray(observation).reshape(1, -1)))[0]
        action = np.clip(action, env.action_space.low, env.action_space.high)
        observation, reward, ended, _, _ = env.step(action)
        total += float(reward)
    env.close()
    return total


@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("policy", [NORMALIZED, RECURRENT])
@pytest.mark.parametrize("normalize", [False, True])
def test_an_episode_is_the_same_whatever_its_slot_has_played_before(
    slots: int, policy: dict[str, Any], normalize: bool
) -> None:
    setup = setup_of(PICTURES, policy)
    if policy is NORMALIZED:
        setup = replace(setup, reference_batch=gather(setup, 6, seed=0))
    player = Player(setup, slots)
    scale = Normalizer(np.full(288, 100.0), np.full(288, 0.5), 40.0) if normalize else None
    job = make_job(player, size=4, normalizer=scale)
    tasks = [Task(CENTER, 0), Task(CENTER, 1), *member_tasks(range(4), 2)]
    play(player, replace(job, normalizer=None), tasks)  # another job before
    results = play(player, job, tasks)
    totals = [results[task].total for task in tasks]
    assert totals == [alone(setup, job, task) for task in tasks]
    assert len(set(totals)) == len(tasks)
    player.close()


def digests(
    spec: TrialSpec, pool: WorkerPool, stops: tuple[int, ...] = ()
) -> tuple[list[str], list[float]]:
    """Digests and final returns of a trial that is resumed after the generations ``stops``."""
    state: dict[str, Any] | None = None
    history: list[GenerationRecord] = []
    for stop in (*stops, 10**6):
        with Trainer(spec, pool) as trainer:
            if state is not None:
                trainer.load_state_dict(state, history)

            def reached(record: GenerationRecord, at: int = stop) -> Stop | None:
                return Stop("killed") if record.generation >= at else None

            trainer.train(callbacks=[reached])
            state, history = trainer.state_dict(), trainer.history
            score = trainer.evaluate()
    return [record.digest for record in history], score.returns.tolist()


@pytest.fixture(scope="module")
def single() -> Iterator[WorkerPool]:
    """One worker."""
    with WorkerPool(1, slots=3) as made:
        yield made


@pytest.mark.parametrize("policy", [NORMALIZED, RECURRENT])
def test_workers_and_interruptions_change_no_bit(
    make_spec: Spec, pool: WorkerPool, single: WorkerPool, policy: dict[str, Any]
) -> None:
    spec = make_spec(PICTURES, policy=policy, budget={"env_steps": 400})
    whole = digests(spec, pool)
    assert len(set(whole[0])) == len(whole[0]) > 3
    assert digests(spec, single, stops=(1, 2)) == whole


def test_a_stored_trial_brings_its_batch_along(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(PICTURES, policy=NORMALIZED, budget={"env_steps": 100})
    run(pool, trial)

    def never(*_: object) -> ReferenceBatch:
        raise AssertionError("it was gathered again")

    monkeypatch.setattr(esbench.training.evaluator, "gather", never)
    stored = evaluate_trial(trial.folder.path, pool)
    assert stored.recorded == stored.score.mean
    state = trial.folder.load_checkpoint()
    assert state is not None
    npt.assert_array_equal(state["reference_batch"], random_play(PICTURES, 6, seed=0))


def test_a_checkpoint_without_its_batch_is_one_sentence(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(PICTURES, policy=NORMALIZED, budget={"env_steps": 100})
    run(pool, trial)
    whole = trial.folder.load_checkpoint()
    assert whole is not None
    none = {key: value for key, value in whole.items() if key != "reference_batch"}
    short = {**whole, "reference_batch": whole["reference_batch"][1:]}
    for state, seen in ((none, "it has none"), (short, r"it has one of shape \[5, 288\]")):
        monkeypatch.setattr(type(trial.folder), "load_checkpoint", lambda *_, state=state: state)
        words = rf"seed-0/checkpoint: no reference batch of shape \[6, 288\].*{seen}.*remove the"
        with pytest.raises(DamagedTrialError, match=words):
            evaluate_trial(trial.folder.path, pool)


def test_a_state_from_before_the_first_generation_may_lack_it(make_spec: Spec) -> None:
    spec = make_spec(PICTURES, policy=NORMALIZED)
    with Trainer(spec) as trainer, Trainer(spec) as other:
        state = trainer.state_dict()
        assert "reference_batch" not in state
        other.load_state_dict(state)
        assert other.setup == trainer.setup
        with pytest.raises(UsageError, match="no reference batch"):
            other.load_state_dict({**state, "progress": {**state["progress"], "generation": 1}})
