from fractions import Fraction

import numpy as np
import pytest

from esbench.policies.normalization import INITIAL_COUNT, STD_FLOOR, ObservationStatistics

SIZE = 3


def moments(episode, shift):
    """Return one episode's count, sum and sum of squares, as a worker gathers them."""
    shifted = episode - shift
    return len(episode), shifted.sum(axis=0), (shifted * shifted).sum(axis=0)


def without_prior(size=SIZE):
    statistics = ObservationStatistics(size)
    zero = np.zeros(size)
    statistics.load_state_dict({"count": np.array(0.0), "mean": zero, "squares": zero})
    return statistics


def make_episodes(offset=0.0, lengths=(5, 1, 40, 17, 200)):
    generator = np.random.default_rng(0)
    spread = np.array([1.0, 0.1, 30.0])
    return [offset + spread * generator.standard_normal((n, SIZE)) for n in lengths]


def test_the_shift_may_move_from_generation_to_generation():
    statistics, seen = without_prior(), []
    for generation in range(5):
        shift = statistics.mean.copy()
        for episode in make_episodes(offset=10.0 * generation):
            statistics.merge(moments(episode, shift), shift)
            seen.append(episode)
    everything = np.concatenate(seen)
    np.testing.assert_allclose(statistics.mean, everything.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        statistics.squares / statistics.count, everything.var(axis=0), rtol=1e-10
    )


@pytest.mark.parametrize("offset", [0.0, -3.0, 2.0, 1e6])
def test_the_start_weighs_a_hundredth_observation_of_mean_0_and_deviation_1(offset):
    assert INITIAL_COUNT == 0.01
    episodes, statistics = make_episodes(offset), ObservationStatistics(SIZE)
    for episode in episodes:
        shift = np.full(SIZE, offset)
        statistics.merge(moments(episode, shift), shift)
    prior = Fraction(INITIAL_COUNT)
    for i in range(SIZE):  # exactly, in rationals
        values = [Fraction(value) for value in np.concatenate(episodes)[:, i].tolist()]
        count = prior + len(values)
        mean = sum(values) / count
        squares = prior + sum(value * value for value in values) - count * mean * mean
        assert statistics.count == pytest.approx(float(count), rel=1e-15)
        assert statistics.mean[i] == pytest.approx(float(mean), rel=1e-10)
        assert statistics.squares[i] == pytest.approx(float(squares), rel=1e-10)


@pytest.mark.parametrize("value", [0.0, 4.0, 0.1])
def test_a_constant_input_is_not_blown_up(value):
    statistics = without_prior()
    shift = np.full(SIZE, value / 3)
    for _ in range(10):
        statistics.merge(moments(np.full((50, SIZE), value), shift), shift)
    assert (statistics.squares >= 0.0).all()
    normalizer = statistics.normalizer(5.0)
    assert STD_FLOOR == 0.01
    np.testing.assert_allclose(normalizer.scale, 100.0, rtol=1e-12)
    np.testing.assert_allclose(normalizer.mean, value, rtol=1e-12, atol=1e-15)
