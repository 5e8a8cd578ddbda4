"""What a study has found: the best settings, the cost of the search, and a figure of the scores."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from esbench.core.search_space import SettingSpace
from esbench.core.settings import Table
from esbench.core.toml_text import toml_key, toml_value
from esbench.core.units import counted, format_number
from esbench.grids.expand import with_settings
from esbench.grids.trial_spec import value_text
from esbench.integrations.optuna_study import Configuration
from esbench.publish.figures.drawing import Drawing, Size, legend_lines
from esbench.publish.figures.style import BLUE, GRAY, VERMILLION
from esbench.store.outputs import write_bytes
from esbench.store.provenance import provenance
from esbench.store.trial_folder import TrialFolder
from esbench.tuning.space import nested, values_of
from esbench.tuning.study import Study, objective

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMNS: Final = 3
HEIGHT: Final = 2.1  # of a row [inches]
SHOWN: Final = 4  # times the distance from the best score to the median: the extent of the axis
FEW: Final = 10  # scores, which are all shown
MARGIN: Final = 1.2  # factor beside the ends of a logarithmic axis
EDGE: Final = 0.05  # of the range, beside the ends of a linear axis
MOST_TICKS: Final = 5
WIDEST: Final = 18  # characters of the choices below an axis; more of them are turned
LOOKS: Final[dict[str, Any]] = {
    "pruned, at its rung": {"marker": "o", "s": 22, "facecolors": "none", "edgecolors": GRAY},
    "complete": {"marker": "o", "s": 22, "color": BLUE},
    "failed or below the axis": {"marker": "x", "s": 30, "color": VERMILLION},
    "default": {"marker": "D", "s": 60, "facecolors": "white", "edgecolors": "black"},
    "best": {"marker": "*", "s": 130, "color": VERMILLION, "edgecolors": "white"},
}


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
    """Write the best settings, as a table of an environment file or of a grid, with their origin.

    Returns the file; none if all configurations have failed.
    """
    study, best, about = summary.study, summary.best, provenance()
    if best is None:
        return []
    spec = with_settings(study.spec, nested(best.settings), "best settings")
    settings = spec.algorithm.settings.model_dump(mode="json", exclude_unset=True)
    text = f"""\
# The best settings of {study.name}: configuration {best.number}, found with
{_comment(about["command"])}
# Score: {format_number(summary.best_score)}; of the default settings: \
{format_number(summary.default_score)} (interquartile mean of the held-out
# scores of seeds {", ".join(map(str, study.search.seeds))}). The best of several noisy scores is \
optimistic:
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
        f"[algorithms.{toml_key(study.key)}]",
    ]
    if study.key != spec.algorithm.name:
        lines.append(f"algorithm = {toml_value(spec.algorithm.name)}")
    lines += [
        f"{key} = {toml_value(value)}" for key, value in settings.items() if value is not None
    ]
    path = study.folder / "best.toml"
    write_bytes(path, (text + "\n".join(lines) + "\n").encode())
    return [path]


def _comment(text: str) -> str:
    """Lines of a comment in TOML."""
    return "\n".join(f"#   {line}" for line in text.splitlines())


def draw_tuning(summary: Summary) -> list[Path]:
    """Write the figure to the study's folder, one panel per setting with the same axis of scores.

    Returns its files; none if all configurations have failed.
    """
    if summary.best is None or not summary.searched:
        return []
    height = HEIGHT * math.ceil(len(summary.searched) / COLUMNS)
    drawing = Drawing(height, list(LOOKS), partial(_draw, summary))
    return drawing.write(summary.study.folder, "scores")


def _draw(summary: Summary, figure: FigureBase, size: Size) -> dict[str, Any]:
    names = summary.searched
    rows, columns = math.ceil(len(names) / COLUMNS), min(COLUMNS, len(names))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    lowest = _lowest_shown(summary)
    for axes, name in zip(panels, names, strict=False):
        _draw_panel(axes, summary, name, lowest)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("score (IQM over seeds)")
    figure.suptitle(f"{summary.study.name}: score of each configuration")
    return legend_lines(panels[0])


def _lowest_shown(summary: Summary) -> float:
    """The lower end of the axis: configurations that diverged would hide all differences."""
    scores = [value for c in summary.configurations if math.isfinite(value := _last_score(c))]
    if len(scores) < FEW:
        return min(scores)
    extent = summary.best_score - float(np.median(scores))
    limit = summary.best_score - SHOWN * extent
    return min((score for score in scores if score >= limit), default=summary.best_score)


def _last_score(configuration: Configuration) -> float:
    """The objective at the last rung that a configuration reached."""
    return objective(configuration.rungs[-1]) if configuration.rungs else -math.inf


def _draw_panel(axes: Axes, summary: Summary, name: str, lowest: float) -> None:
    space = summary.study.space[name]
    places: dict[str, list[tuple[float, float]]] = {label: [] for label in LOOKS}
    for configuration in summary.configurations:
        chosen = configuration.settings if configuration.number else summary.study.defaults
        if name in chosen and (x := _place(space, chosen[name])) is not None:
            place = x, max(_last_score(configuration), lowest)
            for label in _labels(summary, configuration, lowest):
                places[label].append(place)
    for order, (label, look) in enumerate(LOOKS.items()):
        points = np.array(places[label]).reshape(-1, 2)
        axes.scatter(*points.T, label=label, zorder=3 + order, clip_on=False, **look)
    if space.choices:
        texts = list(map(value_text, space.choices))
        angle = 45 if sum(map(len, texts)) > WIDEST else 0
        axes.set_xticks(range(len(texts)), texts, rotation=angle)
        axes.set_xlim(-0.5, len(space.choices) - 0.5)
    else:
        _scale_x(axes, space)
    axes.set_xlabel(name)
    axes.grid(visible=True)


def _scale_x(axes: Axes, space: SettingSpace) -> None:
    """An axis over a whole range, with few ticks as plain numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    assert space.low is not None
    assert space.high is not None
    if not space.log:
        margin = EDGE * (space.high - space.low)
        axes.set_xlim(space.low - margin, space.high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS - 1))
        return
    axes.set_xscale("log")
    axes.set_xlim(space.low / MARGIN, space.high * MARGIN)
    decades = math.log10(space.high / space.low)
    between = (3.0,) if decades < MOST_TICKS / 2 - 1 else ()
    step = 10.0 ** math.ceil(decades / (MOST_TICKS - 1))
    axes.xaxis.set_major_locator(LogLocator(step, subs=(1.0, *between), numticks=MOST_TICKS))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _labels(summary: Summary, configuration: Configuration, lowest: float) -> list[str]:
    """How a configuration is shown; the default settings may be the best."""
    special = ["default"] if not configuration.number else []
    if configuration == summary.best:
        return [*special, "best"]
    if _last_score(configuration) < lowest:
        return ["failed or below the axis"]
    state = "complete" if configuration.state == "complete" else "pruned, at its rung"
    return special or [state]


def _place(space: SettingSpace, value: Any) -> float | None:
    """Where a value lies on the axis of its setting; None for one that is no place on it."""
    if space.choices:
        return float(space.choices.index(value)) if value in space.choices else None
    return float(value) if isinstance(value, int | float) and (value > 0 or not space.log) else None
