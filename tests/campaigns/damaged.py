"""Damages trial folders at random, and runs commands on them: no command may misbehave.

    python tests/campaigns/damaged.py [--cases 1000] [--seed 0]

A case damages one file of a finished trial, and runs a command on the folder. Violations:

- a traceback, a hang, much memory, an undocumented exit code, an error of several lines;
- a reading command that changes a file;
- other numbers: a command that succeeds prints what it prints for the undamaged trial.

A violation prints the number of its case; ``--seed NUMBER --cases 1`` reproduces it. The exit code
is 1 if there is one.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from command_line import files
from commands import Ended, esbench, forked, with_code

import esbench as package

GRID: Final = (
    *("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0-1", "--out", "base"),
    *("--env-steps", "2500", "--set", "evaluation.episodes=4", "--set", "policy.template=linear"),
    *("--set", "algorithms.openai_es.population_size=4"),
)
TRIAL: Final = "base/CartPole-v1/openai_es/seed-0"
READERS: Final[dict[str, Sequence[str]]] = {
    "status": ["status", *GRID],
    "table": ["table", "base", "--format", "csv"],
    "efficiency": ["efficiency", "base"],
    "diagnose": ["diagnose", "base"],
    "merge": ["merge", "base", "--out", "new"],
    "baseline": ["baseline", TRIAL, "--out", "new/b.json"],
    "load_results": ["load_results", "base"],
    "load_members": ["load_members", TRIAL],
    "load_policy": ["load_policy", TRIAL],
}
QUICK: Final = ("status", "merge", "load_results", "load_members", "load_policy")
PLAYERS: Final[dict[str, Sequence[str]]] = {
    "run": ["run", *GRID, "--workers", "1", "--quiet"],
    "eval": ["eval", TRIAL],
    "verify": ["verify", TRIAL, "--workers", "1"],
}
# Rows after the last checkpoint have no digest: they are computed again before they count.
SHOW_ROWS: Final = ("load_results", "diagnose", "status", "run")
WRONG: Final = ("NaN", "1e999", "-1", '"x"', "null", "true", "[]", "{}", "0.5", "9" * 400)


def load(name: str, path: str) -> None:
    """Print what a function of the package loads."""
    found = getattr(package, name)(path)
    print(found.to_csv() if hasattr(found, "to_csv") else found.parameters.tolist())


def execute(arguments: Sequence[str], folder: Path) -> Ended:
    if arguments[0].startswith("load_"):
        return forked(lambda: with_code(lambda: load(*arguments)), folder)
    return esbench(arguments, folder)


def flip(data: bytes, stream: Generator) -> bytes:
    damaged = bytearray(data)
    damaged[int(stream.integers(len(data)))] ^= 1 << int(stream.integers(8))
    return bytes(damaged)


def cut(data: bytes, stream: Generator) -> bytes:
    return data[: int(stream.integers(len(data)))]


def zeros(data: bytes, stream: Generator) -> bytes:
    start = int(stream.integers(len(data)))
    end = min(len(data), start + int(stream.integers(1, 513)))
    return data[:start] + bytes(end - start) + data[end:]


def append(data: bytes, stream: Generator) -> bytes:
    return data + stream.bytes(int(stream.integers(1, 200)))


def repeat_line(data: bytes, stream: Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    place = int(stream.integers(len(lines)))
    return b"".join([*lines[: place + 1], *lines[place:]])


def wrong_value(data: bytes, stream: Generator) -> bytes:
    """Another value in the place of one of JSON, or of one of a line of JSON."""
    lines = [data] if data[:2] == b"{\n" else data.split(b"\n")
    number = int(stream.integers(len(lines)))
    try:
        table: Any = json.loads(lines[number])
    except ValueError:
        return flip(data, stream)
    content = table
    while True:
        key = list(table)[int(stream.integers(len(table)))]
        if not (isinstance(table[key], dict) and table[key] and stream.random() < 0.8):
            break
        table = table[key]
    table[key] = "$WRONG$"
    wrong = WRONG[int(stream.integers(len(WRONG)))]
    lines[number] = json.dumps(content).replace('"$WRONG$"', wrong).encode()
    return b"\n".join(lines)


DAMAGES: Final[Sequence[Callable[[bytes, Generator], bytes]]] = (
    *(flip, flip, cut, zeros, append, repeat_line, wrong_value, wrong_value),
)


def damage(trial: Path, stream: Generator) -> str:
    """Damage, remove or replace one file of a trial; says what."""
    found = sorted(path for path in trial.rglob("*") if path.is_file() and path.stat().st_size)
    path = found[int(stream.integers(len(found)))]
    name, kind = path.relative_to(trial), stream.random()
    if kind < 0.1:
        path.unlink()
        return f"no {name}"
    other = trial.with_name("seed-1") / name
    if kind < 0.2 and other.exists():
        shutil.copy(other, path)
        return f"{name} of the other trial"
    change = DAMAGES[int(stream.integers(len(DAMAGES)))]
    path.write_bytes(change(path.read_bytes(), stream))
    return f"{change.__name__} in {name}"


class Campaign:
    """Trials to damage, and how commands end for the undamaged ones."""

    def __init__(self, work: Path, quick: bool = False) -> None:
        """Train the trials; a ``quick`` campaign has only fast commands that read."""
        self.work, self.whole = work, work / "whole"
        self.whole.mkdir()
        options = ["--workers", "1", "--quiet", "--keep", "2", "--record", "members"]
        ended = esbench(["run", *GRID, *options], self.whole)
        assert ended.code == 0, ended
        self.commands = {n: READERS[n] for n in QUICK} if quick else {**READERS, **PLAYERS}
        self.expected: dict[str, Ended] = {}

    def reference(self, name: str) -> Ended:
        """How a command ends for the undamaged trials."""
        if name not in self.expected:
            folder = self.work / "reference"
            shutil.copytree(self.whole, folder)
            self.expected[name] = ended = execute(self.commands[name], folder)
            assert ended.code == 0, (name, ended)
            shutil.rmtree(folder)
        return self.expected[name]

    def case(self, seed: int) -> list[str]:
        """Damage with a seed and run a command; the violations."""
        stream, folder = np.random.default_rng(seed), self.work / "case"
        name = str(stream.choice(list(self.commands)))
        expected = self.reference(name)
        shutil.copytree(self.whole, folder)
        what = damage(folder / TRIAL, stream)
        before = files(folder / "base")
        ended = execute(self.commands[name], folder)
        found = [ended.fault]
        if name in READERS and files(folder / "base") != before:
            found.append("it changed a file")
        if ended.code == 0 and ended.out != expected.out and name not in SHOW_ROWS:
            found.append(f"it printed something else: {ended.out[-500:]!r}")
        shutil.rmtree(folder)
        return [f"case {seed}: {name} after {what}: {problem}" for problem in found if problem]


def main() -> int:
    """Run the campaign; 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000, help="number of damages")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--quick", action="store_true", help="only commands that take no second")
    arguments = parser.parse_args()
    count = 0
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work), arguments.quick)
        for seed in range(arguments.seed, arguments.seed + arguments.cases):
            found = campaign.case(seed)
            count += len(found)
            for problem in found:
                print(problem, flush=True)
    print(f"{arguments.cases} damages, {count} violations")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
