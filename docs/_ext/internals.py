"""What generated pages are made of: the only module of the site that imports the internals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.cli.app import app as command_line
from esbench.core.errors import UsageError
from esbench.core.escape import markdown, markdown_code, one_line
from esbench.core.files import DISTINCT_LABELS, safe_name
from esbench.core.population import Population
from esbench.core.registry import Registry
from esbench.core.settings import parse
from esbench.core.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_p,
    format_share,
    format_steps,
    p_is,
)
from esbench.engine.setup import Setup
from esbench.environments.backends.backend import BACKENDS, Backend
from esbench.environments.behaviors.behavior import BEHAVIORS, Behavior
from esbench.environments.make_environment import make_environment
from esbench.environments.simulator_log import silenced
from esbench.environments.specifications import module_of
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy
from esbench.experiment.trainer import Trainer
from esbench.grids.environment_files import (
    EnvironmentFile,
    environment_names,
    environment_versions,
    load_environment,
)
from esbench.grids.grid_file import Grid
from esbench.grids.trial_spec import BudgetSpec, EnvironmentSpec, EvaluationSpec, PolicySpec
from esbench.integrations.trackers.tracker import TrackedRun
from esbench.policies.policy import POLICIES, Policy, PolicyBatch, TorchPolicy
from esbench.publish.catalog import SettingRow, setting_rows
from esbench.publish.figures.drawing import Output
from esbench.publish.leaderboard.films import Film, films_of, read_films
from esbench.publish.leaderboard.suites import (
    Suite,
    SuiteCell,
    read_suite,
    suite_drawings,
    suite_names,
)
from esbench.publish.leaderboard.table import (
    BEST,
    COLUMNS,
    LeaderboardRow,
    leaderboard_rows,
    one_episode_notes,
    policy_words,
)
from esbench.publish.tables.render_table import INTERVAL
from esbench.results.cell import Cell
from esbench.results.entries import Entry, read_leaderboard
from esbench.results.statistics.estimates import Overall, iqm, overall
from esbench.results.statistics.significance import Standing, p_different, standings

COMMANDS: dict[str, Any] = typer.main.get_command(command_line).commands  # type: ignore[attr-defined]

# What an option takes, in the words of typer's help and in those of the page.
_KINDS = {"str": "TEXT", "list[str]": "TEXT", "int": "N", "float": "X", "path": "PATH"}

# The tables of a grid file, and the model that each is parsed by.
GRID_TABLES = {
    "": Grid,
    "environment": EnvironmentSpec,
    "budget": BudgetSpec,
    "evaluation": EvaluationSpec,
}

# What the Python page documents besides the names of the package itself.
TRAINING = (Trainer, HeldOutScore, TrainedPolicy, TrainedAgent)
BASES = (Algorithm, Population, Policy, PolicyBatch, TorchPolicy, Backend, Behavior, TrackedRun)


def own_names(registry: Registry[Any]) -> list[str]:
    """The names whose classes come with esbench, integrations included."""
    return [n for n in registry.names() if registry.get(n).__module__.startswith("esbench.")]


def value_word(command: Any, option: Any) -> str:
    """What an option takes, such as ``N`` or ``text|markdown``."""
    if option.metavar:
        return str(option.metavar)
    kind = option.display_type(typer.Context(command)).strip("<>")
    return _KINDS.get(kind, kind)


@dataclass(frozen=True)
class PlayedEnvironment:
    """An environment as its own file has it played."""

    observations: str
    actions: str
    max_episode_steps: int | None
    num_params: int
    backend: str


def played(file: EnvironmentFile) -> PlayedEnvironment:
    """The spaces of an environment, and the size of the policy of its file."""
    with silenced():
        environment = make_environment(file.id, file.kwargs)
    observations, actions = environment.observation_space, environment.action_space
    limit = environment.spec.max_episode_steps if environment.spec else None
    environment.close()
    template = str(file.policy["template"])
    given = {key: value for key, value in file.policy.items() if key != "template"}
    settings = parse(POLICIES.get(template).Settings, given, file.id)
    setup = Setup(file.spec(), PolicySpec(template=template, settings=settings))
    return PlayedEnvironment(
        observations=str(observations),
        actions=str(actions),
        max_episode_steps=limit,
        num_params=setup.make_policy(observations, actions).num_params,
        backend=setup.backend_name,
    )
