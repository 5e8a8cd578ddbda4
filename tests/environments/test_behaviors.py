from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from players import make_job
from players import play as play_job

from esbench.core.errors import UsageError, UserCodeError
from esbench.engine.jobs import CENTER, Episodes, Job, Task, collect, member_tasks
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.behaviors.behavior import (
    Behavior,
    FinalObservation,
    FinalPosition,
    RamTrajectory,
    RamTrajectorySettings,
    SlotView,
)
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec

Spec = Callable[..., TrialSpec]
LAST = FinalObservation.Settings()


class OddPositions(gymnasium.Env[np.ndarray, np.ndarray]):
    """Tells its position in the info of steps only, and begins with NaN if ``sick``."""

    def __init__(self, sick: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.first = np.nan if sick else 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return np.full(2, self.first, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        info = {"x_position": 10 * self.steps, "y_position": -self.steps}
        return np.zeros(2, np.float32), 0.0, self.steps == 3, False, info


gymnasium.register("OddPositions-v0", entry_point=OddPositions)


def play(
    spec: TrialSpec, *, slots: int = 3, members: int = 4, episodes: int = 1, **changes: Any
) -> tuple[Job, Episodes]:
    """Return a job and what its members did."""
    player = Player(Setup(spec.environment, spec.policy), slots)
    job = make_job(player, members, episodes=episodes, characterize=True, **changes)
    tasks = [Task(CENTER, 0), *member_tasks(range(members), episodes)]
    results = play_job(player, job, tasks)
    player.close()
    return job, collect(tasks, results)


def make(
    make_spec: Spec, name: str, behavior: str, kwargs: Any = None, **settings: Any
) -> TrialSpec:
    table = {"behavior": behavior, "behavior_settings": settings, "kwargs": kwargs or {}}
    return make_spec(
        name,
        environment={name: table},
        policy={"template": "linear", "normalize_observations": False},
    )


def replay(spec: TrialSpec, job: Job, member: int, episode: int = 0) -> list[tuple[Any, dict]]:
    """Return the observations and infos of an episode in plain Gymnasium, the reset first."""
    env = gymnasium.make(spec.environment.id, **spec.environment.kwargs)
    weights = job.parameters(member).astype(np.float32)
    seen = [env.reset(seed=job.environment_seed(Task(member, episode)))]
    ended = False
    while not ended and (job.max_steps is None or len(seen) <= job.max_steps):
        observation = np.asarray(seen[-1][0], np.float32).reshape(1, -1)
        action = (observation @ weights.reshape(observation.size, -1))[0]
        space: Any = env.action_space
        action = np.clip(action, space.low, space.high).astype(space.dtype)
        observation, _, terminated, truncated, info = env.step(action)
        seen.append((observation, info))
        ended = terminated or truncated
    env.close()
    return seen


@pytest.mark.parametrize(("slots", "count"), [(1, 1), (8, 1), (3, 3)])
def test_the_final_observation_of_a_member_is_the_mean_over_its_episodes(
    make_spec: Spec, slots: int, count: int
) -> None:
    spec = make(make_spec, "Pendulum-v1", "final_observation")
    job, episodes = play(spec, slots=slots, episodes=count, max_steps=7)
    last = [
        [replay(spec, job, member, episode)[-1][0] for episode in range(count)]
        for member in range(4)
    ]
    expected = np.mean(last, axis=1, dtype=np.float64)
    np.testing.assert_allclose(episodes.behaviors, expected, rtol=1e-15)


def test_an_episode_that_cannot_begin_has_a_behavior_that_is_not_finite(make_spec: Spec) -> None:
    spec = make(make_spec, "doubles:BadObservation-v0", "final_observation", {"share": 1.0})
    _, episodes = play(spec)
    assert episodes.lengths.max() == 0
    assert episodes.behaviors.shape == (4, 3)
    assert not np.isfinite(episodes.behaviors).all(axis=1).any()


class Wrong(Behavior):
    """One number per step, or text."""

    def begin(self, view: SlotView) -> None:
        self.steps = 0

    def step(self, view: SlotView) -> None:
        self.steps += 1

    def end(self, view: SlotView) -> Any:
        return np.zeros(self.steps)


class Text(Wrong):
    def end(self, view: SlotView) -> Any:
        return "far"


@pytest.mark.parametrize(
    ("behavior", "words"), [("Wrong", r"numbers in one episode and \d"), ("Text", "str")]
)
def test_a_behavior_of_varying_size_or_without_numbers_is_refused(
    make_spec: Spec, behavior: str, words: str
) -> None:
    with pytest.raises(UserCodeError, match=words):
        play(make(make_spec, "CartPole-v1", f"{__name__}:{behavior}"))


@pytest.mark.parametrize("name", ["Ant-v5", "Swimmer-v5", "HalfCheetah-v5"])
def test_the_final_position_is_that_of_the_info(make_spec: Spec, name: str) -> None:
    spec = make(make_spec, name, "final_position")
    job, episodes = play(spec, max_steps=20)
    for member in range(4):
        info = replay(spec, job, member)[-1][1]
        expected = [info["x_position"], info.get("y_position", 0.0)]  # a plane has no y
        np.testing.assert_array_equal(episodes.behaviors[member], expected)
    assert np.unique(episodes.behaviors, axis=0).shape == (4, 2)


@pytest.mark.parametrize("name", ["InvertedPendulum-v5", "Reacher-v5"])
def test_without_a_position_in_the_info_it_is_a_copy_of_the_simulators(name: str) -> None:
    backend = GymnasiumBackend(name, {}, 1)
    backend.start(0, seed=5)
    behavior, view = FinalPosition(LAST, name), SlotView(backend, 0)
    behavior.begin(view)
    simulator: Any = backend.environment(0).unwrapped
    coordinates = simulator.data.qpos
    action = np.full((1, *(backend.single_action_space.shape or ())), 0.1, np.float32)
    for _ in range(2):
        end = behavior.end(view)
        np.testing.assert_array_equal(end, coordinates[:2])
        backend.step(action)
        behavior.step(view)
        assert (end != coordinates[:2]).all()
    simulator.data = SimpleNamespace(qpos=np.array([3.0]))
    np.testing.assert_array_equal(behavior.end(view), [3.0, 0.0])


def test_a_position_in_the_info_of_steps_only(make_spec: Spec) -> None:
    _, episodes = play(make(make_spec, "OddPositions-v0", "final_position"))
    np.testing.assert_array_equal(episodes.behaviors, np.tile([30.0, -3.0], (4, 1)))
    sick = make(make_spec, "OddPositions-v0", "final_position", {"sick": True})
    _, episodes = play(sick)
    assert episodes.lengths.max() == 0
    assert np.isnan(episodes.behaviors).all()
    assert episodes.behaviors.shape == (4, 2)


@pytest.mark.parametrize(
    ("steps", "frames"),
    [
        (0, [0, 0, 0, 0]),
        (2, [0, 2, 2, 2]),
        (7, [0, 3, 6, 7]),
        (9, [0, 3, 6, 9]),
        (40, [0, 3, 6, 9]),
    ],
)
def test_the_ram_trajectory_has_the_frames_at_intervals(steps: int, frames: list[int]) -> None:
    name, kwargs = "ALE/Pong-v5", {"frameskip": 2}
    backend, plain = GymnasiumBackend(name, kwargs, 1), gymnasium.make(name, **kwargs)
    view = SlotView(backend, 0)
    behavior = RamTrajectory(RamTrajectorySettings(interval=3, samples=4), name)
    game: Any = plain.unwrapped
    plain.reset(seed=3)
    backend.start(0, seed=3)
    behavior.begin(view)
    ram = [game.ale.getRAM()]
    for step in range(steps):
        backend.step(np.array([step % 6]))
        behavior.step(view)
        plain.step(step % 6)
        ram.append(game.ale.getRAM())
    np.testing.assert_array_equal(behavior.end(view), np.array(ram)[frames].reshape(-1))
    backend.close()
    plain.close()


@pytest.mark.parametrize("behavior", ["final_position", "ram_trajectory"])
def test_a_behavior_that_does_not_fit_its_environment_is_refused(
    make_spec: Spec, pool: WorkerPool, behavior: str
) -> None:
    table = {"CartPole-v1": {"behavior": behavior}}
    spec = make_spec("CartPole-v1", "ns_es", environment=table)
    words = f"{behavior}: CartPole-v1 .*behavior final_observation"
    with SearchTrainer(spec, pool) as trainer, pytest.raises(UsageError, match=words):
        trainer.train()


def test_a_users_own_behavior(make_spec: Spec) -> None:
    name = "maze:DeceptiveMaze-v0"
    spec = make(make_spec, name, "maze:Reach", scale=2.0)
    job, episodes = play(spec)
    for member in range(4):
        reach = max(info["x_position"] for _, info in replay(spec, job, member))
        np.testing.assert_array_equal(episodes.behaviors[member], [2.0 * reach])
