"""esbench: the benchmark suite for evolution strategies in reinforcement learning."""

from esbench.algorithms.base import register_algorithm
from esbench.api import (
    list_algorithms,
    list_environments,
    list_policies,
    make_algorithm,
    make_trainer,
)
from esbench.environments.backends.base import register_backend
from esbench.errors import EsbenchError, TrainingError, UsageError
from esbench.policies.base import register_policy
from esbench.store.data_frames import load_results, load_scores
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Stop, TargetReturn

__version__ = "0.3.0"

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
