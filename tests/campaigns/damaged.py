"""Damages trial folders at random, and runs commands on them: no command may misbehave.

    python tests/campaigns/damaged.py [--cases 1000] [--seed 0] [--jobs 1]

A case damages one file of a finished or an interrupted trial, runs two commands that read and in a
tenth of the cases one that trains or plays, and looks for violations:

- a traceback, a hang, more memory than 6 GB, an undocumented exit code, an error of several lines;
- a reading command that changes a file, or any command that changes one outside of its folder;
- other numbers: a command that succeeds prints what it prints for the undamaged trial, and a trial
  that ends has the bits of the undamaged one.

A violation prints the number of its case; ``--seed NUMBER --cases 1`` reproduces it. The exit code
is 1 if there is one.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from commands import Ended, esbench, forked, import_used, with_code
from damages import DONE, PARTIAL, TRIALS, damage
from fake_trials import timeless

import esbench as package

SETTINGS: Final = ("evaluation.episodes=4", "policy.template=linear")
GRID: Final = (
    *("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0-1", "--out", "base"),
    *(part for setting in SETTINGS for part in ("--set", setting)),
    *("--set", "algorithms.openai_es.population_size=4"),
)
CELL: Final = "base/CartPole-v1/openai_es"
TRIAL: Final = f"{CELL}/{DONE}"
QUIET: Final = ("--workers", "1", "--quiet")
STEPS: Final = ("--env-steps", "2500")


def load(name: str, path: str) -> None:
    """Print what a function of the package loads."""
    found = getattr(package, name)(path)
    print(found.to_csv() if hasattr(found, "to_csv") else found.parameters.tolist())


READERS: Final[dict[str, Sequence[str]]] = {
    "status": ["status", *GRID, *STEPS],
    "table": ["table", "base"],
    "table csv": ["table", "base", "--format", "csv"],
    "table markdown": ["table", "base", "--format", "markdown"],
    "table latex": ["table", "base", "--format", "latex"],
    "table json": ["table", "base", "--format", "json"],
    "efficiency": ["efficiency", "base"],
    "diagnose": ["diagnose", "base"],
    "compare": ["compare", "base", "whole"],
    "merge": ["merge", "base", "whole", "--out", "new"],
    "check": ["check", TRIAL, "--baseline", "baseline.json", "--markdown", "check.md", "--junit",
              "check.xml", "--json", "check.json"],
    "baseline": ["baseline", TRIAL, "--out", "new.json"],
    "load_results": ["load_results", "base"],
    "load_members": ["load_members", TRIAL],
    "load_policy": ["load_policy", TRIAL],
    "load_policy of an unfinished trial": ["load_policy", f"{CELL}/{PARTIAL}"],
    "report": ["report", "base", "--out", "report.html"],
    "plot": ["plot", "base", "--out", "figures"],
}  # fmt: skip
SLOW: Final = ("report", "plot")
QUICK: Final = ("status", "merge", "load_results", "load_members", "load_policy")
LARGEST: Final = 1 << 24  # bytes of a file that is compared
WRITTEN: Final = 0.1  # share of the cases that train or play too
WRITERS: Final[dict[str, Sequence[str]]] = {
    "run": ["run", *GRID, *STEPS, *QUIET],
    "run --extend": ["run", *GRID, "--env-steps", "3500", "--extend", *QUIET],
    "eval": ["eval", TRIAL],
    "eval --which best": ["eval", TRIAL, "--which", "best"],
    "verify": ["verify", TRIAL, "--workers", "1"],
}


@dataclass(frozen=True)
class Case:
    """A damage, the number of commands that were run, and their violations."""

    what: str
    commands: int
    violations: list[str]


def execute(name: str, folder: Path) -> Ended:
    arguments = {**READERS, **WRITERS}[name]
    if arguments[0].startswith("load_"):
        return forked(lambda: with_code(partial(load, *arguments)), folder)
    return esbench(arguments, folder)


def files(folder: Path) -> dict[str, Any]:
    """Every file below a folder: its content, or what it is; figures and the like are new."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            found[str(path)] = path.lstat().st_mode
        elif path.is_file():
            found[str(path)] = path.stat().st_size, content(path)
    return found


def content(path: Path) -> bytes:
    """The content of a small file, empty for anything else."""
    plain = path.is_file() and path.stat().st_size < LARGEST
    return path.read_bytes() if plain else b""


def snapshot(folder: Path) -> dict[str, Any] | None:
    """Rows, result and arrays of a done trial without times; None if it is not done."""
    try:
        result = json.loads(content(folder / "result.json"))
        rows = [json.loads(line) for line in content(folder / "metrics.jsonl").splitlines()]
        arrays = [content(path) for path in sorted(folder.glob("checkpoint/*.safetensors"))]
        return {"result": timeless(result), "rows": list(map(timeless, rows)), "arrays": arrays}
    except (OSError, ValueError, AttributeError, TypeError):
        return None


class Campaign:
    """Trials to damage, and what commands print and leave for the undamaged ones."""

    def __init__(self, work: Path, quick: bool = False) -> None:
        """Train the trials; a ``quick`` campaign has only the fast commands that read."""
        self.work = work
        self.readers = QUICK if quick else [name for name in READERS if name not in SLOW]
        self.writers = () if quick else tuple(WRITERS)
        self.slow = () if quick else SLOW
        self.whole = work / "whole"
        make_base(self.whole, quick)
        self.printed: dict[str, Ended] = {}
        self.left: dict[str, list[dict[str, Any] | None]] = {}

    def reference(self, name: str) -> Ended:
        """How a command ends for the undamaged trials."""
        if name not in self.printed:
            folder = self.copy(f"reference {name}")
            ended = execute(name, folder)
            assert ended.code == 0, (name, ended)
            import_used(ended)
            self.printed[name] = ended
            self.left[name] = [snapshot(folder / CELL / trial) for trial in TRIALS]
            shutil.rmtree(folder)
        return self.printed[name]

    def copy(self, name: str) -> Path:
        """A new folder with the trials."""
        folder = self.work / name
        shutil.copytree(self.whole, folder)
        return folder

    def case(self, seed: int) -> Case:
        """Damage with a seed and run commands."""
        folder = self.copy(f"case {seed}")
        what, is_content = damage(folder / "base", seed)
        stream = np.random.default_rng((seed, 1))
        violations = []
        chosen = [str(name) for name in stream.choice(self.readers, size=2, replace=False)]
        if self.slow and stream.random() < 0.05:
            chosen.append(str(stream.choice(self.slow)))
        for name in chosen:
            violations += self.read(name, folder, same=is_content)
        if self.writers and stream.random() < WRITTEN:
            name = str(stream.choice(self.writers))
            violations += self.write(name, folder, same=is_content)
            chosen.append(name)
        shutil.rmtree(folder)
        return Case(what, len(chosen), violations)

    def read(self, name: str, folder: Path, same: bool) -> list[str]:
        """Run a command that reads; ``same``: it fails or prints what it prints otherwise."""
        reference, before = self.reference(name), files(folder)
        ended = execute(name, folder)
        found = [ended.fault]
        changed = [path for path, content in before.items() if files(folder).get(path) != content]
        found += [f"it changed {path}" for path in changed]
        # Rows after the last checkpoint have no digest: they are computed again before they count.
        shows_them = name in {"load_results", "diagnose", "status"}
        if same and ended.code == 0 and ended.out != reference.out and not shows_them:
            found.append(f"it printed something else: {ended.out[-500:]!r}")
        for new in ("new", "figures"):
            shutil.rmtree(folder / new, ignore_errors=True)
        for new in ("check.md", "check.xml", "check.json", "new.json", "report.html"):
            (folder / new).unlink(missing_ok=True)
        return [f"{name}: {problem}" for problem in found if problem]

    def write(self, name: str, folder: Path, same: bool) -> list[str]:
        """Run a command that trains or plays."""
        reference = self.reference(name)
        trials = [folder / CELL / trial for trial in TRIALS]
        others = {path: content for path, content in files(folder).items() if "/base/" not in path}
        before = [snapshot(trial) for trial in trials]
        ended = execute(name, folder)
        found = [ended.fault]
        after = files(folder)
        found += [f"it changed {p}" for p, content in others.items() if after.get(p) != content]
        for trial, first, expected in zip(trials, before, self.left[name], strict=True):
            last = snapshot(trial)
            if last is not None and last not in (first, expected):
                found.append(f"{trial.name} ended with other numbers: {last['result']}")
        if not name.startswith("run") and same and ended.code == 0 and ended.out != reference.out:
            found.append(f"it printed something else: {ended.out[-500:]!r}")
        return [f"{name}: {problem}" for problem in found if problem]


def make_base(folder: Path, quick: bool) -> None:
    """A finished trial and an interrupted one, files outside, and unless ``quick`` a baseline."""
    (folder / "outside").mkdir(parents=True)
    (folder / "outside" / "own.safetensors").write_text("own")
    (folder / "outside" / ".own.tmp").write_text("own")

    def require(arguments: Sequence[str]) -> None:
        ended = esbench(arguments, folder)
        assert ended.code == 0, ended

    options = [*STEPS, "--keep", "2", "--record", "members", *QUIET]
    require(["run", *GRID, *options])
    if not quick:
        require(["eval", TRIAL, "--which", "best"])
        require(["baseline", TRIAL, "--out", "baseline.json"])
    shutil.copytree(folder / "base", folder / "whole")

    def interrupt() -> None:
        trial = folder / CELL / PARTIAL
        shutil.rmtree(trial)
        with package.make_trainer(
            "openai_es",
            env="CartPole-v1",
            seed=1,
            workers=1,
            out=folder / "base",
            population_size=4,
            budget={"env_steps": 2500},
            evaluation={"episodes": 4},
            policy={"template": "linear"},
        ) as trainer:
            trainer.train(env_steps=1200)

    ended = forked(interrupt, folder)
    assert ended.code == 0, ended


def main() -> int:
    """Run the campaign; 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000, help="number of distinct damages")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--quick", action="store_true", help="only commands that take no second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work), arguments.quick)
        violations = run(campaign, arguments.cases, arguments.seed, arguments.jobs)
    return 1 if violations else 0


def run(campaign: Campaign, cases: int, seed: int, jobs: int = 1) -> list[str]:
    """Print and return the violations of this many distinct damages from a seed on."""
    seen: set[str] = set()
    violations = []
    last, commands = seed, 0
    for name in (*campaign.readers, *campaign.slow, *campaign.writers):
        campaign.reference(name)
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        while len(seen) < cases:
            numbers = range(last, last + min(10 * jobs, cases - len(seen)))
            for number, case in zip(numbers, pool.map(campaign.case, numbers), strict=True):
                seen.add(case.what)
                commands += case.commands
                for problem in case.violations:
                    violations.append(f"case {number}: {case.what}: {problem}")
                    print(violations[-1], flush=True)
            last = numbers.stop
            if len(seen) < cases:
                print(f"{len(seen)} distinct damages", end="\r", file=sys.stderr, flush=True)
    print(
        f"{len(seen)} distinct damages, cases {seed} to {last - 1}, {commands} commands: "
        f"{len(violations)} violations",
        flush=True,
    )
    return violations


if __name__ == "__main__":
    sys.exit(main())
