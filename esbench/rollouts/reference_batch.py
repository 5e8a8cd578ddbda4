"""The reference batch of virtual batch normalisation: observations of random play."""

from __future__ import annotations

from typing import Final

import numpy as np

from esbench.environments.simulator_log import silenced
from esbench.policies.spaces import Array, Observations
from esbench.rollouts.jobs import ReferenceBatch, Setup
from esbench.seeding import Purpose, episode_seed

SPACING: Final = 8  # steps between observations; consecutive ones are almost equal


def gather(setup: Setup, size: int, seed: int) -> ReferenceBatch:
    """Every eighth observation of episodes with uniformly random actions.

    These steps do not count as training steps.

    Args:
        setup: the environment.
        size: the number of observations.
        seed: the seed of the trial, which selects the streams.
    """
    with silenced():
        backend = setup.make_backend(slots=1)
        observations = Observations(backend.single_observation_space, setup.environment.id)
        space = backend.single_action_space
        space.seed(episode_seed(seed, Purpose.REFERENCE_BATCH))
        found: list[Array] = []
        step = episode = 0
        while len(found) < size:
            if not backend.live[0]:
                backend.start(0, episode_seed(seed, Purpose.REFERENCE_BATCH, episode))
                episode += 1
            if step % SPACING == 0:
                found.append(observations.encode(backend.observations)[0].copy())
            backend.step(np.array([space.sample()]))
            step += 1
        backend.close()
    return ReferenceBatch(np.array(found))
