"""esbench: the benchmark suite for evolution strategies in reinforcement learning."""

from typing import TYPE_CHECKING, Any

from esbench.algorithms.base import register_algorithm
from esbench.api import (
    list_agents,
    list_algorithms,
    list_environments,
    list_policies,
    load_policy,
    make_algorithm,
    make_trainer,
)
from esbench.commands import compare, merge, plot, run, table
from esbench.environments.backends.base import register_backend
from esbench.errors import EsbenchError, TrainingError, UsageError
from esbench.grids.environment_files import register_environment
from esbench.integrations.trackers.base import Tracker, register_tracker
from esbench.policies.base import register_policy
from esbench.store.data_frames import load_members, load_results, load_scores
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Stop, TargetReturn

if TYPE_CHECKING:
    from esbench.integrations.ray_engine import RayEngine

__version__ = "0.3.0"

__all__ = [
    "EsbenchError",
    "GenerationRecord",
    "RayEngine",
    "Stop",
    "TargetReturn",
    "Tracker",
    "TrainingError",
    "UsageError",
    "compare",
    "list_agents",
    "list_algorithms",
    "list_environments",
    "list_policies",
    "load_members",
    "load_policy",
    "load_results",
    "load_scores",
    "make_algorithm",
    "make_trainer",
    "merge",
    "plot",
    "register_algorithm",
    "register_backend",
    "register_environment",
    "register_policy",
    "register_tracker",
    "run",
    "table",
]


def __getattr__(name: str) -> Any:
    """``RayEngine``, whose import loads the simulators."""
    if name != "RayEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from esbench.integrations.ray_engine import RayEngine

    return RayEngine
