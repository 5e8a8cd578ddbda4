"""The interface of every agent: it learns in an environment by itself, step by step.

An algorithm is asked for parameters and told their returns. An agent is given an environment and a
number of steps, and hands over a policy. To a grid, a table and the gate both are the same.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeAlias, final

import gymnasium
from pydantic import ConfigDict

from esbench.core.arrays import State
from esbench.core.errors import TrainingError, UsageError, UserCodeError, error_text, suggestion
from esbench.core.registry import Registry, import_object
from esbench.core.settings import Count, TrainerSettings

Environment: TypeAlias = gymnasium.Env[Any, Any]
MakeEnvironment: TypeAlias = Callable[[], Environment]


class ActingPolicy(Protocol):
    """A policy that acts in a Gymnasium environment."""

    def reset(self) -> None:
        """Forget the episode; called at the start of every episode."""

    def act(self, observation: Any) -> Any:
        """The action for one observation."""


class AgentSettings(TrainerSettings, ABC):
    """Settings that every agent has."""

    row_steps: Count = 5000
    """Training steps per row of ``metrics.jsonl``, which is a generation to every other command
    [environment steps]."""


class Agent(ABC):
    """A learner that steps through its environments by itself.

    Attributes:
        Settings: the class of its settings.
        paper: where it was published.
    """

    Settings: ClassVar[type[AgentSettings]]
    paper: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, settings: Any, make_environment: MakeEnvironment, seed: int) -> None:
        """Prepare an untrained agent.

        Args:
            settings: an object of ``Settings``.
            make_environment: makes a training environment. It counts steps, and ignores seeds that
                are given to ``reset``: every episode has its own.
            seed: of the agent's own random numbers.

        Raises:
            UsageError: a setting does not fit the environment.
        """

    @abstractmethod
    def learn(self, env_steps: int) -> None:
        """Train for this many further steps; may be called again.

        An environment raises an exception in ``step`` to end training early.
        """

    @property
    @abstractmethod
    def policy(self) -> ActingPolicy | None:
        """The policy so far, without exploration; None if it is not known before the end."""

    @abstractmethod
    def state_dict(self) -> State | None:
        """Everything that is needed to continue, or None if the agent cannot.

        It is called at the end of a step of an environment, and after ``learn``.
        """

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""


AGENTS: Final[Registry[Agent]] = Registry("agent", "esbench.agents", "esbench.agents")
register_agent = AGENTS.register


@final
class OwnAgentSettings(AgentSettings):
    """Settings of a user's own agent; all other keys are arguments of its constructor."""

    model_config = ConfigDict(extra="allow")


@final
class OwnAgent(Agent):
    """A user's own class with ``train(env, env_steps, seed)``, which inherits from nothing.

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


def own_agent(name: str) -> Any:
    """A user's class "package.file:Class" of an agent; None if the class is no agent.

    Raises:
        UsageError: it cannot be imported.
    """
    found: Any = import_object("algorithm", name)
    return found if is_agent_class(found) else None


def agent_settings(name: str) -> type[AgentSettings]:
    """The class of the settings of an agent."""
    found = AGENTS.get(name) if ":" not in name else own_agent(name)
    settings: type[AgentSettings] = getattr(found, "Settings", OwnAgentSettings)
    return settings


def make_agent(name: str, settings: Any, make_environment: MakeEnvironment, seed: int) -> Agent:
    """The untrained agent of a name.

    Raises:
        UsageError: it does not fit the environment, or its constructor refuses the settings.
    """
    found = AGENTS.get(name) if ":" not in name else own_agent(name)
    if isinstance(found, type) and issubclass(found, Agent):
        return found(settings, make_environment, seed)
    return OwnAgent(settings, make_environment, seed, learner=(name, found))


def is_agent_class(cls: Any) -> bool:
    """Whether a class is an ``Agent``, or has ``train(env, env_steps, seed)``."""
    if not isinstance(cls, type) or inspect.isabstract(cls):
        return False
    train = getattr(cls, "train", None)
    if issubclass(cls, Agent) or not callable(train):
        return issubclass(cls, Agent)
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
