"""The policy of a model of Stable-Baselines3 as one torch module, from observations to actions."""

from __future__ import annotations

from typing import Any, final

import torch
from gymnasium import spaces

from esbench.core.errors import UsageError


@final
class ActingModule(torch.nn.Module):  # type: ignore[misc]
    """Acts without exploration, as ``predict`` of the model does.

    It normalizes observations [N, ...] as VecNormalize, and returns actions [N, ...] of the
    environment: numbers within the bounds of a Box, or whole numbers of a discrete space.
    """

    def __init__(self, model: Any, statistics: Any, action_space: spaces.Space[Any]) -> None:
        """Copy the model's policy.

        Args:
            model: of Stable-Baselines3.
            statistics: its VecNormalize, or None.
            action_space: of the environment; the library's discrete spaces begin at 0.

        Raises:
            UsageError: the observations are images, or no arrays of numbers.
        """
        super().__init__()
        space = model.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) > 2:
            raise UsageError(
                f"observations {space}: expected a Box of one or two axes, for which alone the "
                "policy of an agent has a torch module"
            )
        with torch.random.fork_rng(devices=[]):  # it is made with random parameters
            self.policy = type(model.policy)(**model.policy._get_constructor_parameters())
        self.policy.load_state_dict(model.policy.state_dict())
        self.policy.set_training_mode(False)
        self._normalizes = statistics is not None and statistics.norm_obs
        if self._normalizes:
            running = statistics.obs_rms
            self._clip = float(statistics.clip_obs)
            self.register_buffer("mean", torch.from_numpy(running.mean.copy()))
            scale = (running.var + statistics.epsilon) ** 0.5
            self.register_buffer("scale", torch.from_numpy(scale))
        self._is_box = isinstance(action_space, spaces.Box)
        if isinstance(action_space, spaces.Box):
            self._squashes = bool(model.policy.squash_output)
            self.register_buffer("low", torch.from_numpy(action_space.low.copy()))
            self.register_buffer("high", torch.from_numpy(action_space.high.copy()))
        else:
            start = torch.as_tensor(getattr(action_space, "start", 0))
            self.register_buffer("start", start)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The actions for observations."""
        if self._normalizes:
            scaled = (observations.double() - self.mean) / self.scale
            observations = scaled.clip(-self._clip, self._clip).float()
        actions: torch.Tensor = self.policy._predict(observations, deterministic=True)
        if not self._is_box:
            return actions + self.start
        if self._squashes:
            actions = self.low + 0.5 * (actions + 1.0) * (self.high - self.low)
        return actions.clip(self.low, self.high)

    def initial_state(self, _: int) -> None:
        """It keeps no state between observations."""
