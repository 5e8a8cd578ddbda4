"""A maze in which going straight for the goal ends at a wall: "maze:DeceptiveMaze-v0"."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.environments.behaviors.behavior import Behavior, BehaviorSettings, SlotView

SIZE, SPEED, STEPS, PHASES = 1.0, 0.16, 15, 3
START, GOAL, REACHED = (0.2, 0.1), (0.2, 0.9), 0.25
WALL, GAP = 0.5, 0.7  # the wall's height, and where it ends; it begins on the left
TRAPPED = GOAL[1] - WALL


class DeceptiveMaze(gymnasium.Env[np.ndarray, np.ndarray]):
    """A point in a box that sees which third of the time it is, and says where to go.

    The goal is right above the start, behind a wall that leaves a gap far to the right. The reward
    comes with the last step: minus the distance to the goal, which is 0.4 at the wall; on the way
    round it only grows. The episode ends within 0.25 of the goal, or after 15 steps.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (PHASES,))
        self.action_space = spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.y = START
        self.time = 0
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.x = min(max(self.x + SPEED * float(action[0]), 0.0), SIZE)
        y = min(max(self.y + SPEED * float(action[1]), 0.0), SIZE)
        if self.x > GAP or (y < WALL) == (self.y < WALL):  # else it slides along the wall
            self.y = y
        self.time += 1
        distance = math.hypot(self.x - GOAL[0], self.y - GOAL[1])
        reached, late = distance < REACHED, self.time == STEPS
        reward = -distance if reached or late else 0.0
        return self._observation(), reward, reached, late, self._info()

    def _observation(self) -> np.ndarray:
        phase = min(self.time * PHASES // STEPS, PHASES - 1)
        return np.eye(PHASES, dtype=np.float32)[phase]

    def _info(self) -> dict[str, float]:
        return {"x_position": self.x, "y_position": self.y}


class ReachSettings(BehaviorSettings):
    """Settings of a behavior of one's own."""

    scale: float = 1.0
    """What it is multiplied by."""


class Reach(Behavior):
    """How far to the right the point has been: a behavior of one's own."""

    Settings = ReachSettings

    def begin(self, view: SlotView) -> None:
        self.reach = view.info["x_position"]

    def step(self, view: SlotView) -> None:
        self.reach = max(self.reach, view.info["x_position"])

    def end(self, view: SlotView) -> np.ndarray:
        return np.array([self.settings.scale * self.reach])


gymnasium.register("DeceptiveMaze-v0", entry_point=DeceptiveMaze)
