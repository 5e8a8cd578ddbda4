"""Read results: tables, comparisons, figures, reports and diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from esbench.app.options import Statistic, Texts, Which, listed, public
from esbench.core.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from esbench.publish.diagnosis import Diagnosis
    from esbench.publish.figures.environment_charts import Panel
    from esbench.publish.history import CellHistory
    from esbench.publish.leaderboard.table import LeaderboardRow
    from esbench.results.reported_scores import ReportedRow

LEADERBOARD: Final = Path("results/leaderboard")


@public()
def table(
    folder: str | Path,
    *,
    wide: bool = False,
    by: str | None = None,
    which: Which = "last",
    statistic: Statistic = "mean",
) -> pd.DataFrame:
    """The scores: interquartile mean over seeds with its interval, cost and reference.

    Args:
        folder: an output folder of 'esbench run'.
        wide: one row per algorithm, one column per environment.
        by: sort by this setting of the algorithms and give it a column.
        which: with best, also the score of each run's best policy, in a column 'Selected'; first
            run: esbench eval --all --which best DIR
        statistic: the score of a seed: the mean return of its held-out episodes, their tail (the
            mean of the worst 10 %), or the area under its learning curve, divided by the budget.

    Returns:
        One row per environment and algorithm, in full precision. ``score`` is the IQM over seeds,
        ``low`` and ``high`` its interval, ``tail`` the mean over seeds of the mean of the worst
        10 % of held-out episodes, ``standing`` "best", "tied" or empty, ``selected`` the score of
        the best policies. ``attrs["notes"]`` are the footnotes of the printed table. With ``wide``,
        the best algorithm comes first.

    Raises:
        UsageError: there is no trial, a trial is not readable or has no tail, or ``by`` has fewer
            than two values.

    Examples:
        >>> sorted(esbench.table("out")["algorithm"])
        ['openai_es', 'snes']
    """
    from esbench.publish.tables.score_table import (
        require_one_layout,
        score_frame,
        score_table,
        wide_frame,
    )

    require_one_layout(wide, by, which, statistic)
    rows = score_table(Path(folder), by, which == "best", statistic)
    return wide_frame(rows) if wide else score_frame(rows, by)


@public()
def compare(
    first: str | Path,
    second: str | Path,
    *,
    folder: str | Path | None = None,
    statistic: Statistic = "mean",
) -> pd.DataFrame:
    """Compare two sides: difference and its interval, probability of improvement, test.

    Args:
        first: an output folder, or an algorithm.
        second: the other output folder, or algorithm.
        folder: A and B are algorithms in this folder.
        statistic: as ``table``.

    Returns:
        One row per environment that both have: interquartile means and tails of both sides; the
        difference A - B and the probability of improvement P(A > B), each with its 95 % interval;
        the Holm-corrected p-value and Hedges' effect size. ``attrs["outcome"]`` is the result in a
        sentence.

    Raises:
        UsageError: a folder or an algorithm does not exist, a trial is not readable or has no tail,
            or the sides share no environment.

    Examples:
        >>> pairs = esbench.compare("snes", "openai_es", folder="out")
    """
    from esbench.publish.tables.comparison_table import compare_sides, comparison_frame

    root = None if folder is None else Path(folder)
    return comparison_frame(compare_sides(str(first), str(second), root, statistic))


@public()
def efficiency(folder: str | Path, *, target: Texts | float = (), window: int = 5) -> pd.DataFrame:
    """The cost of training until it reaches a score: steps, episodes and CPU time.

    Args:
        folder: as ``table``.
        target: target score (default: the reference score of the environment), or
            ENVIRONMENT=SCORE.
        window: generations in the mean return that is compared to the target.

    Returns:
        One row per environment and algorithm, the lowest cost first.

    Raises:
        UsageError: there is no trial, one is not readable, or a target is no number.

    Examples:
        >>> costs = esbench.efficiency("out", target="CartPole-v1=30")
    """
    import pandas as pd

    from esbench.publish.tables.efficiency_table import COLUMNS, efficiency_table, parse_targets
    from esbench.publish.tables.render_table import records

    targets = [str(target)] if isinstance(target, Real) else listed(target)
    rows = efficiency_table(Path(folder), parse_targets(targets), window)
    return pd.DataFrame(records(COLUMNS, rows))


@public()
def plot(
    folder: str | Path,
    *,
    algorithms: Texts = (),
    size: str | tuple[float, float] | None = None,
    panels: Texts = (),
    figures: Texts = (),
) -> Figure:
    """Draw learning curves, ranks, targets reached, score profiles and the scores of sweeps.

    Args:
        folder: as ``table``.
        algorithms: algorithms to draw, such as openai_es,cma_es.
        size: size of each figure in inches; if it is higher than wide, panels are stacked.
        panels: panels of the learning curves, such as steps,rank (default: steps,time,rank).
        figures: figures to draw, by the names of their files, such as CartPole-v1,ecdf.

    Returns:
        All figures below each other in one. It displays itself in a notebook, and pyplot neither
        shows nor keeps it. Save it with ``savefig``.

    Raises:
        UsageError: no trial has two generations yet, an algorithm has no trial, there is no such
            figure, or the size is too small.

    Examples:
        >>> esbench.plot("out").savefig("curves.pdf")
    """
    from esbench.publish.figures.write_figures import combined_figure

    return combined_figure(Path(folder), *drawn(algorithms, size, panels, figures))


def drawn(
    algorithms: Texts, size: str | tuple[float, float] | None, panels: Texts, figures: Texts
) -> tuple[list[str], tuple[float, float] | None, Sequence[Panel], list[str]]:
    """The algorithms, the size, the panels and the figures that the arguments of ``plot`` mean."""
    from esbench.publish.figures.drawing import parse_size
    from esbench.publish.figures.environment_charts import PANELS
    from esbench.publish.figures.write_figures import parse_panels

    if size is not None:
        size = parse_size(size if isinstance(size, str) else "x".join(map(str, size)))
    chosen = ",".join(listed(panels))
    return _names(algorithms), size, parse_panels(chosen) if panels else PANELS, _names(figures)


def _names(texts: Texts) -> list[str]:
    return [name.strip() for text in listed(texts) for name in text.split(",")]


@public()
def diagnose(path: str | Path) -> list[Diagnosis]:
    """Check the health of training from the diagnostics of its updates, with advice.

    Args:
        path: a trial's folder, or a folder of trials.

    Returns:
        The findings about each trial, the worst trial first.

    Raises:
        UsageError: there is no trial, or one cannot be read.

    Examples:
        >>> levels = [trial.level for trial in esbench.diagnose("out")]
    """
    from esbench.publish.diagnosis import diagnose as found

    return found(Path(path))


@public()
def report(folder: str | Path, *, out: str | Path | None = None, title: str | None = None) -> Path:
    """Write one HTML file with scores, learning curves, diagnostics, settings and versions.

    Args:
        folder: as ``table``.
        out: output file (default: DIR/report.html).
        title: title (default: the folder's name).

    Returns:
        The path of the file.

    Raises:
        UsageError: there is no trial, one is not readable, or the file cannot be written.

    Examples:
        >>> page = esbench.report("out", out="report.html")
    """
    from esbench.publish.html.report import write_report

    file = None if out is None else Path(out)
    return write_report(Path(folder), file, title)


@final
@dataclass(frozen=True)
class History:
    """The past checks of each cell, and the files that show them: figures, or one page."""

    cells: list[CellHistory]
    figures: list[Path]


@public()
def history(
    folders: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    html: str | Path | None = None,
    repository: str | None = None,
) -> History:
    """Show scores, speeds and digests of past checks by commit, and mark where they changed.

    Args:
        folders: folders with files of 'esbench check --json'.
        out: folder for the figures (default: DIR/figures, or none with ``html``).
        html: also write one HTML page with all cells, changes and commits to this file.
        repository: with ``html``, web address of the repository, for links to its commits (default:
            the origin of the checkout that the first folder is in, if it is on GitHub, GitLab,
            Bitbucket, Codeberg, Gitea or Forgejo).

    Raises:
        UsageError: no file is found, one is not readable, or an output cannot be written.

    Examples:
        >>> esbench.history(["checks"], html="history.html").cells  # doctest: +SKIP
    """
    from esbench.core.git import commit_address
    from esbench.publish.figures.history_figure import draw_history
    from esbench.publish.history import history as past
    from esbench.publish.html.history_page import history_page
    from esbench.publish.html.report import SUFFIXES, write_page
    from esbench.store.outputs import require_suffix

    if repository is not None and html is None:
        raise UsageError(f"--repository {repository}: expected together with --html")
    if html is not None:
        require_suffix(Path(html), *SUFFIXES)
    places = [Path(folder) for folder in folders]
    address = commit_address(places[0], repository) if html is not None and places else ""
    found = past(places)
    files = []
    if html is None or out is not None:
        files = draw_history(found, places[0] / "figures" if out is None else Path(out))
    if html is not None:
        files.append(write_page(Path(html), history_page(found, address)))
    return History(found, files)


@public()
def leaderboard(
    folder: str | Path = LEADERBOARD,
    *,
    env: Texts = (),
    algorithm: Texts = (),
    best: bool = False,
    reported: bool = False,
) -> pd.DataFrame:
    """The leaderboard, by environment and with the best score first.

    Args:
        folder: folder of the leaderboard.
        env: only these environments.
        algorithm: only these algorithms or labels.
        best: only the best row of each environment.
        reported: also the scores of others in the folder "published" beside that of the
            leaderboard, in any version of an environment. They are in no statistic.

    Returns:
        One row per environment and algorithm. With ``reported``, those of others are at the end,
        and the column ``verified`` is False for them.

    Raises:
        UsageError: the folder holds no leaderboard, or a name is not in it.

    Examples:
        >>> esbench.leaderboard(env="Hopper-v5")  # doctest: +SKIP
    """
    import pandas as pd

    from esbench.app.importing import reported_of
    from esbench.publish.leaderboard.reported_rows import with_records
    from esbench.publish.leaderboard.table import COLUMNS, best_rows
    from esbench.publish.tables.render_table import records

    others = reported_of(folder, env, algorithm) if reported else []
    rows = ranked(folder, env, algorithm, others)
    own = records(COLUMNS, best_rows(rows) if best else rows)
    if reported:
        own = with_records(own, others)
    return pd.DataFrame(own)


@public()
def policies_of(env: str, *, leaderboard: str | Path | None = None) -> pd.DataFrame:
    """The rows of an environment whose policies can be loaded, and why others cannot.

    Args:
        env: an environment of the leaderboard.
        leaderboard: its folder (default: that of the current folder, of the checkout of esbench or
            of its package).

    Returns:
        One row per row of the leaderboard, those with policies first: ``name``, as ``load_policy``
        takes it, ``score``, ``steps``, ``policy``, ``parameters`` and ``policies``.

    Raises:
        UsageError: there is no leaderboard or no such environment, or a file is damaged.

    Examples:
        >>> esbench.policies_of("CartPole-v1").name[0]  # doctest: +SKIP
        'CartPole-v1/cem'
    """
    import pandas as pd

    from esbench.publish.leaderboard.table import POLICY_COLUMNS, zoo
    from esbench.publish.tables.render_table import records

    folder = None if leaderboard is None else Path(leaderboard)
    return pd.DataFrame(records(POLICY_COLUMNS, zoo(env, folder)))


def ranked(
    folder: str | Path, env: Texts, algorithm: Texts, others: Sequence[ReportedRow] = ()
) -> list[LeaderboardRow]:
    """The rows of a leaderboard that are asked for; none if only ``others`` have the names."""
    from esbench.environments.registration import without_alias
    from esbench.publish.leaderboard.table import leaderboard_rows
    from esbench.results.entries import read_leaderboard, selected

    entries = read_leaderboard(Path(folder))
    environments = {entry.cell.environment for entry in entries}
    labels = {name for entry in entries for name in (entry.cell.algorithm, entry.algorithm)}
    theirs = {row.reported.environment for row in others}
    their_labels = {row.reported.algorithm.lower() for row in others}
    envs = [
        name
        for name in listed(env)
        if name not in theirs or without_alias(name, {})[0] in environments
    ]
    algorithms = [
        name for name in listed(algorithm) if name in labels or name.lower() not in their_labels
    ]
    if (listed(env) and not envs) or (listed(algorithm) and not algorithms):
        return []  # all names are those of others
    chosen = set(map(id, selected(entries, envs, algorithms)))
    return [row for row in leaderboard_rows(entries) if id(row.entry) in chosen]
