"""The random streams of a trial.

The address of a stream is (trial seed, purpose, indices). Its numbers come from NumPy's
counter-based Philox generator through ``SeedSequence`` (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011). No stream continues from one generation to the next, so the random state
of a trial is its seed and generation number: any worker can rebuild any stream, and a checkpoint
needs no generator state.
"""

from __future__ import annotations

import enum
from typing import final

import numpy as np

EVALUATION_FLAG = 1 << 30
LARGEST_SEED = 2**32 - 1  # of training
FIRST_TUNING_SEED = 1_000_000
"""Seeds from here on are for tuning: results with them cannot be submitted to a leaderboard."""


@final
@enum.unique
class Purpose(enum.IntEnum):
    """The purpose of a stream. The numbers are part of the determinism contract: never renumber."""

    INITIALIZATION = 1
    NOISE = 2
    TRAINING_EPISODE = 3
    CENTER_EPISODE = 4
    ACTION_NOISE = 5
    EVALUATION_EPISODE = 6
    RANDOM_POLICY = 7
    BOOTSTRAP = 8
    PROBE_EPISODE = 9
    CHOICE = 10
    PERMUTATION = 11
    SIMULATION = 12
    REFERENCE_BATCH = 13
    TUNING = 14
    SAMPLE = 15
    VALIDATION_EPISODE = 16


def _sequence(seed: int, purpose: Purpose, indices: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *indices))


def stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """The generator of one stream, at its start."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, indices)))


def noise_key(seed: int, *indices: int) -> int:
    """The 128-bit Philox key of one generation's noise."""
    low, high = _sequence(seed, Purpose.NOISE, indices).generate_state(2, np.uint64)
    return int(high) << 64 | int(low)


def episode_seed(seed: int, purpose: Purpose, *indices: int) -> int:
    """The environment seed of one episode, in [0, 2**31).

    Bit 30 is set for held-out evaluation episodes and clear for all others, so the two sets are
    disjoint. 31 bits fit every environment's seed type (an int32 in ALE).
    """
    bits = int(_sequence(seed, purpose, indices).generate_state(1, np.uint32)[0]) >> 2
    return bits | (EVALUATION_FLAG if purpose is Purpose.EVALUATION_EPISODE else 0)
