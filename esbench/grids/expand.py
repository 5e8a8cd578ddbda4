"""Expands a grid into trial specifications: every setting is merged, then validated once.

The settings of a trial come, from weak to strong, from the algorithm's and the policy's defaults,
the environment's file, the grid, and the grid's table for the environment. The table ``policy`` of
an algorithm is the strongest for its policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from esbench.algorithms.search_settings import NormalizationSettings
from esbench.core.errors import UsageError, suggestion
from esbench.core.settings import Table, TrainerSettings, fields_at, parse
from esbench.environments.backends.backend import check_backend
from esbench.grids.environment_files import (
    DEFAULT_ENV_STEPS,
    EnvironmentFile,
    Scores,
    environment_table,
    frozen_scores,
    load_environment,
    merged,
)
from esbench.grids.grid_file import Grid, Scope
from esbench.grids.trainers import is_agent, trainer_names, trainer_settings
from esbench.grids.trial_spec import (
    DEFAULT_LABEL,
    AlgorithmSpec,
    BudgetSpec,
    EnvironmentSpec,
    EvaluationSpec,
    PolicySpec,
    StartSpec,
    TrialSpec,
    combinations,
    swept_label,
)
from esbench.policies.policy import POLICIES

Labels: TypeAlias = dict[str, str]

SCOPE: Final = tuple(Scope.model_fields)
# Keys of an algorithm's table that are no settings; ``policy`` may be a setting of an agent.
RESERVED: Final = ("algorithm", "policy", *SCOPE)


@final
@dataclass(frozen=True)
class LabeledSpec:
    """One trial of a grid, with the grid's names of its environment, algorithm and policy."""

    spec: TrialSpec
    labels: Labels
    inherited: tuple[str, ...]  # algorithm settings from the environment's file
    scores: Scores | None  # to record, because ``envs/`` does not have them


def expand(grid: Grid, source: str, start: StartSpec | None = None) -> list[LabeledSpec]:
    """The trials by environment, algorithm, policy and seed; UsageError if there is none.

    Arguments and other errors are those of ``expanded``.
    """
    if found := list(expanded(grid, source, start)):
        return found
    raise UsageError(
        f"{source}: nothing to run: expected an algorithm with "
        f"{' or '.join(grid.environments)} among its environments"
    )


def expanded(grid: Grid, source: str, start: StartSpec | None = None) -> Iterator[LabeledSpec]:
    """Yield the trials one after another; UsageError for wrong input.

    ``start`` is the checkpoint that ``grid.init_from`` stands for.
    """
    scopes = {
        label: _scope(settings, source, f"algorithms.{label}")
        for label, settings in grid.algorithms.items()
    }
    for named in {name for scope in scopes.values() for name in scope.environments or ()}:
        load_environment(named)  # a misspelled name is not that of an environment left out
    for name in grid.environments:
        yield from _Layers(grid, _checked_file(name), source, start, scopes).trials()


def _checked_file(name: str) -> EnvironmentFile:
    """The file of an environment; a table that is wrong without a grid is the file's mistake."""
    file, (_, origin) = load_environment(name), environment_table(name)
    _policy(file.policy, origin, "policy")
    parse(BudgetSpec, {"env_steps": DEFAULT_ENV_STEPS, **file.budget}, origin, "budget")
    parse(EvaluationSpec, file.evaluation, origin, "evaluation")
    return file


def _scope(table: Table, source: str, prefix: str) -> Scope:
    return parse(Scope, {key: table[key] for key in SCOPE if key in table}, source, prefix)


def _require_candidate(evaluation: EvaluationSpec, budget: BudgetSpec, source: str) -> None:
    """Raises UsageError if training ends before the first candidate of the validation."""
    validation = evaluation.validation
    if validation is not None and validation.start >= budget.env_steps:
        raise UsageError(
            f"{source}: evaluation.validation.start = {validation.start}: expected less than "
            f"budget.env_steps = {budget.env_steps}"
        )


def _require_center(evaluation: EvaluationSpec, budget: BudgetSpec, source: str) -> None:
    """Raises UsageError if training is to stop at a return that is not measured."""
    if budget.target_return is not None and not evaluation.center:
        raise UsageError(
            f"{source}: budget.target_return = {budget.target_return:g} with evaluation.center = "
            "false: the unperturbed policy is not evaluated; expected evaluation.center = true"
        )


@final
@dataclass(frozen=True)
class _Layers:
    """The layers of settings of one environment's trials."""

    grid: Grid
    file: EnvironmentFile
    source: str
    start: StartSpec | None
    scopes: Mapping[str, Scope]

    def trials(self) -> Iterator[LabeledSpec]:
        environment, scores = self._environment()
        budget = parse(BudgetSpec, self._section("budget"), self.source, "budget")
        evaluation = parse(EvaluationSpec, self._section("evaluation"), self.source, "evaluation")
        _require_candidate(evaluation, budget, self.source)
        _require_center(evaluation, budget, self.source)
        own = {key: self._overrides[key] for key in ("seeds",) if key in self._overrides}
        local = _scope(own, self.source, f"environment.{self.file.id}").seeds
        algorithms = (
            (key, *found)
            for key, scope in self.scopes.items()
            if scope.environments is None or self.file.id in scope.environments
            for found in self._algorithms(key)
        )
        for key, label, algorithm in algorithms:
            inherited = self._inherited(key, algorithm)
            for policy_label, policy in self._policies(key, algorithm):
                labels = {"environment": self.file.id, "algorithm": label, "policy": policy_label}
                for seed in local or self.scopes[key].seeds or self.grid.seeds:
                    spec = TrialSpec(
                        algorithm=algorithm,
                        environment=environment,
                        policy=policy,
                        budget=budget,
                        evaluation=evaluation,
                        seed=seed,
                        init_from=self.start,
                    )
                    yield LabeledSpec(spec, labels, inherited, scores)

    @property
    def _overrides(self) -> Table:
        return self.grid.environment.get(self.file.id, {})

    def _own(self, section: str) -> Table:
        own: Table = self._overrides.get(section, {})
        return own

    def _section(self, name: str) -> Table:
        below: Table = getattr(self.file, name)
        return merged(merged(below, getattr(self.grid, name)), self._own(name))

    def _environment(self) -> tuple[EnvironmentSpec, Scores | None]:
        """The environment, and its frozen scores if they are not those of ``envs/``."""
        overrides = {key: value for key, value in self._overrides.items() if key != "seeds"}
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
        spec = file.spec()
        table = spec.model_dump(mode="json")
        if self.file.describes(table):
            scores = file.scores
        else:  # those of the file are of another environment
            own = overrides.get("scores", {})
            scores = parse(Scores, own, self.source, f"environment.{self.file.id}.scores")
        return spec, None if scores == frozen_scores(table) else scores

    def _algorithms(self, label: str) -> Iterator[tuple[str, AlgorithmSpec]]:
        """The algorithm of a table, or those of its sweep, with their labels."""
        settings = self.grid.algorithms[label]
        name = settings.get("algorithm", label)
        if not isinstance(name, str) or (":" not in name and name not in trainer_names()):
            key = f"algorithms.{label}" + (".algorithm" if "algorithm" in settings else "")
            near = suggestion(str(name), trainer_names())
            if settings and "algorithm" not in settings:
                near = f"a label of your own needs algorithm = 'NAME' in its table; {near}"
            elif "." in str(name):
                near = f"a class is named as 'package.file:Class'; {near}"
            raise UsageError(f"{self.source}: unknown algorithm {name!r} ({key}); {near}")
        model = trainer_settings(name)
        reserved = {*RESERVED} - ({"policy"} if is_agent(name) else set())
        own = {key: value for key, value in settings.items() if key not in reserved}
        own = _displacing(model, own, self._own("algorithms").get(label, {}))
        for chosen, swept in combinations(own, f"{self.source}: algorithms.{label}"):
            values = _displacing(model, self.file.algorithms.get(name, {}), chosen)
            typed = parse(model, values, self.source, f"algorithms.{label}")
            algorithm = AlgorithmSpec(name=name, settings=typed)
            yield swept_label(label, typed.model_dump(mode="json"), swept), algorithm

    def _inherited(self, label: str, algorithm: AlgorithmSpec) -> tuple[str, ...]:
        below = self.file.algorithms.get(algorithm.name, {})
        own = {**self.grid.algorithms[label], **self._own("algorithms").get(label, {})}
        left = _displacing(type(algorithm.settings), below, own)
        return tuple(name for name in below if name in left and name not in own)

    def _policies(
        self, label: str, algorithm: AlgorithmSpec
    ) -> Iterator[tuple[str, PolicySpec | None]]:
        """The policies of an algorithm, whose own table may change them; an agent has none here.

        Its own template is the label of the policy, unless the grid labels policies itself.
        """
        if is_agent(algorithm.name):
            yield DEFAULT_LABEL, None
            return
        own = self.grid.algorithms[label].get("policy", {})
        above = f"algorithms.{label}.policy"
        if not isinstance(own, dict):
            raise UsageError(
                f"{self.source}: {above} = {own!r}: expected a table such as "
                '{template = "linear"}'
            )
        if len(self.grid.policies) > 1 and "template" in {**self._own("policy"), **own}:
            place = above if "template" in own else f"environment.{self.file.id}.policy"
            raise UsageError(
                f"{self.source}: {place}.template with several policies "
                f"({', '.join(self.grid.policies)}), which it would replace; expected none"
            )
        tables = self.grid.policies or {str(own.get("template", DEFAULT_LABEL)): self.grid.policy}
        for policy_label, table in tables.items():
            prefix = f"policies.{policy_label}" if self.grid.policies else "policy"
            values = _policy_on(_policy_on(self.file.policy, table), self._own("policy"))
            policy = _policy(_policy_on(values, own), self.source, above if own else prefix)
            normalizing = _normalizing(policy, algorithm)
            given = {**table, **self._own("policy"), **own}
            if normalizing != policy and "normalize_observations" in given:
                _require_decided(algorithm, self.source)
            yield policy_label, normalizing


def with_settings(spec: TrialSpec, settings: Table, source: str) -> TrialSpec:
    """A trial with other values of some settings of its algorithm, such as those of a grid.

    UsageError, which ``source`` begins, if they do not fit together.
    """
    model = type(spec.algorithm.settings)
    below = spec.algorithm.settings.model_dump(mode="json", exclude_unset=True)
    typed = parse(model, _displacing(model, below, settings), source)
    algorithm = spec.algorithm.model_copy(update={"settings": typed})
    policy = None if spec.policy is None else _normalizing(spec.policy, algorithm)
    return spec.model_copy(update={"algorithm": algorithm, "policy": policy})


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
    """The policy, with observation normalization as the algorithm's definition requires it."""
    if not isinstance(algorithm.settings, NormalizationSettings):
        return policy
    wanted = {"normalize_observations": algorithm.settings.normalizes_observations}
    settings = policy.settings.model_copy(update=wanted)
    return policy.model_copy(update={"settings": settings})


def _require_decided(algorithm: AlgorithmSpec, source: str) -> None:
    """Raises UsageError if a default of an algorithm contradicts the policy of a grid."""
    settings = algorithm.settings
    assert isinstance(settings, NormalizationSettings)
    name = settings.normalization_setting
    if name not in settings.model_fields_set:
        wanted = settings.normalizes_observations
        raise UsageError(
            f"{source}: policy.normalize_observations = {str(not wanted).lower()}: "
            f"{algorithm.name} with {name} = {getattr(settings, name)!r} needs "
            f"{str(wanted).lower()}; expected {str(wanted).lower()}, or another {name}"
        )


def _displacing(model: type[TrainerSettings], below: Table, above: Table) -> Table:
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
