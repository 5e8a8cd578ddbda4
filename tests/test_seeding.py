from itertools import product

import numpy as np
import pytest

from esbench.core.seeding import EVALUATION_FLAG, Purpose, episode_seed, noise_key, stream

TRIAL_SEEDS = (0, 1, 2**32 - 1)
GOLDEN_RAW = (9594371791806708155, 6945143470532081748)


def first_draws(seed, purpose, *indices):
    return tuple(stream(seed, purpose, *indices).bit_generator.random_raw(4).tolist())


def test_the_numbers_of_the_purposes_are_frozen():
    names = (
        "INITIALIZATION NOISE TRAINING_EPISODE CENTER_EPISODE ACTION_NOISE EVALUATION_EPISODE "
        "RANDOM_POLICY BOOTSTRAP PROBE_EPISODE CHOICE PERMUTATION SIMULATION REFERENCE_BATCH "
        "TUNING SAMPLE VALIDATION_EPISODE"
    )
    assert [(purpose.name, purpose.value) for purpose in Purpose] == [
        (name, number) for number, name in enumerate(names.split(), start=1)
    ]


def test_golden_values_that_every_process_and_machine_must_reproduce():
    # SeedSequence, Philox and random_raw are covered by NumPy's promise of stable bits.
    assert first_draws(0, Purpose.NOISE, 1)[:2] == GOLDEN_RAW
    assert noise_key(123, 7) == 255373780855473034932575530963426452201
    assert episode_seed(0, Purpose.TRAINING_EPISODE, 0, 0, 0) == 730445757
    assert episode_seed(0, Purpose.EVALUATION_EPISODE, 0, 0) == 1804999269


def test_streams_of_different_addresses_are_different():
    indices = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (0, 0, 0), (1, 2, 3)]
    draws = [first_draws(*at[:2], *at[2]) for at in product(TRIAL_SEEDS, Purpose, indices)]
    assert len(set(draws)) == len(draws)


def test_noise_keys_are_128_bits_and_distinct():
    keys = {noise_key(seed, i) for seed, i in product(TRIAL_SEEDS, range(1000))}
    assert len(keys) == 3000
    assert all(0 <= key < 2**128 for key in keys)
    for bit in (0, 31, 32, 63, 64, 95, 96, 127):
        assert 0.4 < np.mean([key >> bit & 1 for key in keys]) < 0.6


@pytest.mark.parametrize("seed", TRIAL_SEEDS)
def test_episode_seeds_fit_31_bits_and_bit_30_is_that_of_held_out_ones(seed):
    assert EVALUATION_FLAG == 2**30
    for purpose in Purpose:
        seeds = np.array(
            [episode_seed(seed, purpose, g, i) for g, i in product((0, 2), range(250))]
        )
        assert seeds.min() >= 0
        assert seeds.max() < 2**31
        held_out = purpose is Purpose.EVALUATION_EPISODE
        assert ((seeds & EVALUATION_FLAG > 0) == held_out).all()
        for bit in (0, 1, 15, 28, 29):
            assert 0.4 < np.mean(seeds >> bit & 1) < 0.6


def test_trials_with_neighboring_seeds_share_no_episode():
    episodes = [
        {episode_seed(seed, Purpose.TRAINING_EPISODE, g, m) for g in range(10) for m in range(50)}
        for seed in range(3)
    ]
    assert episodes[0].isdisjoint(episodes[1] | episodes[2])
    assert episodes[1].isdisjoint(episodes[2])
