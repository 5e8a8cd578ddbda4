"""esbench: the benchmark suite for evolution strategies in reinforcement learning."""

from esbench.api import (
    list_algorithms,
    list_environments,
    list_policies,
    make_algorithm,
    make_trainer,
)
from esbench.errors import EsbenchError, TrainingError, UsageError
from esbench.frames import load_results, load_scores
from esbench.record import GenerationRecord, Stop, TargetReturn
from esbench.registry import register_algorithm, register_backend, register_policy

__version__ = "0.2.0"

__all__ = [
    "EsbenchError",
    "GenerationRecord",
    "Stop",
    "TargetReturn",
    "TrainingError",
    "UsageError",
    "list_algorithms",
    "list_environments",
    "list_policies",
    "load_results",
    "load_scores",
    "make_algorithm",
    "make_trainer",
    "register_algorithm",
    "register_backend",
    "register_policy",
]
