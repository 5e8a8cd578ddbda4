"""Checks that a user's agent can be trained, on a small environment."""

from __future__ import annotations

from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.agents.agent import Environment, agent_settings, is_agent_class, make_agent
from esbench.core.errors import TrainingError, UsageError, as_training_errors
from esbench.core.settings import parse

SEED: Final = 1
OBSERVATIONS: Final = 20


@final
class _Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose episodes have the seeds 0, 1, 2, ..., as in training."""

    _episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._episodes += 1
        return self.env.reset(seed=self._episodes - 1, options=options)


def check_agent(cls: type, env: str = "CartPole-v1", env_steps: int = 500, **settings: Any) -> None:
    """Check an agent of your own: that it trains, hands over a policy and depends on its seed only.

    Args:
        cls: a class with ``train(env, env_steps, seed)``, or a subclass of ``Agent``.
        env: the name of an environment of Gymnasium.
        env_steps: steps of training; they are made twice.
        settings: settings, or arguments of the constructor.

    Raises:
        UsageError: the class is no agent, or a setting is wrong.
        TrainingError: the class cannot be trained; the message says why.

    >>> class Still:
    ...     def train(self, env, env_steps, seed):
    ...         return lambda observation: 0
    >>> check_agent(Still)
    """
    name = getattr(cls, "__qualname__", str(cls))
    if not is_agent_class(cls):
        raise UsageError(
            f"agent {name!r} is no agent; expected a class with train(env, env_steps, seed), or a "
            "subclass of esbench.agents.agent.Agent"
        )
    typed = parse(agent_settings(cls), settings, f"check_agent({name})")
    space = gymnasium.make(env).action_space
    first, second = (_actions(cls, name, typed, env, env_steps) for _ in range(2))
    if wrong := [action for action in first if not _fits(space, action)]:
        raise TrainingError(f"the policy of {name} chose {wrong[0]!r}; expected one of {space}")
    if any(not np.array_equal(*pair) for pair in zip(first, second, strict=True)):
        raise TrainingError(
            f"{name} chose other actions when it was trained again; expected that its random "
            "numbers depend on the seed alone"
        )


def _actions(cls: Any, name: str, settings: Any, env: str, env_steps: int) -> list[Any]:
    """What the policy of a newly trained agent does for the same observations."""

    def make_environment() -> Environment:
        return _Numbered(gymnasium.make(env))

    with as_training_errors():
        agent = make_agent(cls, settings, make_environment, SEED, name)
        agent.learn(env_steps)
        policy = agent.policy
        if policy is None:
            raise TrainingError(f"{name} has no policy after training; expected one")
        space = gymnasium.make(env).observation_space
        space.seed(SEED)
        policy.reset()
        return [policy.act(space.sample()) for _ in range(OBSERVATIONS)]


def _fits(space: gymnasium.Space[Any], action: Any) -> bool:
    array = np.asarray(action)
    return space.contains(action) or (array.ndim == 0 and space.contains(array[()]))
