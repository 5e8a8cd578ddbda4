"""The trials of a grid: every setting resolved, checked and given its folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.algorithms.settings import AlgorithmSettings
from esbench.environments.backends.select import check_backend
from esbench.errors import UsageError, suggestion
from esbench.grids.environment_files import (
    EnvironmentFile,
    environment_table,
    load_environment,
    merged,
)
from esbench.grids.grid_file import (
    Grid,
    apply_override,
    apply_overrides,
    parse_grid,
    parse_seeds,
    read_grid,
    require_distinct,
)
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
from esbench.store.trial_files import DamagedTrialError
from esbench.store.trial_folder import Status, TrialFolder


@final
@dataclass(frozen=True)
class Trial:
    """One cell of a grid.

    Attributes:
        spec: what is trained; labels: what the grid calls it; folder: where it is kept.
        extend: whether a folder of the same trial with a smaller budget goes on to this one.
        keep: how many checkpoints to keep, evenly spread over its budget, the last one included.
        inherited: settings of the algorithm that are the environment file's, not the grid's.
    """

    spec: TrialSpec
    labels: dict[str, str]
    folder: TrialFolder
    extend: bool = False
    keep: int = 1
    inherited: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """Where the trial stands; one that is to be extended is half done."""
        status = self.folder.status
        return "partial" if status == "done" and self._is_to_go_on else status

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.folder.is_done and not self._is_to_go_on

    @property
    def _is_to_go_on(self) -> bool:
        if not self.extend:
            return False
        with contextlib.suppress(DamagedTrialError):  # fails when its turn comes, alone
            return self.folder.is_smaller(self.spec)
        return False

    def check(self) -> None:
        """Refuse a folder that holds another specification.

        Raises:
            UsageError: names every setting that differs.
        """
        self.folder.check(self.spec, self.extend)

    @property
    def name(self) -> str:
        """The cell in words."""
        policy = self.labels["policy"]
        middle = self.labels["algorithm"] + ("" if policy == DEFAULT_LABEL else f" {policy}")
        return f"{self.labels['environment']} {middle} seed {self.spec.seed}"


def open_grid(
    name_or_file: str | None,
    *,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
    out: Path | None = None,
    extend: bool = False,
) -> tuple[Path, list[Trial]]:
    """Return a grid's output folder and its trials, checked against what the folder holds.

    Args:
        name_or_file: a named grid or a TOML file; None makes one of the other arguments.
        environments: take the place of the grid's own.
        algorithms: take the place of the grid's own; settings of those it names are kept.
        seeds: such as "0-9"; take the place of the grid's own.
        env_steps: shorthand for ``budget.env_steps=N``.
        overrides: ``key.sub=value``, applied in order.
        out: the output folder; ``results/runs/NAME`` by default.
        extend: trials that were made with a smaller budget are to go on.

    Raises:
        UsageError: anything is wrong; nothing has been written.
    """
    if name_or_file is None and not (environments and algorithms):
        raise UsageError(
            "nothing to run: name a grid (esbench list grids), or give --env and --algorithm"
        )
    table: Table
    if name_or_file is None:
        name = re.sub(r"[^\w.+-]", "_", "+".join([*environments, *algorithms]))
        table, source = {"name": name}, "command line"
    else:
        table, source = read_grid(name_or_file)
    # What is no environment is told before what it would be part of.
    for environment in environments:
        environment_table(environment)
    if environments:
        table = {**table, "environments": list(environments)}
        kept = {k: v for k, v in table.get("environment", {}).items() if k in environments}
        table = {**table, "environment": kept}
    if algorithms:
        own = table.get("algorithms")
        settings: Table = own if isinstance(own, dict) else {}
        _require_distinct_option("--algorithm", algorithms)
        table = {**table, "algorithms": {name: settings.get(name, {}) for name in algorithms}}
    if seeds is not None:
        table = {**table, "seeds": parse_seeds(seeds)}
    if env_steps is not None:
        table = apply_override(table, f"budget.env_steps={env_steps}")
    table = apply_overrides(table, overrides)
    grid = parse_grid(table, source)
    root = Path("results/runs") / grid.name if out is None else out
    _require_folder(root)
    trials = [replace(trial, extend=extend) for trial in expand(grid, root, source)]
    check_folders(trials)
    return root, trials


def expand(grid: Grid, out: Path, source: str) -> list[Trial]:
    """Return every trial of a grid, environments first, then algorithms, policies and seeds.

    Raises:
        UsageError: any name, key or value is wrong; nothing has been written.
    """
    trials = [
        trial
        for name in grid.environments
        for trial in _Layers(grid, load_environment(name), source).trials(out)
    ]
    owners: dict[Path, Trial] = {}
    for trial in trials:
        other = owners.setdefault(trial.folder.path, trial)
        if other is not trial:
            raise UsageError(
                f"{source}: {other.labels} and {trial.labels} would share the folder "
                f"{trial.folder.path}; expected labels that differ in letters, digits or . + -"
            )
    return trials


def check_folders(trials: Sequence[Trial]) -> None:
    """Refuse a grid whose output folder holds trials of other specifications, or newer formats."""
    for trial in trials:
        if trial.folder.status != "missing":
            with contextlib.suppress(DamagedTrialError):  # fails when its turn comes, alone
                trial.check()


def policy_spec(table: Table, source: str, prefix: str = "policy") -> PolicySpec:
    """Return a policy with every default filled in.

    ``template = "package.file:Class"`` is a person's own module, and the keys that are not settings
    of every policy are arguments of its constructor.

    Raises:
        UsageError: an unknown template, key or value.
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
    return PolicySpec(template=template, settings=typed.model_dump(mode="json"))


@final
@dataclass(frozen=True)
class _Layers:
    """The settings of one environment's trials, put on top of each other from weak to strong."""

    grid: Grid
    file: EnvironmentFile
    source: str

    def trials(self, out: Path) -> Iterator[Trial]:
        """Yield the environment's trials."""
        environment = self._environment()
        budget = parse(BudgetSpec, self._section("budget"), self.source, "budget")
        evaluation = parse(EvaluationSpec, self._section("evaluation"), self.source, "evaluation")
        for label, settings in self.grid.algorithms.items():
            algorithm = self._algorithm(label, settings)
            for policy_label, policy in self._policies():
                for seed in self.grid.seeds:
                    spec = TrialSpec(
                        algorithm=algorithm,
                        environment=environment,
                        policy=_normalizing(policy, algorithm),
                        budget=budget,
                        evaluation=evaluation,
                        seed=seed,
                    )
                    trial = trial_at(spec, self.file.id, label, policy_label, out)
                    yield replace(trial, inherited=self._inherited(label, algorithm))

    def _own(self, section: str) -> Table:
        """Return what the grid says of a section for this environment alone."""
        own: Table = self.grid.environment.get(self.file.id, {}).get(section, {})
        return own

    def _section(self, name: str) -> Table:
        below: Table = getattr(self.file, name)
        return merged(merged(below, getattr(self.grid, name)), self._own(name))

    def _environment(self) -> EnvironmentSpec:
        overrides = self.grid.environment.get(self.file.id, {})
        if "id" in overrides:
            raise UsageError(
                f"{self.source}: environment.{self.file.id}.id = {overrides['id']!r}: the name "
                "cannot be changed here; expected it among the environments"
            )
        file = load_environment(self.file.id, overrides, self.source)
        for label in overrides.get("algorithms", {}):
            if label not in self.grid.algorithms:
                raise UsageError(
                    f"{self.source}: environment.{self.file.id}.algorithms.{label} is not among "
                    f"the grid's algorithms; {suggestion(label, self.grid.algorithms)}"
                )
        check_backend(file.backend)
        return file.spec()

    def _algorithm(self, label: str, settings: Table) -> AlgorithmSpec:
        """Return the algorithm with every default filled in."""
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
        return AlgorithmSpec(name=name, settings=typed.model_dump(mode="json"))

    def _inherited(self, label: str, algorithm: AlgorithmSpec) -> tuple[str, ...]:
        """Return the settings of the environment's file that nothing in the grid displaces."""
        below = self.file.algorithms.get(algorithm.name, {})
        own = {**self.grid.algorithms[label], **self._own("algorithms").get(label, {})}
        left = _displacing(ALGORITHMS.get(algorithm.name).Settings, below, own)
        return tuple(name for name in below if name in left and name not in own)

    def _policies(self) -> Iterator[tuple[str, PolicySpec]]:
        tables = self.grid.policies or {DEFAULT_LABEL: self.grid.policy}
        for label, table in tables.items():
            prefix = f"policies.{label}" if self.grid.policies else "policy"
            values = _policy_on(_policy_on(self.file.policy, table), self._own("policy"))
            yield label, policy_spec(values, self.source, prefix)


def _normalizing(policy: PolicySpec, algorithm: AlgorithmSpec) -> PolicySpec:
    """Return the policy with observations normalised if the algorithm's own definition says so."""
    cls: type[Algorithm[Any]] = ALGORITHMS.get(algorithm.name)
    wanted = parse(cls.Settings, algorithm.settings, "algorithm").normalizes_observations
    if wanted is None:
        return policy
    return policy.model_copy(
        update={"settings": {**policy.settings, "normalize_observations": wanted}}
    )


def _displacing(model: type[AlgorithmSettings], below: Table, above: Table) -> Table:
    """Return ``above`` merged on ``below``, without what an alternative setting above displaces."""
    gone = {
        name
        for group in model.alternatives
        if any(key in above for key in group)
        for name in group
        if name not in above
    }
    return merged({key: value for key, value in below.items() if key not in gone}, above)


def _policy_on(below: Table, above: Table) -> Table:
    """Return ``above`` if it names a template of its own, else its settings on top of ``below``."""
    return above if "template" in above else merged(below, above)


def trial_at(spec: TrialSpec, environment: str, algorithm: str, policy: str, out: Path) -> Trial:
    """Return a trial with these labels, in the folder below ``out`` that they and the seed name."""
    labels = {"environment": environment, "algorithm": algorithm, "policy": policy}
    parts = [environment, algorithm, *([] if policy == DEFAULT_LABEL else [policy])]
    path = out.joinpath(*(re.sub(r"[^\w.+-]", "_", part) for part in parts), f"seed-{spec.seed}")
    return Trial(spec, labels, TrialFolder(path))


def _require_folder(root: Path) -> None:
    """Refuse an output folder that is a file, or cannot be."""
    try:
        is_file = root.exists() and not root.is_dir()
    except OSError as error:  # a name too long, say
        raise UsageError(f"{root}: {error.strerror}; expected an output folder") from None
    if is_file:
        raise UsageError(f"{root} is a file; expected an output folder, or none yet")


def _require_distinct_option(option: str, values: Sequence[str]) -> None:
    try:
        require_distinct(values)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
