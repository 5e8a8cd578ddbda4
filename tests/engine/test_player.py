import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from players import make_job, play

from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, stream
from esbench.engine import player as evaluation
from esbench.engine.jobs import CENTER, EpisodeResult, Job, Task, collect, member_tasks
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer, ObservationStatistics
from esbench.policies.perceptrons import MLP
from esbench.policies.spaces import Actions, Observations

Spec = Callable[..., TrialSpec]


def setup_of(spec: TrialSpec) -> Setup:
    return Setup(spec.environment, spec.policy)


def player_of(spec: TrialSpec, slots: int) -> Player:
    return Player(setup_of(spec), slots)


def same_as_gymnasium(
    setup: Setup, job: Job, results: dict[Task, EpisodeResult], env: Any = None
) -> None:
    """Compare results with episodes of Gymnasium alone."""
    for task, result in results.items():
        total, length, _ = plain_gymnasium(setup, job, task, env)
        assert (result.total, result.length) == (total, length)


def plain_gymnasium(
    setup: Setup, job: Job, task: Task, env: Any = None
) -> tuple[float, int, np.ndarray]:
    """Play one episode with Gymnasium and a policy batch of width one."""
    env = env or gymnasium.make(setup.environment.id, **setup.environment.kwargs)
    policy = setup.make_policy(env.observation_space, env.action_space)
    simple = isinstance(env.observation_space, gymnasium.spaces.Box | gymnasium.spaces.Discrete)
    encode = Observations(env.observation_space, "test").encode
    decode = Actions(env.action_space, "test").decode

    def inputs(rows: np.ndarray) -> np.ndarray:
        if job.normalizer is not None:
            rows = (rows - job.normalizer.mean) * job.normalizer.scale
            rows = np.clip(rows, -job.normalizer.clip, job.normalizer.clip)
        return rows.astype(np.float32)

    batch: Any = policy.batch(1)
    if setup.reference_batch is not None:
        batch.refer(inputs(setup.reference_batch.observations))
    batch.load(0, job.parameters(task.member))
    observation, _ = env.reset(seed=job.environment_seed(task))
    total, seen, ended = 0.0, [], False
    while not ended and (job.max_steps is None or len(seen) < job.max_steps):
        row = encode(np.asarray(observation)[None] if simple else [observation])
        seen.append(row[0])
        action = decode(batch.forward(inputs(row)))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ended = terminated or truncated
    env.close()
    return total, len(seen), np.array(seen)


def scaled(player: Player, clip: float = 5.0) -> Normalizer:
    size = player.policy.num_inputs
    return Normalizer(np.full(size, 0.1), np.full(size, 1.7), clip)


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "Hopper-v5", "Acrobot-v1"])
@pytest.mark.parametrize("slots", [1, 5, 12])
def test_episodes_equal_plain_gymnasium_bit_for_bit(
    make_spec: Spec, environment: str, slots: int
) -> None:
    spec = make_spec(environment, settings={"num_interactions": 0})
    setup = setup_of(spec)
    player = Player(setup, slots)
    job = make_job(player, normalizer=scaled(player), max_steps=90, gather=True)
    tasks = [Task(CENTER, 0), *member_tasks(range(6), 2)]
    results = play(player, job, tasks)
    same_as_gymnasium(setup, job, results)
    player.close()


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        ("dict", "multi"),
        ("tuple", "binary"),
        ("multi", "dict"),
        ("oneof", "tuple"),
        ("images", "discrete"),
    ],
)
def test_any_spaces_are_played_as_in_plain_gymnasium(
    make_spec: Spec, observation: str, action: str
) -> None:
    kwargs = {"observation": observation, "action": action}
    name = "doubles:Spaces-v0"
    spec = make_spec(name, environment={name: {"kwargs": kwargs}})
    player = player_of(spec, 4)
    job = make_job(player)
    tasks = member_tasks(range(6), 2)
    results = play(player, job, tasks)
    same_as_gymnasium(setup_of(spec), job, results)
    assert len({result.total for result in results.values()}) > 6
    player.close()


def test_wrappers_are_those_of_gymnasium(make_spec: Spec) -> None:
    wrappers = [
        {"wrapper": "gymnasium.wrappers:TimeAwareObservation", "normalize_time": False},
        {"wrapper": "gymnasium.wrappers:FrameStackObservation", "stack_size": 2},
        {"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 9},
    ]
    name = "CartPole-v1"
    spec = make_spec(name, environment={name: {"wrappers": wrappers}})
    assert spec.as_json()["environment"]["wrappers"] == wrappers
    setup = setup_of(spec)
    assert setup.backend_name == "gymnasium"
    player = Player(setup, 4)
    job, tasks = make_job(player), member_tasks(range(6), 2)
    results = play(player, job, tasks)
    env = gymnasium.wrappers.TimeAwareObservation(gymnasium.make(name), normalize_time=False)
    env = gymnasium.wrappers.FrameStackObservation(env, 2)
    env = gymnasium.wrappers.TimeLimit(env, 9)
    same_as_gymnasium(setup, job, results, env)
    assert player.policy.num_inputs == 10
    assert {result.length for result in results.values()} >= {9}
    player.close()


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Hopper-v5"])
def test_rewards_are_clipped_as_by_gymnasium(make_spec: Spec, environment: str) -> None:
    low, high = -1.3, 0.9
    spec = make_spec(environment, environment={environment: {"reward_clip": [low, high]}})
    setup = setup_of(spec)
    player = Player(setup, 4)
    job, tasks = make_job(player, max_steps=60), [Task(CENTER, 0), *member_tasks(range(6), 2)]
    results = play(player, job, tasks)
    for task in tasks:
        clipping = gymnasium.wrappers.ClipReward(gymnasium.make(environment), low, high)
        expected, _, _ = plain_gymnasium(setup, job, task, clipping)
        assert results[task].clipped == results[task].training_return == expected
        assert results[task].total == plain_gymnasium(setup, job, task)[0] != expected
    player.close()


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_are_normalized_apart_are_the_same(
    make_spec: Spec, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    spec = make_spec("Acrobot-v1", settings={"num_interactions": 0})
    player = player_of(spec, 7)
    job = make_job(player, normalizer=scaled(player, clip=1.5), max_steps=60, gather=True)
    tasks = [Task(CENTER, 0), *member_tasks(range(6), 2)]
    expected = play(player, job, tasks)
    monkeypatch.setattr(evaluation, "TOGETHER", rows * player.policy.num_inputs)
    results = play(player_of(spec, 7), job, tasks)
    for task in tasks:
        one, other = expected[task], results[task]
        assert (one.total, one.length) == (other.total, other.length)
        assert (one.moments is None) == (task.member == CENTER)
        for ours, theirs in zip(one.moments or (), other.moments or (), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("environment", ["CartPole-v1", "Hopper-v5", "Humanoid-v5"])
def test_episodes_that_move_are_the_same(make_spec: Spec, environment: str) -> None:
    clip = {environment: {"reward_clip": [-0.5, 0.9]}}
    spec = make_spec(environment, settings={"num_interactions": 0}, environment=clip)
    alone, first, second = (player_of(spec, n) for n in (1, 5, 9))
    noise = 0.0 if environment == "CartPole-v1" else 0.1
    limits = {"max_steps": 60, "size": 12}
    job = make_job(alone, normalizer=scaled(alone), gather=True, action_noise=noise, **limits)
    tasks = [Task(CENTER, 0), *member_tasks(range(12), 2)]
    expected = play(alone, job, tasks)
    for player in (first, second):
        player.begin(job)
    first.add(tasks)
    results, moved = [], 0
    while first.busy or second.busy:
        for source, target in ((first, second), (second, first)):
            episodes = source.give_up()
            results += source.step() if source.busy else []  # in the slots they left
            target.add(episodes)
            moved += len(episodes)
    assert moved > len(tasks)
    assert sorted(result.task for result in results) == sorted(tasks)
    for result in results:
        same = expected[result.task]
        assert (result.total, result.length) == (same.total, same.length)
        assert result.clipped == same.clipped != result.total
        assert pickle.dumps(result.moments) == pickle.dumps(same.moments)


def test_an_episode_that_cannot_go_on_is_played_from_the_start(make_spec: Spec) -> None:
    """A backend that was exposed for behaviors does not move episodes."""
    spec = make_spec("Hopper-v5")
    source, target = (player_of(spec, 4) for _ in range(2))
    job, tasks = make_job(source), member_tasks(range(4), 1)
    expected = play(target, job, tasks)
    target.begin(replace(job, characterize=True))
    source.begin(job)
    target.begin(job)
    source.add(tasks)
    results = source.step()
    target.add(source.give_up())
    for player in (source, target):
        while player.busy:
            results += player.step()
    assert {r.task: (r.total, r.length) for r in results} == {
        r.task: (r.total, r.length) for r in expected.values()
    }
    assert len(results) == len(tasks)


def test_episodes_stay_where_something_remembers(make_spec: Spec) -> None:
    own_module = {"template": "module", "factory": "torch.nn:Linear"}
    for spec, characterize in (
        (make_spec("doubles:Walk-v0"), False),
        (make_spec("CartPole-v1", policy=own_module), False),
        (make_spec("CartPole-v1"), True),
    ):
        player = player_of(spec, 8)
        job = make_job(player, characterize=characterize)
        player.begin(job)
        player.add(member_tasks(range(4), 2))
        player.step()
        assert player.give_up() == []
        player.close()


def test_moments_are_those_of_the_observations_acted_upon(make_spec: Spec) -> None:
    spec = make_spec("Pendulum-v1")
    setup = setup_of(spec)
    player = Player(setup, 4)
    job = make_job(player, normalizer=ObservationStatistics(3).normalizer(5.0), gather=True)
    tasks = member_tasks(range(6), 2)
    episodes = collect(tasks, play(player, job, tasks))
    statistics = ObservationStatistics(3)
    episodes.merge_into(statistics, np.zeros(3))
    seen = np.concatenate([plain_gymnasium(setup, job, task)[2] for task in tasks])
    np.testing.assert_allclose(statistics.mean, seen.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(statistics.squares / statistics.count, seen.var(axis=0), rtol=1e-4)


@pytest.mark.parametrize(
    ("mode", "groups"),
    [
        ("fresh", [[Task(m, 0)] for m in range(4)] + [[Task(CENTER, 0)]]),
        ("pair", [[Task(0, 0), Task(1, 0)], [Task(2, 0), Task(3, 0)], [Task(CENTER, 0)]]),
        ("shared", [[Task(m, 0) for m in (0, 1, 2, 3, CENTER)]]),
    ],
)
def test_who_shares_episode_seeds(make_spec: Spec, mode: str, groups: list[list[Task]]) -> None:
    spec = make_spec()
    player = player_of(spec, 1)
    job = make_job(player, size=4, episode_seeds=mode)
    seeds = [{job.environment_seed(task) for task in group} for group in groups]
    assert all(len(group) == 1 for group in seeds)
    assert len(set.union(*seeds)) == len(groups)
    assert job.environment_seed(Task(0, 0)) != job.environment_seed(Task(0, 1))
    later = replace(job, generation=4)
    for task in (Task(0, 0), Task(CENTER, 0)):
        assert job.environment_seed(task) != later.environment_seed(task)


def test_every_episode_has_action_noise_of_its_own_stream(make_spec: Spec) -> None:
    """The action is the point where a function is evaluated, and the last observation."""
    spec = make_spec("esbench/Sphere-v0", policy={"template": "vector"})
    player = player_of(spec, 3)
    tasks = member_tasks(range(6), 2)
    jobs = [make_job(player, action_noise=noise, characterize=True) for noise in (0.0, 0.5)]
    plain, noisy = (play(player, job, tasks) for job in jobs)
    for task in tasks:
        address = (jobs[0].generation, task.member + 1, task.episode)
        draws = stream(jobs[0].seed, Purpose.ACTION_NOISE, *address).standard_normal(10)
        moved = np.subtract(noisy[task].behavior, plain[task].behavior)
        np.testing.assert_allclose(moved, 0.5 * draws, atol=1e-6)


def test_an_action_that_is_not_finite_never_reaches_the_simulator(make_spec: Spec) -> None:
    spec = make_spec()  # the environment raises if one does
    player = player_of(spec, 3)
    healthy = make_job(player)
    tasks = member_tasks(range(6), 1)
    for poison in (np.nan, np.inf, 1e300):
        center = healthy.center.copy()
        center[-1] = poison  # the bias of an output: what is infinite in a tanh stays finite
        assert healthy.population is not None
        population: Any = healthy.population
        sick = replace(population, center=center, sigma=0.0)
        results = play(player, replace(healthy, population=sick), tasks)
        assert all(np.isnan(results[task].total) for task in tasks)
    results = play(player, healthy, tasks)  # the same slots recover
    assert all(np.isfinite(results[task].total) for task in tasks)


def test_sick_episodes_leave_their_neighbors_and_the_statistics_alone(make_spec: Spec) -> None:
    spec = make_spec("doubles:BadObservation-v0")
    tasks = member_tasks(range(20), 2)
    outcomes = []
    for slots in (1, 7):
        player = player_of(spec, slots)
        normalizer = ObservationStatistics(3).normalizer(5.0)
        job = make_job(player, size=20, normalizer=normalizer, gather=True)
        episodes = collect(tasks, play(player, job, tasks))
        statistics = ObservationStatistics(3)
        episodes.merge_into(statistics, normalizer.mean)
        outcomes.append((episodes.returns, statistics.mean, statistics.squares))
        assert 5 < np.isnan(episodes.returns).sum() < 35
        assert np.isfinite(statistics.mean).all()
    for one, other in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_episode_without_a_finite_return_is_not_counted_into_the_statistics() -> None:
    tasks = member_tasks(range(2), 1)
    moments = [(2, np.array([total]), np.array([50.0])) for total in (1.0, 9.0)]
    results = {
        task: EpisodeResult(task, total, 2, each)
        for task, total, each in zip(tasks, (1.0, np.nan), moments, strict=True)
    }
    counted, expected = ObservationStatistics(1), ObservationStatistics(1)
    collect(tasks, results).merge_into(counted, np.zeros(1))
    expected.merge(moments[0], np.zeros(1))
    assert counted.state_dict() == expected.state_dict()


def test_small_images_are_served_and_larger_ones_are_not(
    make_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = "doubles:Spaces-v0"
    kwargs = {"observation": "images"}  # 8 x 8 x 3
    spec = make_spec(environment, environment={environment: {"kwargs": kwargs}})
    setup = setup_of(spec)
    for most, served in ((192, True), (191, False)):
        monkeypatch.setattr(MLP, "most_pixels", most)
        if served:
            assert Player(setup, 1).policy.num_inputs == 192
        else:
            with pytest.raises(UsageError, match=r"\(8, 8, 3\); .* smaller images"):
                Player(setup, 1)
