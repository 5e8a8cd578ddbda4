"""A point that is to move to the origin, as "point:Point-v0"."""

import gymnasium
import numpy as np


class Point(gymnasium.Env):
    """Two coordinates are observed; the action moves them by up to 0.2 each."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        """Start at a random place."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        return self.position.astype(np.float32), {}

    def step(self, action):
        """Move; the reward is minus the distance to the origin."""
        self.position = self.position + 0.2 * np.asarray(action)
        reward = -float(np.abs(self.position).sum())
        return self.position.astype(np.float32), reward, False, False, {}


gymnasium.register("Point-v0", entry_point=Point, max_episode_steps=20)
