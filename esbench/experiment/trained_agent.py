"""The trained policy of an agent, for use in any Gymnasium loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import gymnasium

from esbench.agents.agent import ActingPolicy
from esbench.environments.make_environment import make_environment
from esbench.environments.simulator_log import silenced
from esbench.grids.trial_spec import EnvironmentSpec


@final
class TrainedAgent:
    """The policy of an agent's trial. It acts without exploration.

    It is used as the policy of any other trial, ``TrainedPolicy``, but has no template, no
    parameters and no torch module of its own.

    Attributes:
        environment: the environment's name and arguments.
        generation: the generation after which the policy was stored.
        observation_space, action_space: of the environment.
        held_out_seeds: the environment seeds of the held-out episodes.
    """

    def __init__(
        self,
        environment: EnvironmentSpec,
        policy: ActingPolicy,
        generation: int,
        held_out_seeds: Sequence[int],
    ) -> None:
        self.environment = environment
        self.generation = generation
        self.held_out_seeds = list(held_out_seeds)
        with silenced():
            env = self.make_environment()
            env.close()
        self.observation_space: gymnasium.Space[Any] = env.observation_space
        self.action_space: gymnasium.Space[Any] = env.action_space
        self._policy = policy
        self.reset()

    def make_environment(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """The environment of the trial, for example with ``render_mode="human"``.

        Raises:
            UsageError: it cannot be made.
        """
        spec = self.environment
        return make_environment(spec.id, {**spec.kwargs, **kwargs}, spec.wrappers)

    def reset(self) -> None:
        """Forget the episode; call it at the start of every episode."""
        self._policy.reset()

    def act(self, observation: Any) -> Any:
        """The action for one observation of ``observation_space``."""
        return self._policy.act(observation)
