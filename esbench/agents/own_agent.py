"""A user's own class with ``train(env, env_steps, seed)``, which inherits from nothing."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, final

from pydantic import ConfigDict

from esbench.agents.base import ActingPolicy, Agent, AgentSettings, MakeEnvironment
from esbench.algorithms.base import State
from esbench.core.errors import TrainingError, UsageError, UserCodeError, suggestion
from esbench.core.user_code_errors import error_text


@final
class OwnAgentSettings(AgentSettings):
    """Settings of a user's own agent; all other keys are arguments of its constructor."""

    model_config = ConfigDict(extra="allow")


@final
class OwnAgent(Agent):
    """An agent of a user.

    For example::

        class RandomSearch:
            def __init__(self, trials=10): ...
            def train(self, env, env_steps, seed): ...  # returns a policy

    Its policy has ``act(observation)`` and perhaps ``reset()``, or ``predict(observation)`` as in
    Stable-Baselines3, or is a function of the observation. It is known only when ``train``
    returns, so a killed trial starts again, and its rows have no evaluation of the policy.
    """

    Settings = OwnAgentSettings

    def __init__(
        self,
        settings: OwnAgentSettings,
        make_environment: MakeEnvironment,
        seed: int,
        learner: tuple[str, Any],
    ) -> None:
        """Make the agent; ``learner`` is the name of the user's class, and the class."""
        self._name, cls = learner
        self._make_environment = make_environment
        self._seed = seed
        self._policy: ActingPolicy | None = None
        arguments = settings.model_extra or {}
        known = inspect.signature(cls).parameters
        free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
        for key in arguments:
            if key not in known and not free:
                near = suggestion(key, known)
                raise UsageError(f"agent {self._name!r} takes no argument {key!r}; {near}")
        try:
            self._learner = cls(**arguments)
        except Exception as error:  # a user's constructor may raise anything
            raise UserCodeError(
                f"agent {self._name!r} cannot be made ({error_text(error)})"
            ) from error

    @property
    def policy(self) -> ActingPolicy | None:
        """The policy that ``train`` has returned."""
        return self._policy

    def learn(self, env_steps: int) -> None:
        """Call ``train``; a second call trains from the beginning."""
        found = self._learner.train(self._make_environment(), env_steps, self._seed)
        self._policy = as_policy(found, self._name)

    def state_dict(self) -> State | None:
        """None: what a user's agent holds is not known."""
        return None

    def load_state_dict(self, state: State) -> None:
        """Never called, because there is no state."""
        raise AssertionError(f"{self._name} has no state")


def is_own_agent(cls: type) -> bool:
    """Whether a class has ``train(env, env_steps, seed)``."""
    train = getattr(cls, "train", None)
    if not callable(train):
        return False
    try:
        inspect.signature(train).bind(None, None, None, None)
    except TypeError:
        return False
    return True


def as_policy(found: Any, owner: str) -> ActingPolicy:
    """What an agent hands over, as a policy with ``reset`` and ``act``.

    Raises:
        TrainingError: it is none.
    """
    if callable(getattr(found, "act", None)):
        act = found.act
    elif callable(getattr(found, "predict", None)):
        act = partial(_predicted, found.predict)
    elif callable(found):
        act = found
    else:
        raise TrainingError(
            f"agent {owner!r} returned {type(found).__name__}; expected a policy with "
            "act(observation) or predict(observation), or a function of the observation"
        )
    return _Acting(act, getattr(found, "reset", None))


def _predicted(predict: Any, observation: Any) -> Any:
    """The action of ``predict``, without exploration and without a recurrent state."""
    sure = "deterministic" in inspect.signature(predict).parameters
    found = predict(observation, deterministic=True) if sure else predict(observation)
    return found[0] if isinstance(found, tuple) else found


@final
class _Acting:
    def __init__(self, act: Any, reset: Any) -> None:
        self.act = act
        self._reset = reset

    def reset(self) -> None:
        if callable(self._reset):
            self._reset()
