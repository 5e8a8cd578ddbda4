"""What others publish: their tables of scores beside the leaderboard, their settings as a grid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from esbench.app.display import Display
from esbench.app.options import Texts, listed, public
from esbench.app.plain_display import PlainDisplay
from esbench.core.errors import UsageError, unknown

if TYPE_CHECKING:
    from esbench.results.reported_scores import ReportedRow, ReportedTable


@public()
def import_scores(
    file: str | Path,
    *,
    layout: Literal["rl-zoo", "slm-lab", "csv"] | None = None,
    source: str | None = None,
    measure: str | None = None,
    versions: str = "",
    name: str | None = None,
    replace: bool = False,
    out: str | Path = "results/published",
    display: Display | None = None,
) -> ReportedTable:
    """Import a table of scores that others report; the leaderboard shows them as not verified.

    Args:
        file: a file with rl-zoo's or SLM-Lab's Markdown tables, or CSV with the columns
            environment, algorithm, seed, steps and score.
        layout: how the file is read (default: by its columns).
        source: its web address (default: the file's name).
        measure: what a score is, in words (default: what it is in such tables; of CSV, the mean
            over seeds of the score at the last step).
        versions: versions of the software behind the scores, in words (default: unknown).
        name: name of the new file (default: that of ``file``).
        replace: as ``baseline``.
        out: folder of the new file.
        display: tells what was imported and what was left out.

    Returns:
        The content of the new file.

    Raises:
        UsageError: the file is not such a table, with the number of the line, or the new file
            exists. Nothing is written.

    Examples:
        >>> esbench.import_scores("benchmark.md", name="rl-zoo").rows[0]  # doctest: +SKIP
    """
    from esbench.core.escape import without_passwords
    from esbench.core.files import read_text, safe_name
    from esbench.core.json_text import as_text
    from esbench.core.settings import parse
    from esbench.core.units import counted
    from esbench.publish.leaderboard.import_scores import MEASURES, read_scores
    from esbench.results.reported_scores import ReportedTable
    from esbench.store.outputs import write_bytes
    from esbench.store.provenance import now

    show, given = display or PlainDisplay(), Path(file)
    try:
        text = read_text(given)
    except FileNotFoundError:
        raise UsageError(f"FILE = {str(given)!r}: no such file; expected a table") from None
    if name is not None and (safe_name(name) != name or name.startswith(".")):
        raise UsageError(f"--name {name!r}: expected the name of a file, such as rl-zoo")
    path = Path(out) / f"{safe_name(name or given.stem)}.json"
    if path.exists() and not replace:
        raise UsageError(f"{path} exists; expected another --name, or --replace")
    found = read_scores(text, str(given), layout)
    values = {
        "source": without_passwords(source or safe_name(given.name)),
        "imported": now()[:10],
        "measure": MEASURES[found.layout] if measure is None else measure,
        "versions": versions,
        "rows": [row.model_dump() for row in found.rows],
    }
    table = parse(ReportedTable, values, "the table")
    write_bytes(path, as_text(table.model_dump(mode="json")).encode())
    show.say(f"{path}: {counted(len(table.rows), 'row')}, reported and not verified")
    if found.left_out:
        lines = ", ".join(map(str, found.left_out[:10])) + ", ..." * (len(found.left_out) > 10)
        show.warn(f"{counted(len(found.left_out), 'line')} without a score left out: {lines}")
    if found.unknown:
        names = ", ".join(found.unknown[:10]) + ", ..." * (len(found.unknown) > 10)
        show.warn(f"{counted(len(found.unknown), 'environment')} not known here: {names}")
    return table


def reported_of(leaderboard: str | Path, env: Texts, algorithm: Texts) -> list[ReportedRow]:
    """The reported scores beside a leaderboard, in the folder ``published`` next to it."""
    from esbench.publish.leaderboard.reported_rows import selected_reported
    from esbench.results.reported_scores import PUBLISHED, read_reported

    found = read_reported(Path(leaderboard).parent / PUBLISHED.name)
    return selected_reported(found, listed(env), listed(algorithm))


@public()
def import_settings(file: str | Path, *, env: str, algorithm: str | None = None) -> str:
    """Make a grid from a file of hyperparameters of rl-zoo3.

    Nothing in the file is executed. What a grid cannot express is named in its comments.

    Args:
        file: a YAML file such as hyperparams/ppo.yml.
        env: environment, whose entry is used.
        algorithm: agent (default: that of the file's name).

    Returns:
        The text of the grid, for a TOML file.

    Raises:
        UsageError: the file is not of this kind or has no entry for the environment, there is no
            such agent, or a package is missing.

    Examples:
        >>> grid = esbench.import_settings("ppo.yml", env="HalfCheetah-v4")  # doctest: +SKIP
    """
    from esbench.agents.agent import AGENTS, agent_settings
    from esbench.core.files import read_text
    from esbench.integrations.rl_zoo import OTHER_NAMES, read_zoo

    path = Path(file)
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise UsageError(f"FILE = {str(path)!r}: no such file; expected YAML") from None
    agent = algorithm or OTHER_NAMES.get(path.stem, path.stem)
    if agent not in AGENTS.names():
        hint = "" if algorithm else " (the name of the file; --algorithm chooses another one)"
        raise UsageError(f"{unknown('agent', agent, AGENTS.names())}{hint}")
    found = read_zoo(text, env, agent_settings(AGENTS.get(agent)), str(path))
    return found.grid(env, agent, path.name)
