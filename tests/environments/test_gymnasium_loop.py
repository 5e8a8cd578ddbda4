"""Plain environments in slots: how many there are, and which are stepped."""

from types import SimpleNamespace

import numpy as np
import pytest

from esbench.environments.backends.gymnasium_loop import GymnasiumBackend

pytestmark = pytest.mark.usefixtures("quiet")


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
