"""Expands a grid into trial specifications: every setting is merged, then validated once.

The settings of a trial come, from weak to strong, from the algorithm's and the policy's defaults,
the environment's file, the grid, and the grid's table for the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, final

from esbench.algorithms.base import ALGORITHMS
from esbench.algorithms.settings import AlgorithmSettings, NormalizationSettings
from esbench.environments.backends.select import check_backend
from esbench.errors import UsageError, suggestion
from esbench.grids.environment_files import EnvironmentFile, load_environment, merged
from esbench.grids.grid_file import Grid
from esbench.grids.trial_spec import (
    DEFAULT_LABEL,
    AlgorithmSpec,
    BudgetSpec,
    EnvironmentSpec,
    EvaluationSpec,
    PolicySpec,
    TrialSpec,
)
from esbench.policies.base import POLICIES
from esbench.settings import Table, fields_at, parse

Labels: TypeAlias = dict[str, str]


@final
@dataclass(frozen=True)
class LabelledSpec:
    """One trial of a grid.

    Attributes:
        spec: what is trained.
        labels: the grid's names of its environment, algorithm and policy.
        inherited: algorithm settings that come from the environment's file.
    """

    spec: TrialSpec
    labels: Labels
    inherited: tuple[str, ...]


def expand(grid: Grid, source: str) -> list[LabelledSpec]:
    """The trials of a grid, ordered by environment, then algorithm, policy and seed.

    Raises:
        UsageError: a name, key or value is wrong.
    """
    return [
        trial
        for name in grid.environments
        for trial in _Layers(grid, load_environment(name), source).trials()
    ]


def labels_of(environment: str, algorithm: str, policy: str) -> Labels:
    """The labels of a trial as ``trial.json`` stores them."""
    return {"environment": environment, "algorithm": algorithm, "policy": policy}


@final
@dataclass(frozen=True)
class _Layers:
    """The layers of settings of one environment's trials."""

    grid: Grid
    file: EnvironmentFile
    source: str

    def trials(self) -> Iterator[LabelledSpec]:
        environment = self._environment()
        budget = parse(BudgetSpec, self._section("budget"), self.source, "budget")
        evaluation = parse(EvaluationSpec, self._section("evaluation"), self.source, "evaluation")
        for label, settings in self.grid.algorithms.items():
            algorithm = self._algorithm(label, settings)
            inherited = self._inherited(label, algorithm)
            for policy_label, policy in self._policies():
                labels = labels_of(self.file.id, label, policy_label)
                for seed in self.grid.seeds:
                    spec = TrialSpec(
                        algorithm=algorithm,
                        environment=environment,
                        policy=_normalizing(policy, algorithm),
                        budget=budget,
                        evaluation=evaluation,
                        seed=seed,
                    )
                    yield LabelledSpec(spec, labels, inherited)

    def _own(self, section: str) -> Table:
        """The grid's table of a section for this environment only."""
        own: Table = self.grid.environment.get(self.file.id, {}).get(section, {})
        return own

    def _section(self, name: str) -> Table:
        below: Table = getattr(self.file, name)
        return merged(merged(below, getattr(self.grid, name)), self._own(name))

    def _environment(self) -> EnvironmentSpec:
        overrides = self.grid.environment.get(self.file.id, {})
        place = f"{self.source}: environment.{self.file.id}"
        if "id" in overrides:
            raise UsageError(
                f"{place}.id = {overrides['id']!r}: the name cannot be changed here; "
                "expected it in the list of environments"
            )
        file = load_environment(self.file.id, overrides, self.source)
        for label in overrides.get("algorithms", {}):
            if label not in self.grid.algorithms:
                near = suggestion(label, self.grid.algorithms)
                raise UsageError(
                    f"{place}.algorithms.{label} is not an algorithm of this grid; {near}"
                )
        check_backend(file.backend)
        return file.spec()

    def _algorithm(self, label: str, settings: Table) -> AlgorithmSpec:
        name = settings.get("algorithm", label)
        if not isinstance(name, str) or name not in ALGORITHMS.names():
            key = f"algorithms.{label}" + (".algorithm" if "algorithm" in settings else "")
            near = suggestion(str(name), ALGORITHMS.names())
            raise UsageError(f"{self.source}: unknown algorithm {name!r} ({key}); {near}")
        model = ALGORITHMS.get(name).Settings
        own = {key: value for key, value in settings.items() if key != "algorithm"}
        values = _displacing(model, self.file.algorithms.get(name, {}), own)
        values = _displacing(model, values, self._own("algorithms").get(label, {}))
        typed = parse(model, values, self.source, f"algorithms.{label}")
        return AlgorithmSpec(name=name, settings=typed)

    def _inherited(self, label: str, algorithm: AlgorithmSpec) -> tuple[str, ...]:
        """The settings of the environment's file that the grid does not replace."""
        below = self.file.algorithms.get(algorithm.name, {})
        own = {**self.grid.algorithms[label], **self._own("algorithms").get(label, {})}
        left = _displacing(type(algorithm.settings), below, own)
        return tuple(name for name in below if name in left and name not in own)

    def _policies(self) -> Iterator[tuple[str, PolicySpec]]:
        tables = self.grid.policies or {DEFAULT_LABEL: self.grid.policy}
        for label, table in tables.items():
            prefix = f"policies.{label}" if self.grid.policies else "policy"
            values = _policy_on(_policy_on(self.file.policy, table), self._own("policy"))
            yield label, _policy(values, self.source, prefix)


def _policy(table: Table, source: str, prefix: str) -> PolicySpec:
    """A policy of a grid.

    ``template = "package.file:Class"`` names a module of the user's own. Keys that are not settings
    of every policy are arguments of its constructor.
    """
    values = dict(table)
    template = values.pop("template", "mlp")
    if isinstance(template, str) and ":" in template:
        known = fields_at(POLICIES.get("module").Settings, [])
        own = {key: values.pop(key) for key in list(values) if key not in known}
        values = {"factory": template, **values}
        values["arguments"] = {**values.get("arguments", {}), **own}
        template = "module"
    if not isinstance(template, str) or template not in POLICIES.names():
        near = suggestion(str(template), POLICIES.names())
        raise UsageError(
            f"{source}: unknown policy template {template!r} ({prefix}.template); {near}"
        )
    typed = parse(POLICIES.get(template).Settings, values, source, prefix)
    return PolicySpec(template=template, settings=typed)


def _normalizing(policy: PolicySpec, algorithm: AlgorithmSpec) -> PolicySpec:
    """The policy, with observation normalisation as the algorithm's definition requires it."""
    if not isinstance(algorithm.settings, NormalizationSettings):
        return policy
    wanted = {"normalize_observations": algorithm.settings.normalizes_observations}
    settings = policy.settings.model_copy(update=wanted)
    return policy.model_copy(update={"settings": settings})


def _displacing(model: type[AlgorithmSettings], below: Table, above: Table) -> Table:
    """``above`` merged on ``below``, without alternatives of the settings that ``above`` has."""
    gone = {
        name
        for group in model.alternatives
        if any(key in above for key in group)
        for name in group
        if name not in above
    }
    return merged({key: value for key, value in below.items() if key not in gone}, above)


def _policy_on(below: Table, above: Table) -> Table:
    """``above`` if it names a template, else its settings merged on ``below``."""
    return above if "template" in above else merged(below, above)
