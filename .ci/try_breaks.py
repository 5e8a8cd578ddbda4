"""Tries the deliberate breaks of ``breaks.toml``; a test must fail for each of them.

    python .ci/try_breaks.py [--only ID...] [--jobs N] [--out FILE]

Every break is applied alone, to a copy of the checkout; the checkout itself is not changed. The
exit code is 1 if a break survives or cannot be tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 300
NOT_COPIED = (".git", ".tox", ".venv*", ".*_cache", "__pycache__", "_build", "runs")
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
OUTCOMES = {0: "survived", 1: "caught"}  # exit codes of pytest; with others, no test began
# Modification times of broken files: never the same twice, so that no stale byte code is used.
TIMES = count(1_000_000_000)


@dataclass(frozen=True)
class Break:
    """A change of one text, and the pytest arguments of the tests that should notice it."""

    id: str
    file: str
    old_text: str
    new_text: str
    meaning: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """What came of a break; ``detail`` is the first failed test or the reason."""

    id: str
    outcome: str
    detail: str = ""


def read_breaks() -> list[Break]:
    """The breaks of ``breaks.toml``."""
    entries = tomllib.loads((ROOT / ".ci" / "breaks.toml").read_text())["break"]
    return [Break(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def run_tests(copy: Path, tests: str) -> tuple[str, str]:
    """The outcome of one pytest argument list, and the first failed test."""
    command = [sys.executable, *PYTEST, *shlex.split(tests)]
    variables = os.environ | {
        "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0", "MPLBACKEND": "agg",
        "ESBENCH_SITE": "docs",  # for the test of a site of its own
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=copy, env=variables, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "timeout", f"{tests}: {SECONDS} s"
    lines = done.stdout.splitlines() or done.stderr.splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    detail = (failed or lines[-1:])[0].partition(" - ")[0]
    return OUTCOMES.get(done.returncode, "broken-at-import"), detail


def attempt(copy: Path, each: Break) -> Trial:
    """Break the copy, run the tests until one fails, and repair the copy."""
    path = copy / each.file
    if not path.exists() or path.read_text().count(each.old_text) != 1:
        return Trial(each.id, "text-not-found")
    text, times = path.read_text(), path.stat()
    path.write_text(text.replace(each.old_text, each.new_text))
    os.utime(path, (0, next(TIMES)))
    outcome = detail = ""
    try:
        for tests in each.tests:
            outcome, detail = run_tests(copy, tests)
            if outcome != "survived":
                break
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return Trial(each.id, outcome, detail)


def main() -> int:
    """Try the breaks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="breaks that are tried at a time")
    parser.add_argument("--out", type=Path, metavar="JSON", help="also write the outcomes here")
    options = parser.parse_args()
    breaks = [each for each in read_breaks() if each.id in (options.only or [each.id])]
    if missing := {*options.only} - {each.id for each in breaks}:
        parser.error(f"no break {', '.join(sorted(missing))}")
    copies = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as threads:
        for job in range(options.jobs):
            copy = Path(folder, str(job), ROOT.name)
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
            copies.put(copy)

        def tried(each: Break) -> Trial:
            copy = copies.get()
            trial = attempt(copy, each)
            copies.put(copy)
            return trial

        trials = []
        for trial in threads.map(tried, breaks):
            trials.append(trial)
            print(f"{trial.id:28}  {trial.outcome:16}  {trial.detail}", flush=True)  # noqa: T201
    counts = Counter(trial.outcome for trial in trials)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))  # noqa: T201
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(trial) for trial in trials], indent=2) + "\n")
    return 0 if counts["caught"] == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
