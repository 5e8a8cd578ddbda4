from .agents.agent import register_agent
from .algorithms.algorithm_checker import check_algorithm
from .algorithms.base import Algorithm, register_algorithm
from .app.api import (
    list_agents,
    list_algorithms,
    list_environments,
    list_policies,
    make_algorithm,
    make_trainer,
)
from .app.bisecting import bisect
from .app.checking import check_agent, check_environment
from .app.gating import baseline, check, merge, submit, verify
from .app.importing import import_scores, import_settings
from .app.playing import evaluate, export, load_policy, render
from .app.reading import (
    compare,
    diagnose,
    efficiency,
    history,
    leaderboard,
    plot,
    policies_of,
    report,
    table,
)
from .app.training import expand, plan, run, status, tune
from .core.errors import EsbenchError, TrainingError, UsageError
from .environments.backends.backend import Backend, register_backend
from .environments.behaviors.behavior import Behavior, register_behavior
from .experiment.watchers import Stop, TargetReturn
from .grids.environment_files import register_environment
from .integrations.ray_engine import RayEngine
from .integrations.trackers.tracker import Tracker, register_tracker
from .policies.policy import Policy, register_policy
from .policies.policy_check import check_policy
from .results.data_frames import load_members, load_results, load_scores
from .store.generation_record import GenerationRecord

__all__ = [
    "Algorithm",
    "Backend",
    "Behavior",
    "EsbenchError",
    "GenerationRecord",
    "Policy",
    "RayEngine",
    "Stop",
    "TargetReturn",
    "Tracker",
    "TrainingError",
    "UsageError",
    "baseline",
    "bisect",
    "check",
    "check_agent",
    "check_algorithm",
    "check_environment",
    "check_policy",
    "compare",
    "diagnose",
    "efficiency",
    "evaluate",
    "expand",
    "export",
    "history",
    "import_scores",
    "import_settings",
    "leaderboard",
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
    "plan",
    "plot",
    "policies_of",
    "register_agent",
    "register_algorithm",
    "register_backend",
    "register_behavior",
    "register_environment",
    "register_policy",
    "register_tracker",
    "render",
    "report",
    "run",
    "status",
    "submit",
    "table",
    "tune",
    "verify",
]

__version__: str
