"""Find the commit that broke training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from esbench.app.display import Display
from esbench.app.options import public
from esbench.app.plain_display import PlainDisplay
from esbench.core.errors import EsbenchError, UsageError

if TYPE_CHECKING:
    from esbench.publish.gate.bisect_commits import CommitTest, CommitVerdict, Range

BISECTIONS: Final = Path("results/bisect")


@final
@dataclass(frozen=True)
class Bisection:
    """What a bisection has found.

    Attributes:
        plan: its cost, in sentences.
        commits: the whole names of the commits that can be the first bad one: one, or several if
            some could not be tested; none if it was only planned.
        folder: what was trained, with a file of the gate for each commit in its folder "checks".
    """

    plan: list[str]
    commits: list[str]
    folder: Path


@final
@dataclass
class TimeLeft:
    """How long the tests take that are ``left``, by the ``longest`` one so far [s]."""

    left: int
    longest: float = 0.0

    def after(self, verdict: CommitVerdict, seconds: float) -> str:
        """What to say after a test: empty if the last estimate holds.

        A commit that is skipped says nothing of the others, because it may fail within seconds,
        and another one is tested in its place. A test that resumes is short, so one that takes more
        than twice as long as those before gives a new estimate.
        """
        from esbench.core.units import format_duration

        if verdict == "skip":
            return ""
        self.left -= 1
        if math.isnan(seconds) or seconds <= 2 * self.longest:
            return ""
        self.longest = seconds
        if self.left < 1:
            return ""
        total = format_duration(self.left * seconds)
        return f"if the other tests take as long: about {total} for {self.left} more"


@public()
def bisect(
    good: str,
    bad: str = "HEAD",
    *,
    grid: str | Path | None = None,
    command: str | None = None,
    baseline: str | Path | None = None,
    install: str | None = None,
    until_conclusive: bool = False,
    max_seeds: int | None = None,
    alpha: float = 0.01,
    margin: float | None = None,
    workers: int | None = None,
    only_plan: bool = False,
    out: str | Path = BISECTIONS,
    display: Display | None = None,
) -> Bisection:
    """Find the first commit at which a grid trains worse, by git bisect and the gate's verdict.

    Commits are checked out in a temporary worktree, never in your checkout. Python finds the code
    there first, in its folder and in "src". What a commit has trained is kept, so the same command
    trains nothing twice, and resumes after an interruption.

    Args:
        good: the commit at which training was good.
        bad: the commit at which it is worse.
        grid: the name of a grid, or a grid file, to train at each commit; it is the same file at
            all commits, also where the repository has another version of it.
        command: instead of a grid, a command of the shell, such as "pytest tests/test_scores.py";
            exit code 0 is good, 1 is bad, and a commit with any other one is skipped. So is one on
            which the plugin of pytest has found no regression but an inconclusive or missing score.
        baseline: a file of 'esbench baseline' to check against (default: made at the good commit).
        install: a command of the shell that installs each commit before it is tested, such as
            "pip install .".
        until_conclusive: train more seeds where the verdict on a commit is inconclusive, which is
            skipped otherwise.
        max_seeds: as ``check``.
        alpha: largest probability that the gate calls an unchanged commit bad, for each commit.
        margin: as ``check``.
        workers: as ``run``.
        only_plan: print the cost and stop.
        out: folder of what is trained, with a folder for each question.
        display: shows the plan and the verdicts.

    Raises:
        UsageError: a commit or the grid is not known, the good commit is not good, or the bad one
            is not bad.

    Examples:
        >>> esbench.bisect("v1.2", grid="gate.toml").commits  # doctest: +SKIP
    """
    from esbench.core.git import git
    from esbench.core.units import format_duration
    from esbench.publish.gate import bisect_commits
    from esbench.publish.gate.bisect_commits import SHORT, GridTest, find_range, read_verdicts
    from esbench.store.outputs import only_holder

    show = display or PlainDisplay()
    _require_one_test(grid, command, install, baseline, until_conclusive, max_seeds)
    chosen = find_range(Path(), good, bad)
    options = [f"--alpha={alpha}", *([] if margin is None else [f"--margin={margin}"])]
    if until_conclusive:
        options += ["--until-conclusive", "--trust"]
        options += [] if max_seeds is None else [f"--max-seeds={max_seeds}"]
    test, folder = _test(chosen, grid, command, baseline, install, options, workers, Path(out))
    file = folder / "verdicts.json"
    verdicts = read_verdicts(file)
    if isinstance(test, GridTest) and not test.baseline.exists():
        verdicts.clear()  # they were of another baseline
    lines = _plan(chosen, grid, workers, len(verdicts), show)
    show.say(*lines)
    if only_plan:
        return Bisection(lines, [], folder)

    time_left = TimeLeft(chosen.steps + 2)

    def tell(commit: str, verdict: CommitVerdict, seconds: float) -> None:
        subject = git(chosen.top, "show", "-s", "--format=%s", commit)
        time = "known" if math.isnan(seconds) else format_duration(seconds)
        why = f" ({bisect_commits.why_skipped(folder, commit)})" if verdict == "skip" else ""
        show.say(f"{verdict:<4}  {commit[:SHORT]}  {time:>7}  {subject}{why}")
        if news := time_left.after(verdict, seconds):
            show.say(news)

    with only_holder(folder / ".lock", f"another bisection uses {folder}", waits=False):
        found = bisect_commits.bisect(chosen, test, verdicts, file, tell)
    names = [git(chosen.top, "show", "-s", "--format=%H  %ad  %an  %s", name) for name in found]
    if len(found) == 1:
        show.say("first bad commit:", *names)
    else:
        show.say(
            f"the first bad commit is one of {len(found)}; those between were skipped:", *names
        )
    show.say(f"results: {folder}")
    return Bisection(lines, found, folder)


def _require_one_test(
    grid: object,
    command: object,
    install: object,
    baseline: object,
    until_conclusive: bool,
    max_seeds: object,
) -> None:
    """Raises UsageError if options do not belong together."""
    if (grid is None) == (command is None):
        raise UsageError("expected --grid or --command, one of them")
    needs_grid = {
        "--install": install,
        "--baseline": baseline,
        "--until-conclusive": until_conclusive,
    }
    for option, value in needs_grid.items():
        if value and grid is None:
            raise UsageError(f"{option} with --command: expected --grid")
    if max_seeds is not None and not until_conclusive:
        raise UsageError(f"--max-seeds {max_seeds}: expected together with --until-conclusive")


def _test(
    chosen: Range,
    grid: str | Path | None,
    command: str | None,
    baseline: str | Path | None,
    install: str | None,
    options: Sequence[str],
    workers: int | None,
    out: Path,
) -> tuple[CommitTest, Path]:
    """The test of a commit, and the folder of its results."""
    from esbench.core.files import read_text
    from esbench.grids.grid_file import read_grid
    from esbench.publish.gate.bisect_commits import GridTest, folder_of, judge_by_command
    from esbench.results.baselines import read_baseline

    if command is not None:
        folder = folder_of(out, chosen.good, command).absolute()
        return partial(judge_by_command, command, folder), folder
    read_grid(str(grid))
    file = Path(str(grid))
    question = [chosen.good, read_text(file) if file.is_file() else str(grid), install or ""]
    if baseline is not None:
        read_baseline(Path(baseline))
        question.append(read_text(Path(baseline)))
    folder = folder_of(out, *question, *options).absolute()
    frozen = folder / "baseline.json" if baseline is None else Path(baseline).absolute()
    name = str(file.absolute()) if file.is_file() else str(grid)
    many = [] if workers is None else [f"--workers={workers}"]
    return GridTest(name, chosen.good, frozen, folder, options, many, install or ""), folder


def _plan(
    chosen: Range, grid: str | Path | None, workers: int | None, known: int, show: Display
) -> list[str]:
    """The cost in sentences: commits, steps, trials and time."""
    from esbench.app.training import plan
    from esbench.core.units import counted, format_duration, format_steps
    from esbench.core.user_code import FOLDERS

    most = chosen.steps + 2
    commits, between = counted(chosen.commits, "commit"), counted(chosen.steps, "commit")
    ends = f"of both ends and {between} between, more if some are skipped"
    lines = [f"{commits} after the good one: at most {most} tests, {ends}"]
    if known:
        lines.append(f"{counted(known, 'commit')} already tested")
    if grid is None:
        return lines
    folders = [str(chosen.top / chosen.inside / each) for each in ("src", "")]
    try:
        FOLDERS.extend(folders)
        cost = plan(grid, workers=workers, out=BISECTIONS / "plan", display=show)
    except EsbenchError as error:  # the library may have to be built
        return [*lines, f"time unknown before the first test: {error}"]
    finally:
        for each in folders:
            FOLDERS.remove(each)
    trials = sum(each.trials for each in cost.costs)
    steps = sum(each.env_steps for each in cost.costs)
    time, total = format_duration(cost.seconds), format_duration(most * cost.seconds)
    lines.append(
        f"a test trains {counted(trials, 'trial')}, {format_steps(steps)} steps, in about {time}: "
        f"about {total} of training in total"
    )
    lines.append("not included: installation, updates, scoring, and the start of processes")
    return lines
