"""The interface of trackers, which receive what trials record while they are trained."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final
from urllib.parse import urlsplit

from esbench.core.errors import USER_CODE_ERRORS, UsageError, error_text
from esbench.core.files import safe_name
from esbench.core.registry import Registry
from esbench.core.user_code import import_object

TIMEOUT_SECONDS: Final = 20.0  # of a library that waits for its server
_PORTS: Final = {"http": 80, "https": 443}

TrackedRow: TypeAlias = tuple[int, Mapping[str, float]]
"""``global_step``, the environment steps so far, and the numbers of that generation by name."""
STEPS: Final = "time/total_timesteps"
# The names of Stable-Baselines3 for what it logs too, and groups for the rest.
_TAGS: Final = {
    "population_return_mean": "rollout/ep_rew_mean",
    "population_return_std": "rollout/ep_rew_std",
    "population_return_min": "rollout/ep_rew_min",
    "population_return_max": "rollout/ep_rew_max",
    "episode_length_mean": "rollout/ep_len_mean",
    "center_return": "eval/mean_reward",
    "generation": "time/iterations",
    "env_steps": STEPS,
    "wall_time_s": "time/time_elapsed",
    **dict.fromkeys(("max_episode_steps", "episodes", "non_finite", "tied_returns"), "rollout"),
    **dict.fromkeys(("center_rank", "center_rank_fraction", "eval_env_steps", "score"), "eval"),
    "cpu_time_s": "time",
}
_OTHERS: Final = "train"
Ending: TypeAlias = Literal["done", "failed", "interrupted"]


@final
@dataclass(frozen=True)
class TrackedRun:
    """One trial, as a tracker sees it.

    Attributes:
        id: 16 hexadecimal digits, the same when the trial is resumed or extended.
        name: environment, algorithm, policy and seed as text.
        group: name of the grid's output folder.
        path: the trial's folder relative to the grid's, such as "CartPole-v1/openai_es/seed-0".
        config: the specification and the labels of environment, algorithm and policy, with dotted
            keys such as "budget.env_steps" and "labels.algorithm".
    """

    id: str
    name: str
    group: str
    path: str
    config: Mapping[str, Any]


def tagged(numbers: Mapping[str, float]) -> dict[str, float]:
    """The numbers of a row by names in the groups rollout, eval, time and train.

    >>> tagged({"env_steps": 2000, "center_return": 8.5, "sigma": 0.1, "train/loss": 0.5})
    {'time/total_timesteps': 2000, 'eval/mean_reward': 8.5, 'train/sigma': 0.1, 'train/loss': 0.5}
    """
    found = {}
    for name, number in numbers.items():
        tag = _TAGS.get(name, _OTHERS)
        grouped = tag if "/" in tag else f"{tag}/{name}"
        found[name if "/" in name else grouped] = number
    return found


class Tracker(ABC):
    """Base of trackers.

    The constructor is called before training; a ``UsageError`` there ends the command. The methods
    are called one at a time in a thread of the main process. A tracker that raises, hangs or falls
    behind is not called again, and training continues.

    ``folder`` is for files of the tracker and may not exist yet. ``view`` is the command or address
    that shows what was tracked; ``esbench run`` prints it.

    >>> class Prints(Tracker):
    ...     def start(self, run):
    ...         return -1
    ...
    ...     def log(self, run, rows):
    ...         print(run.name, rows[-1])
    ...
    ...     def end(self, run, outcome, files):
    ...         print(run.name, outcome)
    """

    view: str = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self, run: TrackedRun) -> int:
        """Begin or continue a run; returns the last ``global_step`` that it holds, or -1.

        Rows after that step are logged again when a trial is resumed.
        """

    @abstractmethod
    def log(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Store rows, whose steps increase; a last one holds the final ``score`` alone."""

    @abstractmethod
    def end(self, run: TrackedRun, outcome: Ending, files: Sequence[Path]) -> None:
        """Store figures and films (PNG, GIF or MP4), if the trial is done, and close the run.

        A run that failed or was interrupted may be started again.
        """


TRACKERS: Final[Registry[Tracker]] = Registry(
    "tracker", "esbench.integrations.trackers", "esbench.trackers"
)
register_tracker = TRACKERS.register


def tracker_class(name: str) -> type[Tracker]:
    """The class registered as ``name``, or a user's "package.file:Class"; UsageError if none."""
    if ":" not in name:
        return TRACKERS.get(name)
    found: type[Tracker] = import_object("tracker", name, Tracker)
    return found


def make_tracker(name: str, root: Path) -> Tracker:
    """The tracker ``name``, as ``tracker_class``, of a grid's folder.

    UsageError if there is none, or it cannot be created.
    """
    cls = tracker_class(name)
    try:
        return cls(root / safe_name(name))
    except UsageError:
        raise
    except USER_CODE_ERRORS as error:
        raise UsageError(f"tracker {name!r} cannot be created ({error_text(error)})") from error


def require_reachable(tracker: str, address: str) -> None:
    """Raises UsageError if nothing listens at an http or https address."""
    parts = urlsplit(address)
    try:
        port = parts.port or _PORTS[parts.scheme]
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except (KeyError, OSError, ValueError) as error:
        raise UsageError(
            f"tracker {tracker!r} cannot be reached at {address} ({error}); expected a running "
            "server"
        ) from error
