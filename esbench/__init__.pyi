from .algorithms.base import register_algorithm
from .api import (
    list_agents,
    list_algorithms,
    list_environments,
    list_policies,
    load_policy,
    make_algorithm,
    make_trainer,
)
from .commands import (
    compare,
    merge,
    plot,
    run,
    table,
)
from .environments.backends.base import register_backend
from .errors import (
    EsbenchError,
    TrainingError,
    UsageError,
)
from .grids.environment_files import register_environment
from .integrations.ray_engine import RayEngine
from .integrations.trackers.base import (
    Tracker,
    register_tracker,
)
from .policies.base import register_policy
from .store.data_frames import (
    load_members,
    load_results,
    load_scores,
)
from .store.generation_record import GenerationRecord
from .training.callbacks import (
    Stop,
    TargetReturn,
)

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
