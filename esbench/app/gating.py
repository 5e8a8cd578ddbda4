"""Compare results with earlier ones: baselines, checks, verification and the leaderboard."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from esbench.app.display import Display
from esbench.app.options import Statistic, listed, public
from esbench.app.plain_display import PlainDisplay
from esbench.app.reading import LEADERBOARD
from esbench.app.training import train
from esbench.core.errors import UsageError, require_integer
from esbench.core.files import nearest_path

if TYPE_CHECKING:
    from esbench.experiment.trials import Trial
    from esbench.publish.gate.check import CheckReport
    from esbench.publish.leaderboard.submit import SubmitAction
    from esbench.publish.reproduce import RecordedCell
    from esbench.publish.verification import Verification
    from esbench.results.baselines import Baseline
    from esbench.store.generation_record import GenerationRecord
    from esbench.store.merge import MergeAction

MAX_SEEDS: Final = 32
TRIAL: Final = f"a trial's folder, a folder of trials, or a file such as those in '{LEADERBOARD}'"


@public()
def baseline(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    replace: bool = False,
    statistic: Statistic = "mean",
    power: float | None = None,
    margin: float | None = None,
    trust: bool = False,
) -> Baseline:
    """Save scores, digests, settings and versions to a file that later runs are checked against.

    Args:
        folder: as ``table``.
        out: output file.
        replace: replace an existing file.
        statistic: as ``table``.
        power: share of checks of unchanged code to end 'no worse' in all cells (default: 0.8); the
            margin of every cell is chosen for it.
        margin: smallest relevant drop in every cell, as a share of the score range, instead.
        trust: as ``run``.

    Returns:
        The content of the file; without ``out``, it is not written.

    Raises:
        UsageError: a trial is not done or not readable, an environment has no frozen scores, or the
            file exists.

    Examples:
        >>> frozen = esbench.baseline("out", out="baseline.json", replace=True)
    """
    from esbench.publish.gate.choose_margin import with_margins
    from esbench.results.baselines import freeze, require_new, write_baseline
    from esbench.results.statistics.judgment import POWER, require_margin
    from esbench.store.own_code import read_again
    from esbench.store.provenance import command

    read_again()
    if out is None and replace:
        raise UsageError("--replace: expected --out, the file to replace")
    if power is not None and margin is not None:
        raise UsageError("--power with --margin: expected one of them")
    if power is not None and not 0 < power < 1:
        raise UsageError(f"--power {power}: expected a share above 0 and below 1, as 0.8")
    if margin is not None:
        require_margin(margin)
    if out is not None:
        _require_output("--out", Path(out))
        require_new(Path(out), replace)
    frozen = freeze(Path(folder), command(), statistic, trust)
    frozen = with_margins(frozen, power or POWER, margin)
    if out is not None:
        write_baseline(Path(out), frozen, replace)
    return frozen


@public()
def check(
    folder: str | Path,
    *,
    baseline: str | Path,
    statistic: Statistic | None = None,
    alpha: float = 0.01,
    margin: float | None = None,
    exact: bool = False,
    allow_inconclusive: bool = False,
    until_conclusive: bool = False,
    max_seeds: int | None = None,
    workers: int | None = None,
    trust: bool = False,
    markdown: str | Path | None = None,
    junit: str | Path | None = None,
    json: str | Path | None = None,
    badge: str | Path | None = None,
    display: Display | None = None,
) -> CheckReport:
    """Check scores and digests against a baseline.

    Args:
        folder: as ``table``.
        baseline: a file written by 'esbench baseline'.
        statistic: refuse a baseline with another statistic (default: accept any).
        alpha: largest probability of a false alarm, over all cells and looks.
        margin: smallest relevant drop, as a share of the score range (default: that of each cell of
            the baseline, or 0.05 if it has none).
        exact: also fail if digests changed.
        allow_inconclusive: exit with 0 if there are too few seeds.
        until_conclusive: train more seeds into ``folder`` until every verdict is conclusive.
        max_seeds: with ``until_conclusive``, maximum number of seeds per cell (default: 32).
        workers: as ``run``.
        trust: as ``run``.
        markdown: also write Markdown to this file.
        junit: also write JUnit XML to this file.
        json: also write JSON to this file.
        badge: also write a badge to this file, as JSON for shields.io.
        display: shows the progress of training; by default as lines of text.

    Returns:
        The verdict on every cell. ``exit_code`` is that of the command.

    Raises:
        UsageError: the folder or the baseline is not readable, or an argument is wrong.
        TrainingError: seeds could not be trained.

    Examples:
        >>> esbench.check("out", baseline="frozen.json").exit_code
        0
    """
    from esbench.core.units import counted, format_steps
    from esbench.experiment.engines import EngineChoice
    from esbench.experiment.stored_trainer import require_trusted_trials
    from esbench.publish.gate.check import check as check_folder
    from esbench.publish.gate.render_check import RENDERINGS
    from esbench.results.baselines import read_baseline
    from esbench.results.statistics.judgment import GateRules, looks
    from esbench.store.outputs import write_bytes
    from esbench.store.own_code import read_again

    read_again()
    show, root = display or PlainDisplay(), Path(folder)
    file = Path(baseline)

    def train_seeds(seeds: int, trials: Sequence[Trial]) -> None:
        steps = format_steps(sum(trial.spec.budget.env_steps for trial in trials))
        show.say(f"look at {seeds} seeds: {counted(len(trials), 'trial')} of {steps} steps")
        train(show, trials, EngineChoice(workers), quiet=True)

    needed = {f"--max-seeds {max_seeds}": max_seeds, f"--workers {workers}": workers}
    for option, value in {**needed, "--trust": trust or None}.items():
        if value is not None and not until_conclusive:
            raise UsageError(f"{option}: expected together with --until-conclusive")
    given = {"markdown": markdown, "junit": junit, "json": json, "badge": badge}
    outputs = _outputs(file, {f"--{name}": path for name, path in given.items()})
    rules, frozen = GateRules(alpha, margin), read_baseline(file)
    declared = dict.fromkeys(cell.episode_statistic for cell in frozen.cells)
    if statistic is not None and [*declared] != [statistic]:
        raise UsageError(
            f"{file} declares the {' and the '.join(declared)}; expected the {statistic}: make a "
            f"baseline with 'esbench baseline DIR --statistic {statistic}'"
        )
    sequence: tuple[int, ...] = ()
    if until_conclusive:
        sequence = looks(MAX_SEEDS if max_seeds is None else max_seeds)
        require_trusted_trials([cell.spec for cell in frozen.cells if cell.spec], file, trust)
    train_missing = train_seeds if until_conclusive else None
    report = check_folder(root, frozen, rules, exact, allow_inconclusive, sequence, train_missing)
    for path, name in zip(outputs, given, strict=True):
        if path is not None:
            write_bytes(path, RENDERINGS[name](report).encode())
    return report


@public()
def verify(
    trial: str | Path | None = None,
    *,
    workers: int | None = None,
    sample: int | None = None,
    replay: bool = False,
    every: bool = False,
    episodes: int | None = None,
    env: str | Sequence[str] = (),
    algorithm: str | Sequence[str] = (),
    leaderboard: str | Path = LEADERBOARD,
    seed: int | None = None,
    episode_timeout: float | None = None,
    trust: bool = False,
    display: Display | None = None,
) -> list[Verification]:
    """Train or play trials again: identical, no significant difference, or different.

    Args:
        trial: a trial's folder, a folder of trials, a file of a leaderboard or, with ``sample``, a
            leaderboard.
        workers: as ``run``.
        sample: train K random trials of the leaderboard or the file.
        replay: play the held-out episodes of published policies in place of training.
        every: with ``replay``, those of all rows, which is the default without a choice.
        episodes: with ``replay``, only the first N held-out episodes of each seed.
        env: as ``leaderboard``.
        algorithm: as ``leaderboard``.
        leaderboard: folder of the leaderboard.
        seed: seed of the random choice (default: 0).
        episode_timeout: fail a trial if no episode ends within this time (default: no limit).
        trust: as ``run``.
        display: shows the progress and, once it is known, every outcome; by default as lines.

    Returns:
        The outcome of every cell. Nothing is written.

    Raises:
        UsageError: there is no such trial, one is damaged or names code that is not trusted, or
            this version does not understand its specification.

    Examples:
        >>> (report,) = esbench.verify("out/CartPole-v1/snes/seed-0")
        2.4 k steps of training and 100 held-out episodes: snes on CartPole-v1, seed 0
        snes on CartPole-v1: identical: 1 trial, every digest and score
    """
    from esbench.experiment.stored_trainer import require_trusted_trials
    from esbench.experiment.watchers import Limits
    from esbench.publish.replay import has_policies
    from esbench.publish.reproduce import draw_sample, stored_trials
    from esbench.results.entries import read_leaderboard, selected
    from esbench.store.own_code import read_again

    read_again()
    show = display or PlainDisplay()
    chooses_rows = bool(env or algorithm)
    what = _existing(trial, Path(leaderboard), replay)
    _require_fitting(trial, leaderboard, sample, replay, every, episodes, seed, chooses_rows)
    Limits(episode_timeout)
    if _holds_trials(trial, what, sample, replay):
        cells = stored_trials(what)
    else:
        entries = selected(read_leaderboard(what), listed(env), listed(algorithm))
        if replay:
            published = has_policies(entries, what)
            if (count := len(published)) < len(entries):
                show.say(
                    f"{count} of {len(entries)} rows have published policies; 'esbench list "
                    "--policies-of ENV' says why others have none"
                )
            entries = published
        cells = draw_sample(entries, sample, seed or 0)
    require_trusted_trials([each.cell.spec for each in cells], what, trust)
    return _run_again(cells, what, show, workers, replay, episodes, episode_timeout)


def _require_fitting(
    trial: str | Path | None,
    leaderboard: str | Path,
    sample: int | None,
    replay: bool,
    every: bool,
    episodes: int | None,
    seed: int | None,
    chooses_rows: bool,
) -> None:
    """Raises UsageError for arguments of ``verify`` that do not fit together."""
    from esbench.core.settings import MOST, MOST_EPISODES

    if trial is not None and str(leaderboard) != str(LEADERBOARD):
        raise UsageError(f"TRIAL with --leaderboard {leaderboard}: expected one of them")
    if sample is None and (seed is not None or (not replay and chooses_rows)):
        raise UsageError("--env, --algorithm and --seed: expected together with --sample K")
    if every and (not replay or trial is not None or sample is not None):
        raise UsageError("--all: expected with --replay, and without TRIAL and --sample")
    if episodes is not None:
        require_integer("episodes", episodes, 1, MOST_EPISODES)
        if not replay:
            raise UsageError(f"--episodes {episodes}: expected with --replay")
    if seed is not None:
        require_integer("seed", seed, 0, MOST)


def _existing(trial: str | Path | None, leaderboard: Path, replay: bool) -> Path:
    """What ``verify`` reads: a trial, trials, a file of a leaderboard, or a leaderboard."""
    from esbench.results.policy_files import leaderboard_here

    if trial is None:
        is_default = str(leaderboard) == str(LEADERBOARD)
        return (leaderboard_here() if replay and is_default else None) or leaderboard
    if not Path(trial).exists():
        near = nearest_path(Path(trial), leaderboard.glob("*.json"))
        hint = f"did you mean {str(near)!r}?" if near else f"expected {TRIAL}"
        raise UsageError(f"TRIAL = {str(trial)!r}: no such file or folder; {hint}")
    if Path(trial).suffix == ".safetensors":
        raise UsageError(f"{trial} has the policies of a row; expected the row's own JSON file")
    return Path(trial)


def _holds_trials(trial: str | Path | None, what: Path, sample: int | None, replay: bool) -> bool:
    """Whether ``what`` is a folder of trials; UsageError if ``verify`` cannot take it."""
    from esbench.results.entries import is_leaderboard

    found = trial is not None and what.is_dir() and not is_leaderboard(what)
    if found and replay:
        raise UsageError(
            f"--replay with {what}, a folder of trials: expected a leaderboard or a file of one; "
            "'esbench eval' plays the policies of trials"
        )
    if found and sample is not None:
        raise UsageError(
            f"--sample {sample} with {what}, a folder of trials: expected a leaderboard or a file "
            "of one; without --sample, all trials of the folder are trained again"
        )
    if not (found or what.is_file() or replay) and sample is None:
        raise UsageError(f"expected {TRIAL}, or --sample K of a leaderboard")
    return found


def _run_again(
    cells: Sequence[RecordedCell],
    what: Path,
    show: Display,
    workers: int | None,
    replay: bool,
    episodes: int | None,
    episode_timeout: float | None,
) -> list[Verification]:
    """Train the trials of cells again, or play their policies, and tell every outcome."""
    from esbench.core.units import counted, format_duration, format_steps
    from esbench.experiment.engines import local_engine
    from esbench.publish.replay import play_again, with_policies
    from esbench.publish.reproduce import reproduce, require_supported
    from esbench.publish.verification import sentences

    found: list[Verification] = []
    specs = (each.cell.trial_spec(seed) for each in cells for seed in each.chosen[:1])
    with show.working(f"running {what} again") as tell, local_engine(workers, specs) as pool:

        def watch(name: str, record: GenerationRecord) -> None:
            tell(f"{name}: {record.generation}")

        def announce(verification: Verification) -> None:
            found.append(verification)
            show.say(*sentences(verification))

        require_supported(cells, pool)
        of_rows = what.parent if what.is_file() else what
        cells = [with_policies(each, of_rows, episodes) if replay else each for each in cells]
        played = counted(sum(each.episodes for each in cells), "held-out episode")
        steps = format_steps(sum(each.env_steps for each in cells))
        cost = f"{played} of {steps} steps"
        if not replay:
            cost = f"{steps} steps of training and {played}"
        show.say(f"{cost}: {'; '.join(each.title for each in cells)}")
        for each in cells:
            if each.entry and each.entry.gaps:
                show.warn(f"{each.name}: seeds between the first and the last one are not in it")
        if replay:
            begun = time.monotonic()
            for row in cells:
                announce(play_again(row, pool, episode_timeout, len(cells)))
            show.say(f"played again in {format_duration(time.monotonic() - begun)}")
        else:
            reproduce(cells, pool, watch, announce, episode_timeout)
    return found


@public()
def submit(
    folder: str | Path,
    *,
    out: str | Path = LEADERBOARD,
    trust: bool = False,
    display: Display | None = None,
) -> dict[Path, SubmitAction]:
    """Check finished trials and write one leaderboard file per algorithm and environment.

    Args:
        folder: as ``table``.
        out: folder of the leaderboard.
        trust: as ``run``.
        display: prints what was written, and what keeps others from training it again.

    Returns:
        Whether each file was new, extended or left as it was, by its path.

    Raises:
        UsageError: a trial is not finished, not readable, or not of a suite. Nothing is written.

    Examples:
        >>> esbench.submit("results/runs/mujoco", out="results/leaderboard")  # doctest: +SKIP
    """
    from esbench.publish.leaderboard.submit import cautions
    from esbench.publish.leaderboard.submit import submit as write_files
    from esbench.results.entries import read_entry

    show = display or PlainDisplay()
    with show.working("playing held-out episodes again") as tell:
        written = write_files(Path(folder), Path(out), trust, tell)
    for path, action in written.items():
        show.say(f"{action}: {path}")
        for caution in cautions(read_entry(path)):
            show.warn(caution)
    return written


@public()
def merge(folders: str | Path | Sequence[str | Path], *, out: str | Path) -> dict[MergeAction, int]:
    """Join output folders; existing trials are kept, or replaced by longer ones.

    Args:
        folders: output folders of 'esbench run'; they are not changed.
        out: output folder for all trials; may contain some.

    Returns:
        The numbers of trials that were "copied", that "replaced" a shorter one, and that were
        "kept" because ``out`` had them.

    Raises:
        UsageError: two trials in one place contradict each other, one is running or damaged, or a
            folder has no trial. Nothing is written.

    Examples:
        >>> joined = esbench.merge(["out"], out="joined")
    """
    from esbench.store.merge import merge as join

    given = [folders] if isinstance(folders, str | Path) else folders
    if not given:
        raise UsageError("merge: no folder given; expected output folders of 'esbench run'")
    return join([Path(folder) for folder in given], Path(out))


def _outputs(baseline: Path, given: Mapping[str, str | Path | None]) -> list[Path | None]:
    """The files of a check by their options; UsageError if one would replace another."""
    owners = {baseline.resolve(): "--baseline"}
    found: list[Path | None] = []
    for option, value in given.items():
        path = None if value is None else Path(value)
        if path is not None:
            if (other := owners.setdefault(path.resolve(), option)) != option:
                raise UsageError(f"{option} {path} is the file of {other}; expected another one")
            _require_output(option, path)
        found.append(path)
    return found


def _require_output(option: str, path: Path) -> None:
    """Raises UsageError if ``path`` is that of a grid or of a stored trial's file."""
    from esbench.store.outputs import require_not_stored

    require_not_stored(path)
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; expected a file")
    if path.suffix == ".toml":
        raise UsageError(f"{option} {path}: expected another suffix than .toml, that of grids")
