"""Kills grids at random moments and lets the same command finish them: no bit may change.

    python tests/campaigns/kills.py [--kills 1000] [--seed 0]

A case runs a small grid. While it runs, a signal (KILL, TERM or INT) goes to its main process, to
one of its workers or to all of them, after a random number of rows. In between, and in the end,
every row that is stored must be that of an uninterrupted run. Violations:

- a stored trial that cannot be read, or whose rows, result or arrays differ from those of the
  uninterrupted run, apart from times;
- a command that fails without having been killed, prints a traceback or does not end;
- a process that outlives its command.

A violation prints the number of its case; ``--seed NUMBER --kills 1`` reproduces the kind of kill,
though never its exact moment. The exit code is 1 if there is one.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from commands import SECONDS, Started, started
from fake_trials import timeless
from numpy.random import Generator

from esbench.core.errors import UsageError
from esbench.experiment import trainer
from esbench.store.trial_folder import TrialFolder

SMALL: Final = ("--set", "evaluation.episodes=4", "--set", "policy.template=linear", "--out", "out")
GRIDS: Final = (
    ("openai_es", "CartPole-v1", "4000", "0-1", "1", "--record", "members"),
    ("cma_es", "CartPole-v1", "4000", "0", "2", "--keep", "3"),
    ("genetic", "MountainCarContinuous-v0", "12000", "0", "1"),
    ("nsra_es", "Pendulum-v1", "12000", "0-1", "2"),
)
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TARGETS: Final = ("all", "main", "worker")
STOPPED: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 1})
MOST_KILLS: Final = 5  # of one run
Stored = dict[str, Any]


def arguments_of(grid: Sequence[str]) -> list[str]:
    algorithm, env, steps, seeds, workers, *more = grid
    return [
        *("run", "--env", env, "--algorithm", algorithm, "--env-steps", steps, "--seeds", seeds),
        *("--workers", workers, "--set", f"algorithms.{algorithm}.population_size=8"),
        *("--quiet", *SMALL, *more),
    ]


def stored(out: Path) -> dict[str, Stored]:
    """The rows, results and arrays of all trials, without times."""
    found = {}
    for path in sorted(out.rglob("trial.json")):
        trial = TrialFolder(path.parent)
        arrays = {p.name: p.read_bytes() for p in path.parent.glob("checkpoint/*.safetensors")}
        result = timeless(trial.result()) if trial.is_done else None
        trial.load_checkpoint()
        rows = list(map(timeless, trial.rows()))
        found[str(path.parent.relative_to(out))] = {"rows": rows, "result": result} | (
            {} if result is None else {"arrays": arrays}
        )
    return found


def rows_in(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def workers_of(pid: int) -> list[int]:
    """The processes below another one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *workers_of(child)]
    return found


def outlive(session: int) -> bool:
    """Whether a process of a session still runs after a while."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        sessions = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, own = stat.read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            sessions.append(int(own) if state != "Z" else 0)
        if session not in sessions:
            return False
        time.sleep(0.05)
    return True


def kill(process: Started, stream: Generator) -> str:
    """Send a random signal to a random part of a command; says which."""
    number = SIGNALS[int(stream.integers(len(SIGNALS)))]
    target = TARGETS[int(stream.integers(len(TARGETS)))]
    pids = workers_of(process.pid)
    try:
        if target == "all":
            os.killpg(process.pid, number)
        elif target == "main" or not pids:
            os.kill(process.pid, number)
        else:
            number = signal.SIGKILL  # workers ignore the others, which come from a terminal
            os.kill(pids[int(stream.integers(len(pids)))], number)
    except ProcessLookupError:
        return f"{target} too late"
    return f"{target} {number.name}"


class Campaign:
    """Grids, what they store when nothing interrupts them, and what was killed."""

    def __init__(self, work: Path, grids: Sequence[Sequence[str]] = GRIDS) -> None:
        self.work, self.grids, self.kills, self.rows = work, grids, 0, 0
        # A checkpoint after every row: more to interrupt.
        trainer.CHECKPOINT_SECONDS = 0.0  # type: ignore[misc]
        trainer.CHECKPOINT_SHARE = 0  # type: ignore[misc]
        self.expected = []
        for number, grid in enumerate(grids):
            folder = work / f"reference {number}"
            folder.mkdir()
            ended = esbench_ended(grid, folder)
            assert not ended, ended
            self.expected.append(stored(folder / "out"))

    def case(self, seed: int) -> list[str]:
        """Run one grid and kill it some times; the violations."""
        stream = np.random.default_rng(seed)
        number = int(stream.integers(len(self.grids)))
        grid, expected = self.grids[number], self.expected[number]
        folder = self.work / f"case {seed}"
        folder.mkdir()
        found: list[str] = []
        total = sum(len(trial["rows"]) for trial in expected.values())
        for _ in range(int(stream.integers(1, MOST_KILLS + 1))):
            process = started(arguments_of(grid), folder)
            start = rows_in(folder / "out")
            wanted = start + int(stream.integers(0, max(1, total - start)))
            process.wait(lambda wanted=wanted: rows_in(folder / "out") >= wanted)  # type: ignore[misc]
            time.sleep(float(stream.uniform(0.0, 0.02)))  # anywhere within a generation
            what = kill(process, stream) if process.runs else "too late"
            process.wait()
            orphans = "a process outlived it; " if outlive(process.pid) else ""
            ended = process.end()
            self.kills += "late" not in what
            problem = orphans + ("" if ended.code in STOPPED else ended.fault)
            problems = filter(None, (problem, self.compare(folder, number)))
            found += [f"killed {what}: {text}" for text in problems]
        found += filter(None, [esbench_ended(grid, folder), self.compare(folder, number, True)])
        shutil.rmtree(folder)
        return [f"case {seed}: {grid[0]}: {problem}" for problem in found]

    def compare(self, folder: Path, number: int, whole: bool = False) -> str:
        """How stored trials differ from those of the uninterrupted run; ``whole``: all are done."""
        try:
            found = stored(folder / "out")
        except UsageError as error:
            return str(error)
        for name, expected in self.expected[number].items():
            trial = found.get(name, {"rows": [], "result": None})
            rows = trial["rows"]
            self.rows += len(rows)
            if rows != expected["rows"][: len(rows)]:
                return f"{name}: other rows"
            if (whole or trial["result"] is not None) and trial != expected:
                return f"{name}: other result"
        return ""


def esbench_ended(grid: Sequence[str], folder: Path) -> str:
    """Run a grid to its end; the problem, if any."""
    ended = started(arguments_of(grid), folder).end()
    return ended.fault or ("" if ended.code == 0 else f"exit code {ended.code}: {ended.err[-300:]}")


def main() -> int:
    """Run the campaign; 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--quick", action="store_true", help="one small grid only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work), GRIDS[:1] if arguments.quick else GRIDS)
        return 1 if run(campaign, arguments.kills, arguments.seed) else 0


def run(campaign: Campaign, kills: int, seed: int) -> list[str]:
    """Print and return the violations of this many kills from a seed on."""
    violations, last = [], seed
    while campaign.kills < kills:
        found = campaign.case(last)
        violations += found
        for problem in found:
            print(problem, flush=True)
        last += 1
    print(
        f"{campaign.kills} kills in cases {seed} to {last - 1}, {campaign.rows} rows compared: "
        f"{len(violations)} violations",
        flush=True,
    )
    return violations


if __name__ == "__main__":
    sys.exit(main())
