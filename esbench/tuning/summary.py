"""What a study has found: the best settings, their scores and the cost of the search."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from esbench.core.settings import Table
from esbench.core.units import counted, format_number
from esbench.grids.expand import with_settings
from esbench.integrations.optuna_study import Configuration
from esbench.store.outputs import write_bytes
from esbench.store.provenance import provenance
from esbench.store.trial_folder import TrialFolder
from esbench.tuning.space import nested, toml_key, values_of
from esbench.tuning.study import Study


@final
@dataclass(frozen=True)
class Summary:
    """The results of a study.

    Attributes:
        study: the study.
        configurations: all, by number; the first one has the default settings.
        best: the complete configuration with the highest objective, the first one of equal ones;
            None if all failed.
        env_steps: environment steps of training of all trials.
        importances: the share of each setting in being among the best, empty if unknown.
        files: the best settings and the figures, once they are written.
    """

    study: Study
    configurations: tuple[Configuration, ...]
    best: Configuration | None
    env_steps: int
    importances: dict[str, float]
    files: tuple[Path, ...] = ()

    @property
    def pruned(self) -> int:
        """The number of configurations that were stopped early."""
        return sum(c.state == "pruned" for c in self.configurations)

    @property
    def failed(self) -> int:
        """The number of configurations with a failed seed or refused settings."""
        return sum(c.value == -math.inf for c in self.configurations)

    @property
    def problems(self) -> Counter[str]:
        """Why settings were refused, with the number of such configurations."""
        refused = [c for c in self.configurations if c.problem]
        return Counter(c.problem.removeprefix(f"{self.study.name_of(c)}: ") for c in refused)

    @property
    def default_score(self) -> float:
        """The objective of the default settings."""
        value = self.configurations[0].value if self.configurations else None
        return math.nan if value is None else value

    @property
    def best_score(self) -> float:
        """The objective of the best configuration."""
        return math.nan if self.best is None or self.best.value is None else self.best.value

    @property
    def searched(self) -> list[str]:
        """The settings whose values differ: not those whose condition never held."""
        tried = {name for c in self.configurations for name in c.settings}
        return [name for name in self.study.space if name in tried]

    def values(self, configuration: Configuration) -> Table:
        """All settings of a configuration by dotted name, the defaults included."""
        where = f"configuration {configuration.number}"
        spec = with_settings(self.study.spec, nested(configuration.settings), where)
        return values_of(spec.algorithm.settings)


def summarize(study: Study) -> Summary:
    """The results of a study so far."""
    configurations = tuple(study.store.configurations)
    complete = [c for c in configurations if c.value is not None and c.value > -math.inf]
    best = max(complete, key=lambda c: (c.value, -c.number), default=None)
    folders = (
        study.trial_folder(c.number, seed) for c in configurations for seed in study.search.seeds
    )
    spent = [
        trial.columns("env_steps")["env_steps"]
        for trial in map(TrialFolder, folders)
        if trial.has_begun
    ]
    steps = sum(int(own[-1]) for own in spent if own.size)
    return Summary(study, configurations, best, steps, study.store.importances())


def write_best(summary: Summary) -> list[Path]:
    """Write the best settings as a table of an environment file or of a grid.

    Returns the file; none if all configurations have failed.
    """
    if summary.best is None:
        return []
    path = summary.study.folder / "best.toml"
    write_bytes(path, as_toml(summary).encode())
    return [path]


def as_toml(summary: Summary) -> str:
    """The best settings as TOML, with the provenance of the search in comments."""
    study, best = summary.study, summary.best
    assert best is not None
    spec = with_settings(study.spec, nested(best.settings), "best settings")
    settings = spec.algorithm.settings.model_dump(mode="json", exclude_unset=True)
    label, seeds = study.key, study.search.seeds
    about = provenance()
    text = f"""\
# The best settings of {study.name}: configuration {best.number}, found with
{_comment(about["command"])}
# Score: {format_number(summary.best_score)}; of the default settings: \
{format_number(summary.default_score)} (interquartile mean of the held-out
# scores of seeds {", ".join(map(str, seeds))}). The best of several noisy scores is optimistic:
# measure it again with other seeds.
# Search: {counted(len(summary.configurations), "configuration")} ({summary.pruned} pruned, \
{summary.failed} failed) of {study.spec.budget.env_steps:,} steps per seed;
# {summary.env_steps:,} steps in all. Sampler: {study.search.sampler}, seed {study.search.seed}. \
Optuna {version("optuna")}, esbench {about["versions"]["esbench"]}.
# Space:
"""
    lines = [
        *(_comment(f"{name}: {setting.text}") for name, setting in study.space.items()),
        "",
        f"[algorithms.{toml_key(label)}]",
    ]
    if label != spec.algorithm.name:
        lines.append(f"algorithm = {_value(spec.algorithm.name)}")
    lines += [f"{key} = {_value(value)}" for key, value in settings.items() if value is not None]
    return text + "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """Lines of a comment in TOML."""
    return "\n".join(f"#   {line}" for line in text.splitlines())


def _value(value: Any) -> str:
    """A value as TOML; a number, text or list is the same as in JSON."""
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    return json.dumps(value, ensure_ascii=False)
