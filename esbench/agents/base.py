"""The interface of every agent: it learns in an environment by itself, step by step.

An algorithm is asked for parameters and told their returns. An agent is given an environment and a
number of steps, and hands over a policy. To a grid, a table and the gate both are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import gymnasium

from esbench.algorithms.base import State
from esbench.algorithms.settings import TrainerSettings
from esbench.core.registry import Registry
from esbench.core.settings import Count

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
