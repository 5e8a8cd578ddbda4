"""Expands a grid into trial specifications: every setting is merged, then validated once.

The settings of a trial come, from weak to strong, from the algorithm's and the policy's defaults,
the environment's file, unless the grid has ``defaults``, the grid, and the grid's table for the
environment. The table ``policy`` of an algorithm is the strongest for its policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from esbench.algorithms.search_settings import NormalizationSettings
from esbench.core.errors import UsageError, suggestion
from esbench.core.settings import Table, parse, untupled
from esbench.core.toml_text import toml_line
from esbench.core.user_code import TRUSTED, names_in
from esbench.environments.backends.backend import check_backend
from esbench.grids.bases import displacing, policy_on, reserved_keys
from esbench.grids.environment_files import (
    Scores,
    frozen_scores,
    load_environment,
    merged,
    require_one_meaning,
)
from esbench.grids.grid_file import Grid, Scope
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
    is_agent,
    policy_spec,
    swept_label,
    trainer_names,
    trainer_settings,
)

Labels: TypeAlias = dict[str, str]

SCOPE: Final = tuple(Scope.model_fields)


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
    # A misspelled name is not that of an environment left out. All modules are imported before the
    # first trial, so that what a name means does not depend on their order.
    scoped = [name for scope in scopes.values() for name in scope.environments or ()]
    for name in dict.fromkeys([*grid.environments, *scoped]):
        load_environment(name)
        require_one_meaning(name)
    for name in grid.environments:
        chosen = {
            label: scope
            for label, scope in scopes.items()
            if scope.environments is None or name in scope.environments
        }
        yield from _EnvironmentOfGrid(grid, name, source).trials(chosen, start)


def _scope(table: Table, source: str, prefix: str) -> Scope:
    return parse(Scope, {key: table[key] for key in SCOPE if key in table}, source, prefix)


@final
class _EnvironmentOfGrid:
    """The settings of one environment's trials: its file, the grid, and its own table there."""

    def __init__(self, grid: Grid, name: str, source: str) -> None:
        self.grid, self.source = grid, source
        self.file = load_environment(name)
        self.own: Table = grid.environment.get(name, {})
        self.place = f"environment.{name}"

    def trials(self, scopes: dict[str, Scope], start: StartSpec | None) -> Iterator[LabeledSpec]:
        environment, scores = self._environment()
        budget = parse(BudgetSpec, self._section("budget"), self.source, "budget")
        evaluation = parse(EvaluationSpec, self._section("evaluation"), self.source, "evaluation")
        _require_consistent(evaluation, budget, self.source)
        own = {"seeds": self.own["seeds"]} if "seeds" in self.own else {}
        local = _scope(own, self.source, self.place).seeds
        for key, scope in scopes.items():
            for label, algorithm, inherited in self._algorithms(key):
                for policy_label, policy in self._policies(key, algorithm):
                    for named in filter(None, (algorithm, environment, policy)):  # a grid is code
                        TRUSTED.update(names_in(named.model_dump(mode="json")))
                    labels = {
                        "environment": self.file.id, "algorithm": label, "policy": policy_label
                    }  # fmt: skip
                    for seed in local or scope.seeds or self.grid.seeds:
                        spec = TrialSpec(
                            algorithm=algorithm,
                            environment=environment,
                            policy=policy,
                            budget=budget,
                            evaluation=evaluation,
                            seed=seed,
                            init_from=start,
                        )
                        yield LabeledSpec(spec, labels, inherited, scores)

    def _section(self, name: str) -> Table:
        of_file: Table = getattr(self.file, name)
        return merged(merged(of_file, getattr(self.grid, name)), self.own.get(name, {}))

    def _environment(self) -> tuple[EnvironmentSpec, Scores | None]:
        """The environment, and its frozen scores if they are not those of ``envs/``."""
        changes = {key: value for key, value in self.own.items() if key != "seeds"}
        if "id" in changes:
            raise UsageError(
                f"{self.source}: {self.place}.id = {changes['id']!r}: the name cannot be changed "
                "here; expected it in the list of environments"
            )
        file = load_environment(self.file.id, changes, self.source)
        for label in changes.get("algorithms", {}):
            if label not in self.grid.algorithms:
                raise UsageError(
                    f"{self.source}: {self.place}.algorithms.{label} is not an algorithm of this "
                    f"grid; {suggestion(label, self.grid.algorithms)}"
                )
        check_backend(file.backend)
        spec = file.spec()
        table = spec.model_dump(mode="json")
        scores = file.scores
        if not self.file.describes(table):  # those of the file are of another environment
            own = changes.get("scores", {})
            scores = parse(Scores, own, self.source, f"{self.place}.scores")
        return spec, None if scores == frozen_scores(table) else scores

    def _algorithms(self, key: str) -> Iterator[tuple[str, AlgorithmSpec, tuple[str, ...]]]:
        """The algorithm of a table, or those of its sweep, with labels and inherited settings."""
        settings = self.grid.algorithms[key]
        name, place = settings.get("algorithm", key), f"algorithms.{key}"
        if not isinstance(name, str) or (":" not in name and name not in trainer_names()):
            raise UsageError(
                f"{self.source}: unknown algorithm {name!r} "
                f"({place}{'.algorithm' * ('algorithm' in settings)}); "
                f"{suggestion(str(name), trainer_names())} A label of your own needs algorithm = "
                "'NAME' in its table; a class is 'package.file:Class'"
            )
        model = trainer_settings(name)
        reserved = reserved_keys(name)
        given = untupled(model, {k: value for k, value in settings.items() if k not in reserved})
        given = displacing(model, given, self.own.get("algorithms", {}).get(key, {}))
        below = {} if self.grid.defaults else self.file.algorithms.get(name, {})
        for chosen, swept in combinations(given, f"{self.source}: {place}"):
            values = displacing(model, below, chosen)
            try:
                typed = parse(model, values, self.source, place)
            except UsageError as error:
                raise UsageError(_with_lists(str(error), given, swept, place)) from None
            label = swept_label(key, typed.model_dump(mode="json"), swept)
            inherited = tuple(n for n in below if n in values and n not in given)
            yield label, AlgorithmSpec(name=name, settings=typed), inherited

    def _policies(
        self, key: str, algorithm: AlgorithmSpec
    ) -> Iterator[tuple[str, PolicySpec | None]]:
        """The policies of an algorithm, whose own table may change them; an agent has none here.

        Its own template is the label of the policy, unless the grid labels policies itself.
        """
        if is_agent(algorithm.name):
            yield DEFAULT_LABEL, None
            return
        of_algorithm = self.grid.algorithms[key].get("policy", {})
        of_environment = self.own.get("policy", {})
        place = f"algorithms.{key}.policy"
        if not isinstance(of_algorithm, dict):
            raise UsageError(
                f"{self.source}: {place} = {of_algorithm!r}: expected a table such as "
                '{template = "linear"}'
            )
        if len(self.grid.policies) > 1 and "template" in {**of_environment, **of_algorithm}:
            raise UsageError(
                f"{self.source}: policy.template of {self.place} or algorithms.{key} would replace "
                f"several policies ({', '.join(self.grid.policies)}); expected none"
            )
        own_label = str(of_algorithm.get("template", DEFAULT_LABEL))
        for label, table in (self.grid.policies or {own_label: self.grid.policy}).items():
            of_grid = f"policies.{label}" if self.grid.policies else "policy"
            values = policy_on(policy_on(self.file.policy, table), of_environment)
            values = policy_on(values, of_algorithm)
            policy = policy_spec(values, self.source, place if of_algorithm else of_grid)
            normalizing = _normalizing(policy, algorithm)
            given = {**table, **of_environment, **of_algorithm}
            if normalizing != policy and "normalize_observations" in given:
                _require_decided(algorithm, self.source)
            yield label, normalizing


def _with_lists(text: str, settings: Table, swept: Sequence[str], place: str) -> str:
    """An error of parsing one algorithm of a sweep; it says how one value is a list."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        for key in swept:
            if f" {place}.{key} = " in line and " a list" in line:
                one = toml_line(key, [settings[key]])
                lines[index] += (
                    "; a list is a sweep, one algorithm for each of its values: to give it as one "
                    f"value, write {one}"
                )
    return "\n".join(lines)


def _require_consistent(evaluation: EvaluationSpec, budget: BudgetSpec, source: str) -> None:
    """Raises UsageError for a validation after the budget, or a target that is not measured."""
    validation = evaluation.validation
    if validation is not None and validation.start >= budget.env_steps:
        raise UsageError(
            f"{source}: evaluation.validation.start = {validation.start}: expected less than "
            f"budget.env_steps = {budget.env_steps}"
        )
    if budget.target_return is not None and not evaluation.center:
        raise UsageError(
            f"{source}: budget.target_return = {budget.target_return:g} with evaluation.center = "
            "false: the unperturbed policy is not evaluated; expected evaluation.center = true"
        )


def with_settings(spec: TrialSpec, settings: Table, source: str) -> TrialSpec:
    """A trial with other values of some settings of its algorithm, such as those of a grid.

    UsageError, which ``source`` begins, if they do not fit together.
    """
    model = type(spec.algorithm.settings)
    below = spec.algorithm.settings.model_dump(mode="json", exclude_unset=True)
    typed = parse(model, displacing(model, below, settings), source)
    algorithm = spec.algorithm.model_copy(update={"settings": typed})
    policy = None if spec.policy is None else _normalizing(spec.policy, algorithm)
    return spec.model_copy(update={"algorithm": algorithm, "policy": policy})


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
        wanted = str(settings.normalizes_observations).lower()
        raise UsageError(
            f"{source}: policy.normalize_observations: {algorithm.name} with {name} = "
            f"{getattr(settings, name)!r} needs {wanted}; expected {wanted}, or another {name}"
        )
