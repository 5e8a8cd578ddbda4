import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, play
from doubles import Walk
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import esbench
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.simulator_log import silenced
from esbench.errors import UsageError
from esbench.grids.environment_files import load_environment

ENVIRONMENTS = [
    pytest.param("CartPole-v1", {}, id="CartPole"),
    pytest.param("Pendulum-v1", {"max_episode_steps": 60}, id="Pendulum"),
    pytest.param("Hopper-v5", {"max_episode_steps": 25}, id="Hopper"),
]
STEPS = 250

gymnasium.register("Needs-v0", entry_point="no_library:Env")


@pytest.fixture(autouse=True)
def _quiet():
    with silenced():
        yield


def make(environment_id, kwargs, slots=SLOTS):
    return GymnasiumBackend(environment_id, kwargs, slots)


@pytest.mark.parametrize(
    ("seconds", "wanted", "slots", "made"),
    [
        ([0.0625], 64, 64, 1),
        ([0.5, 0.5], 64, 8, 2),
        ([0.5, 0.25], 64, 16, 2),
        ([60.0, 60.0], 64, 8, 2),
        ([0.5, 0.0625], 64, 64, 2),  # the first time, modules were imported
        ([0.5, 0.0], 64, 64, 2),
        ([], 8, 8, 1),
        ([], 1, 1, 1),
    ],
)
def test_what_takes_long_to_make_has_few_slots(monkeypatch, seconds, wanted, slots, made):
    times = iter([time for duration in seconds for time in (0.0, duration)])
    clock = SimpleNamespace(perf_counter=lambda: next(times, 0.0))
    monkeypatch.setattr("esbench.environments.backends.gymnasium_loop.time", clock)
    backend = make("CartPole-v1", {}, wanted)
    assert (backend.num_envs, len(backend._envs), len(backend.observations)) == (slots, made, slots)
    for slot in range(slots):
        backend.start(slot, slot)
    assert backend.live.all()


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "words"),
    [
        ("CartPole-v1", {"foo": 1}, "with kwargs {'foo': 1}: TypeError: .*argument 'foo'$"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "KeyError: '9x9'$"),
        ("HalfCheetah-v5", {"xml_file": "no.xml"}, "no.xml does not exist"),
        ("Needs-v0", {}, "No module named 'no_library'; install the package that provides"),
        ("nowhere:Env-v0", {}, "cannot be made: .*nowhere"),
        ("CartPole-v7", {}, "`CartPole`"),
        ("HalfCheetah-v3", {}, "gymnasium-robotics project"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_what_cannot_be_made_is_one_sentence(environment_id, kwargs, words):
    with pytest.raises(UsageError, match=words) as raised:
        make(environment_id, kwargs)
    assert f"environment {environment_id!r} cannot be made" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_environment_that_can_be_made_once_is_no_wrong_input():
    made = []

    def once():
        if made:
            raise OSError("the port is in use")
        made.append(Walk())
        return made[0]

    gymnasium.register("Once-v0", entry_point=once)
    backend = make("Once-v0", {})
    backend.start(0, seed=0)
    with pytest.raises(OSError, match="the port is in use"):
        backend.start(1, seed=0)


def test_atari_games_are_known():
    backend = make("ALE/Pong-v5", {}, slots=1)
    assert backend.single_observation_space.shape == (210, 160, 3)
    backend.close()


def random_actions(space, seed, steps, slots):
    space.seed(seed)
    return [np.array([space.sample() for _ in range(slots)]) for _ in range(steps)]


def record(step):
    """Return the arrays of a step as bytes and types, which is what bit-identical means."""
    return [(np.asarray(array).tobytes(), np.asarray(array).dtype.str) for array in step[:4]]


@pytest.mark.parametrize(("environment_id", "kwargs"), ENVIRONMENTS)
def test_it_is_gymnasiums_vector_environment_bit_for_bit(environment_id, kwargs):
    ours = make(environment_id, kwargs)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make(environment_id, **kwargs)] * SLOTS,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    seeds = list(range(SLOTS))
    np.testing.assert_array_equal(ours.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0])
    ended = 0
    for action in random_actions(ours.single_action_space, 0, STEPS, SLOTS):
        mine, step = ours.step(action), theirs.step(action)
        assert record(mine) == record(step)
        assert mine[4] == {}
        done = step[2] | step[3]
        np.testing.assert_array_equal(ours.live, ~done)
        if done.any():
            ended += int(done.sum())
            seeds = [1000 * ended + slot for slot in range(SLOTS)]
            fresh, infos = ours.reset(seed=seeds, options={"reset_mask": done})
            expected, _ = theirs.reset(seed=seeds, options={"reset_mask": done.copy()})
            np.testing.assert_array_equal(fresh, expected)
            assert fresh.dtype == expected.dtype
            assert infos == {}
            assert ours.live.all()
    assert ended >= 2 * SLOTS
    ours.close()
    theirs.close()


@pytest.mark.parametrize(("environment_id", "kwargs"), ENVIRONMENTS)
def test_every_slot_is_a_plain_environment_bit_for_bit(environment_id, kwargs):
    assert play(GymnasiumBackend, environment_id, kwargs, STEPS) >= 2 * SLOTS


def test_an_ended_slot_stays_ended_until_it_is_reset():
    backend, other = make("CartPole-v1", {}, 2), gymnasium.make("CartPole-v1")
    backend.start(0, seed=0)
    actions = np.array([0, 0])
    while backend.live[0]:
        backend.step(actions)
    last = backend.observations[0].copy()
    backend.start(1, seed=5)
    expected, _ = other.reset(seed=5)
    np.testing.assert_array_equal(backend.observations[1], expected)
    for action in (0, 1, 0, 1, 0, 1):
        observations, rewards, terminations, _, _ = backend.step(np.array([0, action]))
        np.testing.assert_array_equal(observations[0], last)
        assert (rewards[0], terminations[0], backend.live[0]) == (0.0, True, False)
        np.testing.assert_array_equal(observations[1], other.step(action)[0])
        assert (rewards[1], terminations[1], backend.live[1]) == (1.0, False, True)
    backend.reset(seed=[9, None], options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(backend.observations[0], other.reset(seed=9)[0])
    _, rewards, terminations, _, _ = backend.step(actions)
    assert (rewards[0], terminations[0], backend.live[0]) == (1.0, False, True)


def test_a_retired_slot_is_skipped_and_can_begin_again():
    backend = make("CartPole-v1", {}, 2)
    backend.reset(seed=[1, 2])
    backend.retire(0)
    before = backend.observations.copy()
    observations, rewards, terminations, truncations, _ = backend.step(np.array([0, 0]))
    np.testing.assert_array_equal(observations[0], before[0])
    assert not np.array_equal(observations[1], before[1])
    assert rewards.tolist() == [0.0, 1.0]
    assert not terminations.any()
    assert not truncations.any()
    backend.start(0, seed=1)
    np.testing.assert_array_equal(backend.observations[0], before[0])
    assert backend.live.tolist() == [True, True]


def test_a_slot_that_never_began_is_skipped():
    backend = make("Pendulum-v1", {}, 4)
    assert not backend.live.any()
    backend.start(1, seed=0)
    _, rewards, _, _, _ = backend.step(np.zeros((2, 1), np.float32))  # actions of slots 0 and 1
    assert rewards[[0, 2, 3]].tolist() == [0.0] * 3
    assert rewards[1] != 0.0
    assert backend.live.tolist() == [False, True, False, False]


@pytest.mark.parametrize("seed", [None, 5, [], [1], [1, 2, 3]])
def test_every_slot_needs_a_seed_in_a_list(seed):
    with pytest.raises(ValueError, match="list of 2 seeds"):
        make("CartPole-v1", {}, 2).reset(seed=seed)


def test_only_slots_that_are_reset_need_a_seed():
    backend = make("CartPole-v1", {}, 2)
    for mask in ([True, True], [False, True]):
        with pytest.raises(ValueError, match="slot 1"):
            backend.reset(seed=[1, None], options={"reset_mask": np.array(mask)})
    backend.reset(seed=[1, None], options={"reset_mask": np.array([True, False])})
    assert backend.live[0]


def test_discrete_observations_are_whole_numbers():
    backend, plain = make("FrozenLake-v1", {}, 2), gymnasium.make("FrozenLake-v1")
    backend.reset(seed=[3, 4])
    state, _ = plain.reset(seed=4)
    for action in (2, 1, 2, 1):
        assert backend.observations.shape == (2,)
        assert backend.observations.dtype == backend.single_observation_space.dtype
        assert backend.observations[1] == state
        if not backend.live[1]:
            break
        backend.step(np.array([action, action]))
        state = plain.step(action)[0]


def trajectory(backend, slot, seed, steps):
    """Return the bits of the first steps of one slot's episode."""
    backend.single_action_space.seed(seed)
    backend.start(slot, seed)
    bits = [backend.observations[slot].tobytes()]
    for _ in range(steps):
        if not backend.live[slot]:
            break
        actions = np.array([backend.single_action_space.sample()] * backend.num_envs)
        observations, *rest = backend.step(actions)[:4]
        bits += [observations[slot].tobytes(), *(array[slot].tobytes() for array in rest)]
    return bits


# An Atari game loads its ROM for every episode, 0.2 s; one of them is enough.
OTHER_GAMES = "Breakout|Freeway|Frostbite|Seaquest|Invaders|Rider|Qbert|Enduro|Deterministic"


@pytest.mark.parametrize(
    "name", [name for name in esbench.list_environments() if not re.search(OTHER_GAMES, name)]
)
def test_an_episode_does_not_know_what_its_slot_did_before(name):
    spec = load_environment(name).spec()
    fresh, used = (make(spec.id, spec.kwargs, slots=1) for _ in range(2))
    expected = trajectory(fresh, 0, seed=11, steps=30)
    assert len(expected) > 4  # at least a step
    trajectory(used, 0, seed=12, steps=40)  # to its end, or broken off
    used.retire(0)
    assert trajectory(used, 0, seed=11, steps=30) == expected
    trajectory(used, 0, seed=13, steps=3)
    assert trajectory(used, 0, seed=11, steps=30) == expected
    fresh.close()
    used.close()
