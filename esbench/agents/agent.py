"""The interface of every agent: it learns in an environment by itself, step by step.

An algorithm is asked for parameters and told their returns. An agent is given an environment and a
number of steps, and hands over a policy. To a grid, a table and the gate both are the same.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

from pydantic import ConfigDict

from esbench.agents.acting import ActingPolicy, Environment, MakeEnvironment
from esbench.agents.model_policy import ModelPolicy
from esbench.core.arguments import received
from esbench.core.arrays import State
from esbench.core.errors import TrainingError, UserCodeError, error_text, require_keywords
from esbench.core.registry import Registry
from esbench.core.settings import Count, TrainerSettings
from esbench.core.user_code import import_object


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


class WeightedAgent(Agent, ABC):
    """An agent whose policy is a set of arrays, which a leaderboard can publish."""

    @abstractmethod
    def weights(self) -> State:
        """The arrays with which the policy acts, by name.

        Those of networks, in float32, begin with "weights.", statistics of observations, in
        float64, with "statistics.".
        """

    @abstractmethod
    def load_weights(self, weights: State) -> None:
        """Act with what ``weights`` returned; UsageError if it does not fit."""

    @property
    @abstractmethod
    def model(self) -> Any:
        """The model of the library."""

    @abstractmethod
    def losses(self) -> dict[str, float]:
        """What the library has logged about its latest update, by its own names."""

    @abstractmethod
    def module(self) -> Any:
        """A new torch module from observations [N, ...] to actions [N, ...], without exploration.

        UsageError if there is none for such observations.
        """


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

    Its policy has ``act(observation)`` and perhaps ``reset()``, or is a model of Stable-Baselines3
    or has its ``predict``, or is a function of the observation. It is known only when ``train``
    returns, so a killed trial starts again, and its rows have no evaluation of the policy.
    """

    Settings = OwnAgentSettings

    def __init__(
        self,
        settings: OwnAgentSettings,
        make_environment: MakeEnvironment,
        seed: int,
        cls: Any,
        name: str,
    ) -> None:
        """Make the agent of the user's class ``cls``, which messages call ``name``."""
        self._name, self._seed = name, seed
        self._make_environment = make_environment
        self._policy: ActingPolicy | None = None
        arguments = settings.model_extra or {}
        require_keywords(f"agent {name!r}", cls, arguments)
        try:
            self._learner = cls(**received(cls, arguments))
        except Exception as error:  # a user's constructor may raise anything
            raise UserCodeError(f"agent {name!r} cannot be made ({error_text(error)})") from error

    @property
    def policy(self) -> ActingPolicy | None:
        """The policy that ``train`` has returned."""
        return self._policy

    def learn(self, env_steps: int) -> None:
        """Call ``train``; a second call trains from the beginning."""
        env = self._make_environment()
        found = self._learner.train(env, env_steps, self._seed)
        self._policy = _policy_of(found, f"agent {self._name!r}", env)

    def state_dict(self) -> State | None:
        """None: what a user's agent holds is not known."""
        return None

    def load_state_dict(self, state: State) -> None:
        """Never called, because there is no state."""
        raise AssertionError(f"{self._name} has no state")


def agent_class(name: str) -> Any:
    """An agent by name, or a user's class "package.file:Class"; None if the class is no agent.

    Raises:
        UsageError: it cannot be imported.
    """
    found: Any = import_object("algorithm", name) if ":" in name else AGENTS.get(name)
    return found if is_agent_class(found) else None


def agent_settings(cls: Any) -> type[AgentSettings]:
    """The class of the settings of an agent."""
    settings: type[AgentSettings] = getattr(cls, "Settings", OwnAgentSettings)
    return settings


def make_agent(
    cls: Any, settings: Any, make_environment: MakeEnvironment, seed: int, name: str
) -> Agent:
    """An untrained agent; ``name`` is that of the class in messages.

    Raises:
        UsageError: it does not fit the environment, or its constructor refuses the settings.
    """
    if issubclass(cls, Agent):
        made: Agent = cls(settings, make_environment, seed)
        return made
    return OwnAgent(settings, make_environment, seed, cls, name)


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


@final
class _Function:
    """A function of the observation as a policy."""

    def __init__(self, act: Any, reset: Any) -> None:
        self.act = act
        self.reset = reset if callable(reset) else lambda: None


def _policy_of(found: Any, owner: str, trained_in: Environment) -> ActingPolicy:
    """What a user's agent hands over, as a policy; TrainingError if it is none."""
    reset = getattr(found, "reset", None)
    if callable(getattr(found, "act", None)):
        return _Function(found.act, reset)
    if callable(getattr(found, "predict", None)):
        return ModelPolicy(found, owner, trained_in)
    if callable(found):
        return _Function(found, reset)
    raise TrainingError(
        f"{owner} returned {type(found).__name__}; expected a policy with act(observation) or "
        "predict(observation), or a function of the observation"
    )
