from .algorithms.base import register_algorithm
from .app.api import (
    list_agents,
    list_algorithms,
    list_environments,
    list_policies,
    load_policy,
    make_algorithm,
    make_trainer,
)
from .app.commands import (
    compare,
    merge,
    plot,
    run,
    table,
)
from .core.errors import (
    EsbenchError,
    TrainingError,
    UsageError,
)
from .environments.backends.backend import register_backend
from .experiment.watchers import (
    Stop,
    TargetReturn,
)
from .grids.environment_files import register_environment
from .integrations.ray_engine import RayEngine
from .integrations.trackers.base import (
    Tracker,
    register_tracker,
)
from .policies.policy import register_policy
from .results.data_frames import (
    load_members,
    load_results,
    load_scores,
)
from .store.generation_record import GenerationRecord

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

__version__: str
