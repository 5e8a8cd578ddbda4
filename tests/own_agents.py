"""Agents of a user, which inherit from nothing and know nothing of esbench."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np


class Climber:
    """Hill climbing of a linear policy for two actions; ends at its budget plus ``waste``."""

    def __init__(self, noise: float = 0.5, waste: int = 0) -> None:
        self.noise, self.waste = noise, waste

    def train(self, env: Any, env_steps: int, seed: int) -> Callable[[Any], int]:
        generator = np.random.default_rng(seed)
        best, highest, left = np.zeros(env.observation_space.shape), -np.inf, env_steps + self.waste
        while left:
            weights = best + self.noise * generator.normal(size=best.shape)
            (observation, _), total, ended = env.reset(seed=1), 0.0, False
            while left and not ended:
                observation, reward, *ends, _ = env.step(int(observation @ weights > 0))
                total, left, ended = total + reward, left - 1, any(ends)
            if total > highest:
                best, highest = weights, total
        return lambda observation: int(observation @ best > 0)


class Predictor:
    """An agent of one step whose policy has the interface of Stable-Baselines3."""

    def train(self, env: Any, env_steps: int, seed: int) -> "Predictor":
        env.reset()
        env.step(env.action_space.sample())
        return self

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[int, None]:
        """The action 0, but only if asked for no exploration."""
        assert deterministic
        return 0, None


class Nothing:
    """An agent that hands over no policy."""

    def train(self, env: Any, env_steps: int, seed: int) -> int:
        return seed


class Still:
    """An agent that has nothing to learn."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        return lambda _: 0


class Moves(Predictor):
    """An agent that changes the current folder."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        os.chdir("/")
        return super().train(env, env_steps, seed)


class Outside(Predictor):
    """An agent whose policy chooses an action that the environment lacks."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        return lambda _: 7


class Unseeded(Predictor):
    """An agent whose policy does not depend on its seed."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        generator = np.random.default_rng()
        return lambda observation: int(generator.integers(2))


class Eases(Predictor):
    """An agent that makes the environment easier: this one or, with ``for_all``, its class."""

    def __init__(self, method: str = "step", for_all: bool = True) -> None:
        self.method, self.for_all = method, for_all

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        """Hold the pole upright after each call of a method."""
        own = env.unwrapped
        before = getattr(type(own), self.method)

        def easier(self: Any, *arguments: Any, **options: Any) -> Any:
            found = before(self, *arguments, **options)
            self.force_mag, self.state = 0.0, np.zeros(4)
            return found

        setattr(type(own) if self.for_all else own, self.method, easier)
        return super().train(env, env_steps, seed) if self.for_all else lambda _: 0


class Draws(Predictor):
    """An agent that draws a number and does not use it."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        random.random()
        return lambda _: 0


class Sees:
    """An agent that requires observations of a shape."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.shape = shape

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        assert env.observation_space.shape == self.shape
        return lambda _: 0
