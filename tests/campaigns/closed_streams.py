"""Runs commands with closed, broken and full standard streams; no result may change.

    python tests/campaigns/closed_streams.py [--only TEXT]

Every command is run undisturbed, then once for each way to disturb its streams. The exit code and
the written results, without times, must be those of the undisturbed command. The only exception is
a full disk behind standard output, where a success becomes exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
SECONDS = 600  # of one command, on a slow machine

SMALL = "--env-steps 600 --set algorithms.openai_es.population_size=8 --set evaluation.episodes=2"
SMALL_ES = f"--algorithm openai_es {SMALL} --workers 1"
GRID = f"--env CartPole-v1 --algorithm openai_es --seeds 0-1 {SMALL} --workers 1"
# How a shell changes the streams of a command; "| reader" and "|& reader" are pipes.
WAYS = ("2>&-", ">&-", "<&- >&- 2>&-", "| head -n 1", "|& true", ">/dev/full", "2>/dev/full")

COMMANDS = (
    f"run {GRID} --out new",
    f"run {GRID} --out new --at-once 1 --quiet",
    f"run --env doubles:Raises-v0 --env doubles:Walk-v0 --seeds 0 {SMALL_ES} --out new",
    f"plan {GRID} --out new",
    f"status {GRID} --out new",
    "list",
    "list --settings openai_es",
    "table out",
    "table out --format csv",
    "compare openai_es openai_es --in out",
    "efficiency out --target 150",
    "plot out --out new --format svg",
    "diagnose out",
    "report out --out new/report.html",
    "baseline out --out new/b.json",
    "check out --baseline base.json --json new/check.json",
    "check worse --baseline base.json --junit new/check.xml",
    "check few --baseline base.json --markdown new/check.md",
    "eval --random-policy CartPole-v1 --episodes 3",
    "merge out worse --out new",
    "leaderboard missing",
    "eval trained --all --episodes 2",
    "export trained/CartPole-v1/openai_es/seed-0 --out new/policy.pt2",
    "verify trained --workers 1",
    "--help",
    "run --help",
    "--version",
    "nonsense",
    "table missing",
)


def shell(folder: Path, command: str, way: str = "") -> int:
    """Run ``esbench COMMAND`` with disturbed streams; its own exit code, also in a pipe."""
    script = f"{sys.executable} -m esbench {command} {way}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    environment |= {"PYTHONHASHSEED": "0", "MPLBACKEND": "agg"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, timeout=SECONDS
    )
    return done.returncode


def results(folder: Path) -> dict[str, Any]:
    """What a command has written, without times, commands and what depends on the machine."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.name == "result.json":
            result = json.loads(path.read_text())
            found[name] = [result.get(key) for key in ("score", "returns", "lengths", "digest")]
        elif path.name == "metrics.jsonl":
            found[name] = [json.loads(line)["digest"] for line in path.read_text().splitlines()]
        elif path.suffix in {".md", ".xml"} or path.name == "check.json":
            found[name] = re.sub(r'time="[^"]*"|timestamp="[^"]*"', "", path.read_text())
        elif path.name not in {"log.txt", "lock"}:
            found[name] = path.name
    return found


def prepare(folder: Path, with_trained: bool) -> None:
    """Write stored trials, a baseline, and trials that were really trained."""
    from fake_trials import write_scores

    from esbench.publish.gate.baselines import freeze, write_baseline

    write_scores(folder / "out", [100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0])
    write_scores(folder / "worse", [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0])
    write_scores(folder / "few", [100.0, 90.0])
    write_baseline(folder / "base.json", freeze(folder / "out", "streams"), replace=False)
    if with_trained:
        assert shell(folder, f"run {GRID} --out trained") == 0


def outcome(folder: Path, command: str, way: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the results of a command; what it has written is removed again."""
    code = shell(folder, command, way)
    found = results(folder / "new")
    shutil.rmtree(folder / "new", ignore_errors=True)
    return code, found


def campaign(commands: tuple[str, ...]) -> int:
    """Run every command in every way and print the violations; their number."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, with_trained=any("trained" in command for command in commands))
        for command in commands:
            code, expected = outcome(folder, command, "")
            for way in WAYS:
                wanted = 2 if way == ">/dev/full" and code == 0 else code
                seen, found = outcome(folder, command, way)
                counts["runs"] += 1
                if (seen, found) != (wanted, expected):
                    counts["violations"] += 1
                    print(f"esbench {command} {way}: exit code {seen}, expected {wanted}")
                    names = {**expected, **found}
                    print([n for n in names if expected.get(n) != found.get(n)][:5])
    print(f"{len(commands)} commands, {counts['runs']} disturbed runs, "
          f"{counts['violations']} violations")  # fmt: skip
    return counts["violations"]


def main() -> None:
    """Run the campaign; exit code 1 if there is a violation."""
    sys.path.append(str(TESTS))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="commands that begin with this text")
    options = parser.parse_args()
    chosen = tuple(each for each in COMMANDS if each.startswith(options.only))
    sys.exit(int(campaign(chosen) > 0))


if __name__ == "__main__":
    main()
