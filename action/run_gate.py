"""Trains and checks, and writes the verdict with its files.

The step ends with exit code 0 whatever the verdict is, so that the steps after it can upload the
files and write the comment; ``end_with_verdict.py`` is the last one. Bad input ends it with 2.

Reads:
    ESBENCH_GRID, ESBENCH_BASELINE: what ``esbench run`` trains and ``esbench check`` compares with.
    ESBENCH_COMMAND: a command of the shell instead, such as ``pytest test_scores.py``.
    ESBENCH_ALPHA, ESBENCH_MARGIN, ESBENCH_MAX_SEEDS: options of the check; empty for its defaults.
    ESBENCH_UNTIL_CONCLUSIVE, ESBENCH_EXACT: "true" or "false".
    ESBENCH_INCONCLUSIVE: "fail" or "warn".
    ESBENCH_NAME: the name of the gate.
    RUNNER_TEMP: where the folder of the files is made.

Sets the outputs: verdict, exit-code, headline, files (a folder), trials (a folder), name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import annotate, end_with_error, variable, write_outputs, write_summary

VERDICTS = {0: "passed", 1: "regression", 3: "not-measured", 4: "inconclusive"}
ERROR = "error"
FILES = {
    "markdown": "check.md",
    "junit": "check.xml",
    "json": "check.json",
    "badge": "badge.json",
}
SHARE = r"0?\.\d+|\d(\.\d+)?e-\d+|1", "a number above 0, at most 1"
NUMBERS = {"ALPHA": SHARE, "MARGIN": SHARE, "MAX_SEEDS": (r"\d{1,5}", "a whole number")}
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
LAST_LINES = 30


@dataclass
class Output:
    """The exit code of a program and its last lines."""

    code: int
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))


Execute = Callable[[list[str]], Output]
"""Runs a program, whose output is also that of the step."""


def execute(words: list[str], **options: Any) -> Output:
    """Run a program and wait for its end."""
    sys.stdout.write(f"$ {shlex.join(words)}\n")
    sys.stdout.flush()
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, text=True, errors="replace", **piped, **options) as process:
        found = Output(0)
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            found.lines.append(line.rstrip())
    found.code = process.returncode
    return found


def esbench(words: list[str]) -> Output:
    """Run ``esbench WORDS`` with the Python of this step."""
    return execute([sys.executable, "-m", "esbench", *words])


def require_inputs() -> None:
    """End the step if the inputs do not fit together, before anything is trained."""
    grid, command = variable("ESBENCH_GRID"), variable("ESBENCH_COMMAND")
    baseline = variable("ESBENCH_BASELINE")
    if bool(grid) == bool(command):
        end_with_error("expected either the input 'grid' or the input 'command'")
    if grid and not baseline:
        end_with_error("the input 'baseline' is missing; expected a file of 'esbench baseline'")
    if grid and not Path(baseline).is_file():
        end_with_error(f"baseline: no file {baseline!r}; write it with 'esbench baseline'")
    choices = dict.fromkeys(("UNTIL_CONCLUSIVE", "EXACT"), ("false", "true"))
    choices["INCONCLUSIVE"] = ("fail", "warn")
    for name, allowed in choices.items():
        value = variable(f"ESBENCH_{name}", allowed[0])
        if value not in allowed:
            end_with_error(f"{_word(name)}: {value!r}; expected {' or '.join(allowed)}")
        if command and value != allowed[0]:
            end_with_error(f"{_word(name)}: expected together with 'grid', not with 'command'")
    for name in NUMBERS:
        value = variable(f"ESBENCH_{name}")
        if value and command:
            end_with_error(f"{_word(name)}: expected together with 'grid'; give it in the test")
        pattern, expected = NUMBERS[name]
        if value and not re.fullmatch(pattern, value):
            end_with_error(f"{_word(name)}: {value!r}; expected {expected}")
    name = variable("ESBENCH_NAME", "esbench")
    if not re.fullmatch(NAME, name):
        end_with_error(f"name: {name!r}; expected letters, digits, '.', '_' and '-'")


def _word(variable_name: str) -> str:
    return variable_name.lower().replace("_", "-")


def check_grid(files: Path, trials: Path, esbench: Execute) -> Output:
    """Train a grid and compare it with its baseline.

    A trial that fails is named by the check. With usage errors nothing was trained.
    """
    trained = esbench(["run", variable("ESBENCH_GRID"), "--out", str(trials), "--quiet"])
    if trained.code == 2:
        return trained
    words = ["check", str(trials), "--baseline", variable("ESBENCH_BASELINE")]
    for name in NUMBERS:
        if value := variable(f"ESBENCH_{name}"):
            words += [f"--{_word(name)}", value]
    if variable("ESBENCH_EXACT") == "true":
        words.append("--exact")
    if variable("ESBENCH_UNTIL_CONCLUSIVE") == "true":
        words += ["--until-conclusive", "--trust"]  # of this repository, whose code is run anyway
    for option, name in FILES.items():
        words += [f"--{option}", str(files / name)]
    checked = esbench(words)
    if checked.code in VERDICTS:
        report = esbench(["report", str(trials), "--out", str(files / "report.html")])
        if report.code:
            annotate("warning", "the report could not be written; the log has the reason")
    return checked


def run_command(files: Path) -> Output:
    """Run a command of the shell, in which the plugin of pytest writes what it finds."""
    options = [f"--esbench-{name}={files / FILES[name]}" for name in ("markdown", "badge", "json")]
    added = f"{os.environ.get('PYTEST_ADDOPTS', '')} {shlex.join(options)}".strip()
    words = ["bash", "-eo", "pipefail", "-c", variable("ESBENCH_COMMAND")]
    return execute(words, env={**os.environ, "PYTEST_ADDOPTS": added})


def judge(done: Output, files: Path, is_command: bool) -> tuple[str, int, str]:
    """The verdict, the exit code of the last step, and the outcome in one sentence.

    Of a command, only its exit code decides whether it has passed; what the plugin has written says
    why it has not.
    """
    written = files / "check.json"
    content = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    code = content.get("exit_code", done.code) if is_command and done.code else done.code
    headline = content.get("headline", "")
    if is_command and content and bool(code) != bool(done.code):
        code, headline = 2, ""  # other tests have failed
    if is_command and not content and done.code:
        code = 2
    if code in VERDICTS:
        return VERDICTS[code], code, headline or "PASSED: the command has ended with exit code 0"
    last = next((line for line in reversed(done.lines) if line), "no output")
    ended = f"the command has ended with exit code {done.code}" if is_command else last
    return ERROR, 2, f"ERROR: {ended}"


def summary_text(headline: str, done: Output, files: Path) -> str:
    """What the gate has found as Markdown; the last lines of its output if it wrote none."""
    written = files / "check.md"
    if written.exists():
        return written.read_text(encoding="utf-8")
    lines = "\n".join(done.lines)
    longest = max(map(len, re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    title = " ".join(re.sub(r"[`<>|\[\]*_@#\\]", " ", headline).split())
    return f"### esbench check: {title}\n\n{fence}text\n{lines}\n{fence}\n"


def main(esbench: Execute = esbench) -> None:
    """Write the files, the summary and the outputs of the step."""
    require_inputs()
    name = variable("ESBENCH_NAME", "esbench")
    # A new folder each time: trials that were left in an old one would be judged again.
    root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=variable("RUNNER_TEMP") or None))
    files, trials = root / "files", root / "trials"
    files.mkdir()
    is_command = not variable("ESBENCH_GRID")
    done = run_command(files) if is_command else check_grid(files, trials, esbench)
    verdict, code, headline = judge(done, files, is_command)
    text = summary_text(headline, done, files)
    (files / "check.md").write_text(text, encoding="utf-8")
    write_summary(text)
    values = {"verdict": verdict, "exit-code": code, "headline": headline, "name": name}
    write_outputs({**values, "files": files, "trials": trials})


if __name__ == "__main__":
    main()
