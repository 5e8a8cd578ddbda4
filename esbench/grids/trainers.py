"""Names of algorithms and agents, which a grid does not tell apart."""

from __future__ import annotations

from esbench.agents.agent import AGENTS, agent_class, agent_settings
from esbench.algorithms.base import ALGORITHMS, algorithm_class
from esbench.core.errors import unknown
from esbench.core.settings import TrainerSettings


def trainer_names() -> list[str]:
    """The names of all algorithms and agents, sorted."""
    return sorted({*ALGORITHMS.names(), *AGENTS.names()})


def is_agent(name: str) -> bool:
    """Whether a name is that of an agent, also of a user's "package.file:Class".

    Raises:
        UsageError: it cannot be imported.
    """
    return name in AGENTS.names() if ":" not in name else agent_class(name) is not None


def trainer_settings(name: str) -> type[TrainerSettings]:
    """The class of the settings of an algorithm or an agent.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    if ":" not in name and name not in trainer_names():
        raise unknown("algorithm", name, trainer_names())
    return agent_settings(agent_class(name)) if is_agent(name) else algorithm_class(name).Settings
