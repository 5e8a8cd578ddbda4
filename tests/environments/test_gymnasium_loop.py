"""Plain environments in slots: how many, which are stepped, and what they remember."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import esbench
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.simulator_log import silenced
from esbench.grids.environment_files import load_environment


@pytest.fixture(autouse=True)
def _quiet():
    with silenced():
        yield


@pytest.mark.parametrize(
    ("seconds", "wanted", "slots", "made"),
    [
        ([0.0625], 64, 64, 1),
        ([0.5, 0.5], 64, 8, 2),
        ([0.5, 0.25], 64, 16, 2),
        ([0.5, 0.0625], 64, 64, 2),  # the first time, modules were imported
        ([0.5, 0.0], 64, 64, 2),
        ([], 8, 8, 1),
        ([], 1, 1, 1),
    ],
)
def test_an_environment_that_takes_long_to_make_has_few_slots(
    monkeypatch, seconds, wanted, slots, made
):
    times = iter([time for duration in seconds for time in (0.0, duration)])
    clock = SimpleNamespace(perf_counter=lambda: next(times, 0.0))
    monkeypatch.setattr("esbench.environments.backends.gymnasium_loop.time", clock)
    backend = GymnasiumBackend("CartPole-v1", {}, wanted)
    assert (backend.num_envs, len(backend._envs), len(backend.observations)) == (slots, made, slots)
    for slot in range(slots):
        backend.start(slot, slot)
    assert backend.live.all()


def test_slots_that_never_began_or_are_retired_are_skipped():
    backend = GymnasiumBackend("CartPole-v1", {}, 4)
    for slot in range(2):
        backend.start(slot, seed=slot + 1)
    backend.retire(0)
    before = backend.observations.copy()
    observations, rewards, terminations, truncations, _ = backend.step(np.array([0, 0]))
    np.testing.assert_array_equal(observations[0], before[0])
    assert not np.array_equal(observations[1], before[1])
    assert rewards.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert not terminations.any()
    assert not truncations.any()
    backend.start(0, seed=1)
    np.testing.assert_array_equal(backend.observations[0], before[0])
    assert backend.live.tolist() == [True, True, False, False]


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
def test_an_episode_does_not_depend_on_what_its_slot_played_before(name):
    spec = load_environment(name).spec()
    fresh, used = (GymnasiumBackend(spec.id, spec.kwargs, 1, spec.wrappers) for _ in range(2))
    expected = trajectory(fresh, 0, seed=11, steps=30)
    assert len(expected) > 4  # at least a step
    trajectory(used, 0, seed=12, steps=40)  # to its end, or broken off
    used.retire(0)
    assert trajectory(used, 0, seed=11, steps=30) == expected
    trajectory(used, 0, seed=13, steps=3)
    assert trajectory(used, 0, seed=11, steps=30) == expected
    fresh.close()
    used.close()
