"""Campaign of user code that misbehaves: what it may do to ``esbench run``, and what it may not.

    python tests/campaigns/hostile.py --seeds 0-99       # a grid per seed, drawn at random
    python tests/campaigns/hostile.py --seeds 7 --keep   # repeat one and keep its folder

Every grid has a trial of CartPole without user code, and some of ``hostile_code``. Whatever these
do: the command ends in time with the right exit code, every trial that fails has ``error.txt``, all
others have the digest that they have alone, and no temporary file and no worker is left behind.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import hostile_code as code

HERE: Final = Path(__file__).resolve().parent
LIMIT: Final = 900.0  # seconds; far more than any of them takes on a slow machine
ENDING: Final = 60.0  # for processes that end by themselves after the command [s]
SILENCE: Final = 60.0  # the episode timeout of grids with code that hangs [s]
HONEST: Final = "CartPole-v1"


class Case(NamedTuple):
    """A place of the user code of a trial, or of a command, and what happens there."""

    place: str
    way: str

    @property
    def is_fatal(self) -> bool:
        """Whether the trial must fail."""
        return self.way not in code.LEAVES or self.place == "Spaces"


@dataclass(frozen=True)
class Plan:
    """One grid: the cases of its trials, one of the command if any, and how it is run."""

    cases: tuple[Case, ...]
    command: Case | None = None
    workers: int = 1
    at_once: int = 1

    def __str__(self) -> str:
        cases = ", ".join(" ".join(case) for case in (*self.cases, *filter(None, [self.command])))
        return f"{cases or 'nothing'}; {self.workers} workers, {self.at_once} at once"

    @property
    def hangs(self) -> bool:
        """Whether some code never returns."""
        every = [*self.cases, *([self.command] if self.command else [])]
        return any(case.way in code.HANGS for case in every)


def drawn(seed: int) -> Plan:
    """The plan of a seed."""
    generator = random.Random(seed)
    if generator.random() < 0.25:
        place = generator.choice(code.COMMAND)
        ways = [way for way in code.WAYS if way not in {*code.HANGS, *code.DIES}]
        return Plan((), Case(place, generator.choice(ways)))
    cells = [Case(place, way) for place in code.TRIAL for way in code.WAYS]
    cases = tuple(generator.sample(cells, generator.randint(1, 5)))
    workers = generator.randint(1, 2)
    return Plan(cases, None, workers, generator.randint(1, workers))


def grid(plan: Plan) -> dict[str, Any]:
    """The grid of a plan: one algorithm per case, each with its environment."""
    honest = {"algorithm": "openai_es", "environments": [HONEST], "population_size": 4}
    algorithms: dict[str, Any] = {"honest": honest}
    environments = [HONEST]
    behaviors: dict[str, Any] = {}
    for number, case in enumerate(plan.cases or [Case("", "nothing")]):
        name = f"{case.place}_{case.way}"
        environment = f"hostile_code:Plain{number}-v0"
        table: dict[str, Any] = {"algorithm": "openai_es"}
        if case.place in code.ENVIRONMENT:
            environment = f"hostile_code:{case.place}-{case.way}-v0"
        elif case.place in code.NETWORK:
            table["policy"] = {"template": f"hostile_code:{name}"}
        elif case.place in (*code.SEARCH, *code.AGENT):
            table["algorithm"] = f"hostile_code:{name}"
        elif case.place in code.BEHAVIOR:
            table["algorithm"] = "ns_es"
            behaviors[environment] = {"behavior": f"hostile_code:{name}"}
        if case.place not in code.AGENT:
            table["population_size"] = 4
        if environment not in environments:
            environments.append(environment)
        algorithms[f"case{number}"] = {**table, "environments": [environment]}
    return {
        "name": "hostile",
        "seeds": [0],
        "environments": environments,
        "budget": {"env_steps": 200},
        "evaluation": {"episodes": 2},
        "policy": {"hidden": [4]},
        "algorithms": algorithms,
        "environment": behaviors,
    }


def toml(table: dict[str, Any], name: str = "") -> Iterator[str]:
    """The lines of a table, whose values are tables, strings, numbers and lists."""
    if name:
        yield f"[{name}]"
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {json.dumps(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from toml(value, f"{name}.{json.dumps(key)}" if name else json.dumps(key))


def command(plan: Plan) -> list[str]:
    """The arguments of ``esbench`` for a plan."""
    options = ["--workers", str(plan.workers), "--at-once", str(plan.at_once), "--quiet"]
    if plan.hangs:
        options += ["--episode-timeout", str(SILENCE)]
    match plan.command:
        case Case("Callback", _):
            options += ["--callback", "hostile_code:callback"]
        case Case("Tracker" | "Log", _):
            options += ["--track", "hostile_code:Notes"]
    return ["run", "grid.toml", "--out", "out", *options]


def play(plan: Plan, folder: Path, limit: float = LIMIT) -> tuple[int | None, str, list[int]]:
    """Run a plan in a new folder: exit code, output, and the processes that it has left.

    The exit code is None if it did not end in time. All its processes are killed.
    """
    (folder / "grid.toml").write_text("\n".join(toml(grid(plan))))
    chosen = " ".join(plan.command) if plan.command else ""
    paths = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    environment = {**os.environ, "HOSTILE": chosen, "PYTHONPATH": paths}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "esbench", *command(plan)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        ended: int | None = process.wait(limit)
    except subprocess.TimeoutExpired:
        ended = None
    deadline = time.monotonic() + ENDING
    while (left := members(process.pid)) and ended is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    for each in [*left, process.pid] if ended is None else left:
        os.kill(each, signal.SIGKILL)
    process.wait()
    return ended, (folder / "output.txt").read_bytes().decode("utf-8", "surrogateescape"), left


def members(session: int) -> list[int]:
    """The processes of a session that are no sleepers of ``hostile_code``, without its leader."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = path.read_text(errors="replace").rpartition(")")
            arguments = (path.parent / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        state, _, _, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z" and int(path.parent.name) != session:
            found.append((int(path.parent.name), b"time.sleep" in arguments))
    for number, sleeper in found:
        if sleeper:
            os.kill(number, signal.SIGKILL)
    return [number for number, sleeper in found if not sleeper]


def violations(
    plan: Plan, folder: Path, digest: str | None = None, limit: float = LIMIT
) -> Iterator[str]:
    """What a run of a plan did that it may not do; ``digest`` is that of the honest trial."""
    code_, output, left = play(plan, folder, limit)
    fatal = any(case.is_fatal for case in plan.cases)
    expected = {1} if fatal else {0}
    if plan.command is not None and plan.command.is_fatal:
        expected = {"Module": {2}, "Callback": {1}, "Tracker": {0}, "Log": {0}}[plan.command.place]
    if code_ is None:
        yield f"not ended after {limit:g} s"
    elif code_ not in expected:
        yield f"exit code {code_}, expected {expected}"
    if left:
        yield f"processes left: {left}"
    if "Traceback" in output:
        yield "a traceback"
    if any(not (each.isprintable() or each == "\n") for each in output):
        yield "output that is not printable"
    yield from _wrong_trials(plan, folder / "out", digest, expected)
    for path in folder.rglob("*.tmp"):
        yield f"a temporary file {path.relative_to(folder)}"


def _wrong_trials(plan: Plan, out: Path, digest: str | None, expected: set[int]) -> Iterator[str]:
    if expected == {2}:  # nothing can be trained
        if out.exists():
            yield "an output folder"
        return
    callback = plan.command is not None and plan.command.place == "Callback"
    doomed = callback and plan.command is not None and plan.command.is_fatal
    fatal = {"honest": doomed}
    fatal |= {f"case{number}": case.is_fatal for number, case in enumerate(plan.cases)}
    if not plan.cases:
        fatal["case0"] = doomed
    for label, fails in fatal.items():
        trials = [path.parent for path in out.glob(f"*/{label}/**/trial.json")]
        if len(trials) != 1:
            yield f"{label} has {len(trials)} trials"
            continue
        error, result = trials[0] / "error.txt", trials[0] / "result.json"
        if fails and not (error.exists() and error.read_text(encoding="utf-8").strip()):
            yield f"{label} has no error.txt"
        if fails == result.exists():
            yield f"{label} has {'a' if fails else 'no'} result"
        if label == "honest" and result.exists():
            found = json.loads(result.read_text())["digest"]
            if digest not in {None, found}:
                yield f"{label} has the digest {found}"


def reference(folder: Path) -> str:
    """The digest of the trial without user code."""
    play(Plan(()), folder)
    (path,) = folder.glob("out/*/honest/**/result.json")
    found: str = json.loads(path.read_text())["digest"]
    return found


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def campaign(seeds: Sequence[int], keep: bool) -> int:
    """Run the plans of all seeds and print each violation; returns their number."""
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    started, count, cases = time.monotonic(), 0, 0
    (root / "reference").mkdir()
    digest = reference(root / "reference")
    for seed in seeds:
        plan, folder = drawn(seed), root / str(seed)
        folder.mkdir()
        found = list(violations(plan, folder, digest))
        cases += len(plan.cases) + (plan.command is not None)
        say(f"seed {seed}: {plan}: {'; '.join(found) or 'ok'}")
        count += len(found)
        if not (found or keep):
            shutil.rmtree(folder)
    minutes = (time.monotonic() - started) / 60
    say(f"{len(seeds)} grids, {cases} cases, {count} violations, {minutes:.1f} min; {root}")
    return count


def main() -> None:
    """Parse the command line; exit code 1 if there is a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="such as 0-99 or 7")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    sys.exit(bool(campaign(range(int(first), int(last or first) + 1), arguments.keep)))


if __name__ == "__main__":
    main()
