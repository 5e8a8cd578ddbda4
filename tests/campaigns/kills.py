"""Kills grids at random moments and lets the same command finish them: no bit may change.

    python tests/campaigns/kills.py [--kills 1000] [--seed 0]

A case runs a small grid. While it runs, a signal (KILL, TERM or INT) goes to its main process, to
one of its workers or to all of them, after a random number of rows. In between, and in the end,
every row that is stored must be that of an uninterrupted run. Other violations are a trial that
cannot be read, and a command that fails without having been killed or prints a traceback. The exit
code is 1 if there is one.
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

from commands import Started, started
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
STOPPED: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 1})
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
        found[path.parent.name] = {"rows": list(map(timeless, trial.rows())), **done}
    return found


def rows_in(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def kill(process: Started, stream: Generator) -> None:
    """Send a random signal to a whole command, to its main process or to one of its children."""
    number = SIGNALS[int(stream.integers(len(SIGNALS)))]
    target = int(stream.integers(3))
    try:
        if target == 0:
            os.killpg(process.pid, number)
            return
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        pids = [int(pid) for task in tasks for pid in task.read_text().split()]
        if target == 1 or not pids:
            os.kill(process.pid, number)
        else:  # workers ignore the others, which come from a terminal
            os.kill(pids[int(stream.integers(len(pids)))], signal.SIGKILL)
    except ProcessLookupError:
        pass  # it was too late


class Campaign:
    """Grids, and what they store when nothing interrupts them."""

    def __init__(self, work: Path, grids: Sequence[Sequence[str]] = GRIDS) -> None:
        self.work, self.grids, self.kills = work, grids, 0
        # A checkpoint after every row: more to interrupt.
        trainer.CHECKPOINT_SECONDS = 0.0  # type: ignore[misc]
        trainer.CHECKPOINT_SHARE = 0  # type: ignore[misc]
        self.expected = []
        for number, grid in enumerate(grids):
            folder = work / f"reference {number}"
            folder.mkdir()
            ended = started(arguments_of(grid), folder).end()
            assert ended.code == 0, ended
            self.expected.append(stored(folder / "out"))

    def case(self, seed: int) -> list[str]:
        """Run one grid and kill it some times; the violations."""
        stream = np.random.default_rng(seed)
        number = int(stream.integers(len(self.grids)))
        arguments, expected = arguments_of(self.grids[number]), self.expected[number]
        folder = self.work / f"case {seed}"
        folder.mkdir()
        found: list[str] = []
        total = sum(len(trial["rows"]) for trial in expected.values())
        for _ in range(int(stream.integers(1, MOST_KILLS + 1))):
            process = started(arguments, folder)
            start = rows_in(folder / "out")
            wanted = start + int(stream.integers(0, max(1, total - start)))
            process.wait(lambda wanted=wanted: rows_in(folder / "out") >= wanted)  # type: ignore[misc]
            time.sleep(float(stream.uniform(0.0, 0.02)))  # anywhere within a generation
            if process.runs:
                kill(process, stream)
                self.kills += 1
            ended = process.end()
            found += ["" if ended.code in STOPPED else ended.fault, differs(folder, expected)]
        ended = started(arguments, folder).end()
        found += [ended.fault, differs(folder, expected)]
        if ended.code != 0 or stored(folder / "out") != expected:
            found.append(f"it ends with exit code {ended.code} and other results")
        shutil.rmtree(folder)
        return [f"case {seed}: {self.grids[number][0]}: {each}" for each in found if each]


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
    parser.add_argument("--quick", action="store_true", help="one small grid only")
    arguments = parser.parse_args()
    count, seed = 0, arguments.seed
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work), GRIDS[:1] if arguments.quick else GRIDS)
        while campaign.kills < arguments.kills:
            found = campaign.case(seed)
            count, seed = count + len(found), seed + 1
            for problem in found:
                print(problem, flush=True)
    print(f"{campaign.kills} kills in {seed - arguments.seed} cases, {count} violations")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
