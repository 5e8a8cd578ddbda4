"""The reference batch: gathered once, stored with the trial, the same in all workers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.testing as npt
import pytest
from players import make_job, play
from test_player import plain_gymnasium
from trainers import results, train
from watchers import run

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.seeding import Purpose, episode_seed
from esbench.engine.jobs import CENTER, Task, member_tasks
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec, TrialSpec
from esbench.policies.normalization import Normalizer
from esbench.policies.spaces import Observations

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
    batch = setup_of(name).with_reference_batch(12, seed=3).reference_batch
    assert batch is not None
    expected = random_play(name, 12, seed=3)
    npt.assert_array_equal(batch.observations, expected)
    assert batch.observations.dtype == expected.dtype
    assert len(np.unique(expected, axis=0)) == 12
    other = setup_of(name).with_reference_batch(12, seed=4).reference_batch
    assert other is not None
    assert (other.observations != expected).any()


@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("policy", [NORMALIZED, RECURRENT])
@pytest.mark.parametrize("normalize", [False, True])
def test_an_episode_is_the_same_whatever_its_slot_has_played_before(
    slots: int, policy: dict[str, Any], normalize: bool
) -> None:
    setup = setup_of(PICTURES, policy)
    if policy is NORMALIZED:
        setup = setup.with_reference_batch(6, seed=0)
    player = Player(setup, slots)
    scale = Normalizer(np.full(288, 100.0), np.full(288, 0.5), 40.0) if normalize else None
    job = make_job(player, size=4, normalizer=scale)
    tasks = [Task(CENTER, 0), Task(CENTER, 1), *member_tasks(range(4), 2)]
    play(player, replace(job, normalizer=None), tasks)  # another job before
    results = play(player, job, tasks)
    totals = [results[task].total for task in tasks]
    assert totals == [plain_gymnasium(setup, job, task)[0] for task in tasks]
    assert len(set(totals)) == len(tasks)
    player.close()


@pytest.mark.parametrize("policy", [NORMALIZED, RECURRENT])
def test_workers_and_interruptions_change_no_bit(
    make_spec: Spec, pool: WorkerPool, single: WorkerPool, policy: dict[str, Any]
) -> None:
    spec = make_spec(PICTURES, policy=policy, budget={"env_steps": 400})
    whole, resumed = train(spec, pool), train(spec, single, 1, 2)
    assert len({record.digest for record in whole.history}) == len(whole.history) > 3
    assert results(resumed) == results(whole)
    npt.assert_array_equal(resumed.evaluate().returns, whole.evaluate().returns)


def test_a_stored_trial_brings_its_batch_along_or_is_damaged(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(PICTURES, policy=NORMALIZED, budget={"env_steps": 100})
    run(pool, trial)

    def never(*_: object) -> Setup:
        raise AssertionError("it was gathered again")

    monkeypatch.setattr(Setup, "with_reference_batch", never)
    stored = evaluate_trial(trial.folder.path, pool)
    assert stored.recorded == stored.score.mean
    whole = trial.folder.load_checkpoint()
    assert whole is not None
    npt.assert_array_equal(whole["reference_batch"], random_play(PICTURES, 6, seed=0))
    none = {key: value for key, value in whole.items() if key != "reference_batch"}
    short = {**whole, "reference_batch": whole["reference_batch"][1:]}
    for state, seen in ((none, "it has none"), (short, r"it has one of shape \[5, 288\]")):
        monkeypatch.setattr(type(trial.folder), "load_checkpoint", lambda *_, state=state: state)
        words = rf"seed-0/checkpoint: no reference batch of shape \[6, 288\].*{seen}.*remove the"
        with pytest.raises(DamagedTrialError, match=words):
            evaluate_trial(trial.folder.path, pool)


def test_a_state_from_before_the_first_generation_may_lack_it(make_spec: Spec) -> None:
    spec = make_spec(PICTURES, policy=NORMALIZED)
    with SearchTrainer(spec) as trainer, SearchTrainer(spec) as other:
        state = trainer.state_dict()
        assert "reference_batch" not in state
        other.load_state_dict(state)
        assert other.gathered_setup() == trainer.gathered_setup()
        with pytest.raises(UsageError, match="no reference batch"):
            other.load_state_dict({**state, "progress": {**state["progress"], "generation": 1}})
