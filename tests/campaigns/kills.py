"""Kills grids at random moments and lets the same command finish them: no bit may change.

    python tests/campaigns/kills.py [--kills 1000] [--seed 0]

A case runs a small grid. While it runs, a signal (KILL, TERM or INT) goes to its main process, to
one of its workers or to all of them, after a random number of rows. In between, and in the end,
every row that is stored must be that of an uninterrupted run. Other violations are a trial that
cannot be read, and a command that fails without having been killed or prints a traceback. The exit
code is 1 if there is one.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from command_line import python
from fake_trials import timeless
from numpy.random import Generator

from esbench.core.errors import UsageError
from esbench.store.trial_folder import TrialFolder

# A checkpoint after every row: more to interrupt.
SCRIPT: Final = """
from esbench.cli import main
from esbench.experiment import trainer

if __name__ == "__main__":
    trainer.CHECKPOINT_SECONDS = trainer.CHECKPOINT_SHARE = 0
    main()
"""
SMALL: Final = ("--set", "evaluation.episodes=4", "--set", "policy.template=linear", "--out", "out")
GRIDS: Final = (
    ("openai_es", "CartPole-v1", "4000", "0-1", "1", "--record", "members"),
    ("cma_es", "CartPole-v1", "4000", "0", "2", "--keep", "3"),
    ("genetic", "MountainCarContinuous-v0", "12000", "0", "1"),
    ("nsra_es", "Pendulum-v1", "12000", "0-1", "2"),
)
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STOPPED: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 1, 0})
SECONDS: Final = 240.0  # of a command, on a slow machine
MOST_KILLS: Final = 5  # of one run


def arguments_of(grid: Sequence[str]) -> list[str]:
    algorithm, env, steps, seeds, workers, *more = grid
    return [
        *("run", "--env", env, "--algorithm", algorithm, "--env-steps", steps, "--seeds", seeds),
        *("--workers", workers, "--set", f"algorithms.{algorithm}.population_size=8"),
        *("--quiet", *SMALL, *more),
    ]


def stored(out: Path) -> dict[str, dict[str, Any]]:
    """The rows, results and arrays of all trials, without times."""
    found = {}
    for path in sorted(out.rglob("trial.json")):
        trial = TrialFolder(path.parent)
        trial.load_checkpoint()
        arrays = {p.name: p.read_bytes() for p in path.parent.glob("checkpoint/*.safetensors")}
        done = {"result": timeless(trial.result()), "arrays": arrays} if trial.is_done else {}
        found[path.parent.name] = {"rows": list(map(timeless, map(vars, trial.records()))), **done}
    return found


def rows_in(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def start(grid: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start ``esbench run`` in a folder, in a session of its own."""
    (folder / "script.py").write_text(SCRIPT)
    return python("script.py", *arguments_of(grid), cwd=folder, start_new_session=True)


def problem(process: subprocess.Popen[str], codes: frozenset[int] = frozenset({0})) -> str:
    """What is wrong with the end of a command, for which this waits."""
    _, err = process.communicate(timeout=SECONDS)
    if process.returncode in codes and "Traceback" not in err:
        return ""
    return f"exit code {process.returncode}: {err[-300:]}"


def kill(process: subprocess.Popen[str], stream: Generator) -> None:
    """Send a random signal to a whole command, to its main process or to one of its children."""
    number = SIGNALS[int(stream.integers(len(SIGNALS)))]
    target = int(stream.integers(3))
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    with contextlib.suppress(OSError):  # it was too late
        pids = [int(pid) for task in tasks for pid in task.read_text().split()]
        if target == 0:
            os.killpg(process.pid, number)
        elif target == 1 or not pids:
            os.kill(process.pid, number)
        else:  # workers ignore the others, which come from a terminal
            os.kill(pids[int(stream.integers(len(pids)))], signal.SIGKILL)


class Campaign:
    """Grids, and what they store when nothing interrupts them."""

    def __init__(self, work: Path, grids: Sequence[Sequence[str]] = GRIDS) -> None:
        self.work, self.grids, self.kills = work, grids, 0
        self.expected = []
        for number, grid in enumerate(grids):
            folder = work / f"reference {number}"
            folder.mkdir()
            assert not problem(start(grid, folder))
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
            process, begun = start(grid, folder), rows_in(folder / "out")
            wanted = begun + int(stream.integers(1, max(2, total - begun)))
            while process.poll() is None and rows_in(folder / "out") < wanted:
                time.sleep(0.005)
            time.sleep(float(stream.uniform(0.0, 0.02)))  # anywhere within a generation
            if process.poll() is None:
                kill(process, stream)
                self.kills += 1
            found += [problem(process, STOPPED), differs(folder, expected)]
        found += [problem(start(grid, folder)), differs(folder, expected)]
        if stored(folder / "out") != expected:
            found.append("it ends with other results")
        shutil.rmtree(folder)
        return [f"case {seed}: {grid[0]}: {each}" for each in found if each]


def differs(folder: Path, expected: dict[str, dict[str, Any]]) -> str:
    """How stored trials differ from the beginning of an uninterrupted run."""
    try:
        found = stored(folder / "out")
    except UsageError as error:
        return str(error)
    for name, trial in found.items():
        rows = trial["rows"]
        if rows != expected[name]["rows"][: len(rows)]:
            return f"{name} has other rows"
        if "result" in trial and trial != expected[name]:
            return f"{name} has another result"
    return ""


def main() -> int:
    """Run the campaign; 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    arguments = parser.parse_args()
    count, seed = 0, arguments.seed
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work))
        while campaign.kills < arguments.kills:
            found = campaign.case(seed)
            count, seed = count + len(found), seed + 1
            for problem in found:
                print(problem, flush=True)
    print(f"{campaign.kills} kills in {seed - arguments.seed} cases, {count} violations")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
