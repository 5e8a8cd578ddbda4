"""The first commit that a test calls bad: git bisects, in a worktree of its own."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import msgspec

from esbench.core.errors import UsageError
from esbench.core.escape import one_line
from esbench.core.files import read_json
from esbench.core.git import FAILURES, git
from esbench.core.json_text import as_text
from esbench.core.process import interrupts_delayed
from esbench.publish.gate.check import (
    EXIT_INCONCLUSIVE,
    EXIT_NOT_MEASURED,
    EXIT_REGRESSION,
    EXIT_SAME,
)
from esbench.results.statistics.judgment import Verdict
from esbench.store.outputs import only_holder, write_bytes

CommitVerdict: TypeAlias = Literal["good", "bad", "skip"]
Verdicts: TypeAlias = dict[str, Literal["good", "bad"]]
CommitTest: TypeAlias = Callable[[Path, str], CommitVerdict]
"""Whether a commit, which is checked out in a folder, is good; "skip" if it cannot tell."""
Told: TypeAlias = Callable[[str, CommitVerdict, float], object]
"""Receives a commit, its verdict and the seconds of its test; NaN if it was known."""

WITHOUT: Final = {EXIT_INCONCLUSIVE: Verdict.INCONCLUSIVE, EXIT_NOT_MEASURED: Verdict.NOT_MEASURED}
SHORT: Final = 12  # characters of a commit in the names of folders
CHECKS: Final = "checks"  # the folder of the files of checks, which ``esbench history`` reads
INTERRUPTED: Final = (130, -2)  # exit codes after Ctrl-C
GRACE: Final = 20.0  # seconds for a command that has also received Ctrl-C to save its trials
SLOW: Final = 600.0  # seconds for git to write a large checkout
_NONE: Final[Mapping[str, str]] = {}
_WORKTREE: Final = re.compile(r"^worktree (.*/esbench-bisect-[^/]*)/tree$", re.MULTILINE)
_FIRST: Final = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.MULTILINE)
_LEFT: Final = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)


def judge_by_command(command: str, out: Path, checkout: Path, commit: str) -> CommitVerdict:
    """The verdict of a command of the shell: exit code 0 is good, 1 is bad.

    Any other one tells nothing. pytest ends with 1 for every test that fails. So a check of its
    plugin that is inconclusive, or of cells that were not measured, tells nothing either.
    """
    folder = out / commit[:SHORT]
    (folder / "check.json").unlink(missing_ok=True)
    code = _run(command, checkout, _log(out, commit), {"ESBENCH_FILES": str(folder)})
    checked = EXIT_SAME
    with contextlib.suppress(FileNotFoundError):
        checked = read_json(folder / "check.json")["exit_code"]
    return _verdict(checked if code == EXIT_REGRESSION and checked else code)


@final
@dataclass(frozen=True)
class GridTest:
    """Trains a grid with the code of a checkout, and asks the gate there.

    Attributes:
        grid: its name or file.
        baseline: a file; if it is missing, it is made of the commit ``good``.
        out: folder of what is trained, with a folder for each commit.
        options: of ``esbench check``, as words.
        workers: as words of an option.
        install: a command of the shell that comes before; empty for none.
    """

    grid: str
    good: str
    baseline: Path
    out: Path
    options: Sequence[str] = ()
    workers: Sequence[str] = ()
    install: str = ""

    def __call__(self, checkout: Path, commit: str) -> CommitVerdict:
        """Train the commit's trials that are not done, and check them."""
        folder, file = self.out / commit[:SHORT], self.out / CHECKS / f"{commit}.json"
        file.unlink(missing_ok=True)
        log = _log(self.out, commit)
        installed = not (self.install and _run(self.install, checkout, log))
        if installed:  # the check names what has failed
            words = ["run", self.grid, "--out", str(folder), "--quiet", *self.workers]
            _esbench(words, checkout, log)
        if commit == self.good and not self.baseline.exists():
            words = ["baseline", str(folder), "--out", str(self.baseline), "--trust"]
            words += [each for each in self.options if each.startswith("--margin=")]
            if not installed or _esbench(words, checkout, log):
                place = f"no baseline of the good commit {commit[:SHORT]}"
                raise UsageError(f"{place}: {_last_line(log)}; see {log}")
            return "good"
        if not installed:
            return "skip"
        words = ["check", str(folder), "--baseline", str(self.baseline), "--json", str(file)]
        code = _esbench([*words, *self.options], checkout, log)
        return _verdict(code) if file.exists() else "skip"  # a crash is no verdict


def _log(out: Path, commit: str) -> Path:
    return out / "logs" / f"{commit[:SHORT]}.txt"


def _esbench(words: Sequence[str], checkout: Path, log: Path) -> int:
    return _run([sys.executable, "-m", "esbench", *words], checkout, log)


def _verdict(code: int) -> CommitVerdict:
    if code == EXIT_SAME:
        return "good"
    return "bad" if code == EXIT_REGRESSION else "skip"


def why_skipped(out: Path, commit: str) -> str:
    """Why a commit, which was just tested, has no verdict: what the gate says, or its last line."""
    for file in (out / CHECKS / f"{commit}.json", out / commit[:SHORT] / "check.json"):
        with contextlib.suppress(FileNotFoundError):
            if said := WITHOUT.get(read_json(file)["exit_code"]):
                return said.value
    return _last_line(_log(out, commit))


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return one_line(next((line for line in reversed(lines) if line.strip()), "no output"))


def _run(
    command: str | Sequence[str], checkout: Path, log: Path, variables: Mapping[str, str] = _NONE
) -> int:
    """The exit code of a command with the code of a checkout; its output is added to a log.

    Ctrl-C also reaches the command, which saves its trials before this process goes on.
    """
    environment = {**os.environ, "PYTHONPATH": _import_path(checkout), **variables}
    shown = command if isinstance(command, str) else shlex.join(command)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {shown}\n")
        file.flush()
        with subprocess.Popen(
            command, shell=isinstance(command, str), cwd=checkout, env=environment,
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            try:
                code = child.wait()
            except BaseException:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE)
                child.terminate()
                child.wait()
                raise
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    return code


def _import_path(checkout: Path) -> str:
    """PYTHONPATH with the folders of a checkout first, also in place of those of the user's own.

    Folders that git does not track, such as builds and submodules, stay.
    """
    top, tree = (Path(git(each, "rev-parse", "--show-toplevel")) for each in (Path(), checkout))
    paths: list[Path] = [checkout / "src", checkout]
    for each in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        path = Path(each).resolve()
        is_own = path.is_relative_to(top) and git(top, "ls-files", "--", f"{path}/")
        paths.append(tree / path.relative_to(top) if is_own else Path(each))
    return os.pathsep.join(map(str, paths))


@final
@dataclass(frozen=True)
class Range:
    """The commits of a repository between a good one and a bad one.

    Attributes:
        top: the folder of the checkout.
        inside: the folder below it in which a test runs.
        good, bad: their whole names.
        commits: how many come after the good one, up to the bad one.
    """

    top: Path
    inside: str
    good: str
    bad: str
    commits: int

    @property
    def steps(self) -> int:
        """The most commits between both that are tested if none is skipped."""
        return math.ceil(math.log2(self.commits))


def find_range(folder: Path, good: str, bad: str) -> Range:
    """The commits from ``good`` to ``bad`` of the repository that a folder is in.

    UsageError if there is no such repository or commit, or the bad one does not come after the
    good one.
    """
    try:
        top, inside = (
            git(folder, "rev-parse", f"--show-{what}") for what in ("toplevel", "prefix")
        )
    except (OSError, subprocess.SubprocessError):
        raise UsageError(f"{folder.resolve()} is in no repository of git; expected one") from None
    names = []
    for argument, text in (("GOOD", good), ("BAD", bad)):
        try:
            names.append(
                git(folder, "rev-parse", "--verify", "--end-of-options", f"{text}^{{commit}}")
            )
        except subprocess.SubprocessError:
            raise UsageError(
                f"{argument} = {text!r}: no such commit; expected one of {top}"
            ) from None
    commits = int(git(folder, "rev-list", "--count", f"{names[0]}..{names[1]}", timeout=SLOW))
    base = git(folder, "merge-base", *names) if commits else ""
    if base != names[0]:
        raise UsageError(
            f"GOOD = {good!r}, BAD = {bad!r}: expected a bad commit that comes after the good one"
        )
    return Range(Path(top), inside, names[0], names[1], commits)


def read_verdicts(path: Path) -> Verdicts:
    """The verdicts on commits in a file, which may be missing; UsageError for something else."""
    try:
        return msgspec.convert(read_json(path), Verdicts)
    except FileNotFoundError:
        return {}
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; expected verdicts on commits, or no file") from None


def folder_of(out: Path, *question: str) -> Path:
    """The folder below ``out`` of the results of one question, which no other question uses."""
    return out / hashlib.sha256("\0".join(question).encode()).hexdigest()[:SHORT]


def bisect(
    chosen: Range, test: CommitTest, verdicts: Verdicts, file: Path, told: Told
) -> list[str]:
    """The commits that can be the first bad one: one, or several if some could not be tested.

    Both ends are tested first. Nothing is left in the repository. New verdicts are added to those
    that are known, and to their file; those that tell nothing are not kept.

    Raises:
        UsageError: the good commit is not good, or the bad one not bad.
    """

    def judged(place: Path, commit: str) -> CommitVerdict:
        if commit in verdicts:
            told(commit, verdicts[commit], math.nan)
            return verdicts[commit]
        _check_out(place, commit)
        began = time.monotonic()
        verdict = test(place / chosen.inside, commit)
        if verdict != "skip":
            verdicts[commit] = verdict
            write_bytes(file, as_text(verdicts).encode())
        told(commit, verdict, time.monotonic() - began)
        return verdict

    with worktree(chosen.top, chosen.bad) as place:
        for commit, expected in ((chosen.good, "good"), (chosen.bad, "bad")):
            if (verdict := judged(place, commit)) != expected:
                found = "cannot be tested" if verdict == "skip" else f"is {verdict}"
                raise UsageError(f"the {expected} commit {commit[:SHORT]} {found}")
        said = _git_bisect(place, "start", chosen.bad, chosen.good)
        while not (left := _left(said)):
            said = _git_bisect(place, judged(place, git(place, "rev-parse", "HEAD")))
        return left


def _left(said: str) -> list[str]:
    """The first bad commit in git's words, or all that it can be because of skipped ones."""
    among = "only 'skip'ped commits left" in said
    found: list[str] = (_LEFT if among else _FIRST).findall(said)
    return found


def _git_bisect(place: Path, *words: str) -> str:
    try:
        return git(place, "bisect", *words, timeout=SLOW)
    except subprocess.CalledProcessError as error:
        if error.returncode != 2:  # of skipped commits
            raise UsageError(f"git bisect {words[0]}: {one_line(error.stderr)}") from None
        return str(error.stdout)


def _check_out(place: Path, commit: str) -> None:
    """Make a worktree that of a commit, without files that an earlier test has left."""
    git(place, "checkout", "--force", "--detach", commit, timeout=SLOW)
    git(place, "clean", "-ffdxq", timeout=SLOW)


@contextlib.contextmanager
def worktree(top: Path, commit: str) -> Iterator[Path]:
    """A worktree of a repository in a temporary folder, which is there inside the block only.

    Those that killed processes have left are removed. A process holds a lock beside its own.
    """
    with tempfile.TemporaryDirectory(prefix="esbench-bisect-") as name, _held(Path(name)):
        place = Path(name).resolve() / "tree"
        try:
            for left in _WORKTREE.findall(git(top, "worktree", "list", "--porcelain")):
                with contextlib.suppress(UsageError), _held(Path(left)):  # UsageError: it is in use
                    _remove(top, Path(left, "tree"))
                    shutil.rmtree(left, ignore_errors=True)
            git(top, "worktree", "add", "--detach", str(place), commit, timeout=SLOW)
            yield place
        except subprocess.CalledProcessError as error:
            raise UsageError(f"git: {one_line(error.stderr)}") from None
        finally:
            with interrupts_delayed():
                _remove(top, place)


def _held(folder: Path) -> AbstractContextManager[None]:
    return only_holder(folder / "lock", f"another bisection uses {folder}", waits=False)


def _remove(top: Path, place: Path) -> None:
    try:
        git(top, "worktree", "remove", "--force", str(place), timeout=SLOW)
    except FAILURES:  # it is not complete
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(*FAILURES):
            git(top, "worktree", "prune")
