"""Every random stream of a trial, by name.

A stream is addressed by (trial seed, purpose, indices) and drawn from NumPy's counter-based Philox
generator through ``SeedSequence`` (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011). Nothing is drawn in sequence across generations, so the random state of a trial is its
seed and its generation number: any worker can rebuild any stream, and a checkpoint needs no
generator state.
"""

from __future__ import annotations

import enum

import numpy as np

EVALUATION_FLAG = 1 << 30


@enum.unique
class Purpose(enum.IntEnum):
    """What a stream is for. The numbers belong to the determinism contract: never renumber."""

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


def _sequence(seed: int, purpose: Purpose, indices: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *indices))


def stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """Return the generator of one stream, at its start."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, indices)))


def noise_key(seed: int, *indices: int) -> int:
    """Return the 128-bit Philox key from which one generation's noise is counted out."""
    low, high = _sequence(seed, Purpose.NOISE, indices).generate_state(2, np.uint64)
    return int(high) << 64 | int(low)


def episode_seed(seed: int, purpose: Purpose, *indices: int) -> int:
    """Return the environment seed of one episode, in [0, 2**31).

    Held-out evaluation episodes have bit 30 set and all others have it clear, so the two sets are
    disjoint by construction. 31 bits fit every environment's seed type (ALE takes an int32).
    """
    bits = int(_sequence(seed, purpose, indices).generate_state(1, np.uint32)[0]) >> 2
    return bits | (EVALUATION_FLAG if purpose is Purpose.EVALUATION_EPISODE else 0)
