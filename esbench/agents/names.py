"""Names of algorithms and agents, which a grid does not tell apart."""

from __future__ import annotations

import inspect
from typing import Any

from esbench.agents.base import AGENTS, Agent, AgentSettings, MakeEnvironment
from esbench.agents.own_agent import OwnAgent, is_own_agent
from esbench.algorithms.base import ALGORITHMS, algorithm_class
from esbench.algorithms.settings import TrainerSettings
from esbench.core.errors import unknown
from esbench.core.registry import import_object


def trainer_names() -> list[str]:
    """The names of all algorithms and agents, sorted."""
    return sorted({*ALGORITHMS.names(), *AGENTS.names()})


def is_agent(name: str) -> bool:
    """Whether a name is that of an agent, also of a user's "package.file:Class".

    Raises:
        UsageError: it cannot be imported.
    """
    return name in AGENTS.names() if ":" not in name else _own_agent(name) is not None


def trainer_settings(name: str) -> type[TrainerSettings]:
    """The class of the settings of an algorithm or an agent.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    if ":" not in name and name not in trainer_names():
        raise unknown("algorithm", name, trainer_names())
    if not is_agent(name):
        return algorithm_class(name).Settings
    found = AGENTS.get(name) if ":" not in name else _own_agent(name)
    settings: type[AgentSettings] = getattr(found, "Settings", OwnAgent.Settings)
    return settings


def make_agent(name: str, settings: Any, make_environment: MakeEnvironment, seed: int) -> Agent:
    """The untrained agent of a name.

    Raises:
        UsageError: it does not fit the environment, or its constructor refuses the settings.
    """
    found = AGENTS.get(name) if ":" not in name else _own_agent(name)
    if isinstance(found, type) and issubclass(found, Agent):
        return found(settings, make_environment, seed)
    return OwnAgent(settings, make_environment, seed, learner=(name, found))


def _own_agent(name: str) -> Any:
    """A user's class of an agent; None if the name is not that of an agent."""
    found: Any = import_object("algorithm", name)
    if not isinstance(found, type) or inspect.isabstract(found):
        return None
    return found if issubclass(found, Agent) or is_own_agent(found) else None
