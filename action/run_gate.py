"""Trains and checks, and writes the verdict with its files.

The step ends with exit code 0 whatever the verdict is, so that the steps after it can upload the
files and write the comment; ``end_with_verdict.py`` is the last one. Bad input has the verdict too.

Reads:
    ESBENCH_INSTALLED: the outcome of the step before, "success" or another one.
    ESBENCH_GRID, ESBENCH_BASELINE: what ``esbench run`` trains and ``esbench check`` compares with.
    ESBENCH_COMMAND: a command of the shell instead, such as ``pytest test_scores.py``.
    ESBENCH_ALPHA, ESBENCH_MARGIN, ESBENCH_MAX_SEEDS: options of the check; empty for its defaults.
    ESBENCH_UNTIL_CONCLUSIVE, ESBENCH_EXACT: "true" or "false".
    ESBENCH_INCONCLUSIVE: "fail" or "warn".
    ESBENCH_NAME: the name of the gate.
    RUNNER_TEMP: where the folder of the files is made.

Sets the outputs: verdict, exit-code, headline, files (a folder), trials (a folder), name. The
command has the folder of the files in the variable ESBENCH_FILES, which the plugin reads.
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

from runner import annotate, variable, write_outputs, write_summary

PASSED, NOT_MEASURED = 0, 3
VERDICTS = {PASSED: "passed", 1: "regression", NOT_MEASURED: "not-measured", 4: "inconclusive"}
ERROR = "error", 2
FILES = {
    "markdown": "check.md",
    "junit": "check.xml",
    "json": "check.json",
    "badge": "badge.json",
}
SHARE = r"(\d+(\.\d*)?|\.\d+)(e-?\d+)?", 1, "a number above 0, at most 1"
COUNT = r"\d{1,5}", 99_999, "a whole number above 0"
NUMBERS = {"ALPHA": SHARE, "MARGIN": SHARE, "MAX_SEEDS": COUNT}
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
LAST_LINES = 30
LONGEST_LINE = 1000  # characters
ERROR_BADGE = {"schemaVersion": 1, "label": "scores", "message": "error", "color": "lightgrey"}


class BadInputError(Exception):
    """Says what is wrong with an input."""


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
            found.lines.append(line.rstrip()[:LONGEST_LINE])
    found.code = process.returncode
    return found


def esbench(words: list[str]) -> Output:
    """Run ``esbench WORDS`` with the Python of this step."""
    return execute([sys.executable, "-m", "esbench", *words])


def require_inputs() -> None:
    """Raises BadInputError if the inputs do not fit together, before anything is trained."""
    grid, command = variable("ESBENCH_GRID"), variable("ESBENCH_COMMAND")
    baseline = variable("ESBENCH_BASELINE")
    if variable("ESBENCH_INSTALLED", "success") != "success":
        raise BadInputError("the installation has not succeeded; the log has the reason")
    if bool(grid) == bool(command):
        raise BadInputError("expected either the input 'grid' or the input 'command'")
    if grid and not baseline:
        raise BadInputError(
            "the input 'baseline' is missing; expected a file of 'esbench baseline'"
        )
    if grid and not Path(baseline).is_file():
        raise BadInputError(f"baseline: no file {baseline!r}; write it with 'esbench baseline'")
    if grid and not _is_json(Path(baseline)):
        raise BadInputError(
            f"baseline: {baseline!r} is not JSON; expected a file of 'esbench baseline'"
        )
    choices = dict.fromkeys(("UNTIL_CONCLUSIVE", "EXACT"), ("false", "true"))
    choices["INCONCLUSIVE"] = ("fail", "warn")
    for name, allowed in choices.items():
        value = variable(f"ESBENCH_{name}", allowed[0])
        if value not in allowed:
            raise BadInputError(f"{_word(name)}: {value!r}; expected {' or '.join(allowed)}")
        if command and value != allowed[0]:
            raise BadInputError(f"{_word(name)}: expected together with 'grid', not with 'command'")
    for name in NUMBERS:
        value = variable(f"ESBENCH_{name}")
        if value and command:
            raise BadInputError(
                f"{_word(name)}: expected together with 'grid'; give it in the test"
            )
        pattern, most, expected = NUMBERS[name]
        if value and not (re.fullmatch(pattern, value) and 0 < float(value) <= most):
            raise BadInputError(f"{_word(name)}: {value!r}; expected {expected}")
    if variable("ESBENCH_MAX_SEEDS") and variable("ESBENCH_UNTIL_CONCLUSIVE") != "true":
        raise BadInputError("max-seeds: expected together with until-conclusive: true")
    name = variable("ESBENCH_NAME", "esbench")
    if not re.fullmatch(NAME, name):
        raise BadInputError(f"name: {name!r}; expected letters, digits, '.', '_' and '-'")


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except ValueError:
        return False
    return True


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
    words = ["bash", "-eo", "pipefail", "-c", variable("ESBENCH_COMMAND")]
    return execute(words, env={**os.environ, "ESBENCH_FILES": str(files)})


def judge(done: Output, files: Path, is_command: bool) -> tuple[str, int, str]:
    """The verdict, the exit code of the last step, and the outcome in one sentence.

    It is that of the check that was written. It is an error if the program has ended otherwise: it
    has crashed, another test has failed, or its exit code was lost. A command that succeeds and has
    written no check has compared nothing.
    """
    written = files / FILES["json"]
    content = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    if not content and is_command and done.code == PASSED:
        text = "NOT MEASURED: the command has compared no scores"
        return VERDICTS[NOT_MEASURED], NOT_MEASURED, text
    code = content.get("exit_code", ERROR[1])
    is_same = bool(code) == bool(done.code) if is_command else code == done.code
    if content and code in VERDICTS and is_same:
        return VERDICTS[code], code, content["headline"]
    last = next((line for line in reversed(done.lines) if line), "no output")
    if is_command:
        last = f"the command has ended with exit code {done.code}"
        last += f", but {content['headline']}" if content else ""
    return *ERROR, f"ERROR: {last}"


def summary_text(headline: str, done: Output) -> str:
    """A headline and the last lines of a program's output, as Markdown."""
    lines = "\n".join(done.lines)
    longest = max(map(len, re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    title = " ".join(re.sub(r"[`<>|\[\]*_@#\\]", " ", headline).split())
    output = f"\n{fence}text\n{lines}\n{fence}\n" if lines else ""
    return f"### esbench check: {title}\n{output}"


def write_error(headline: str, done: Output, files: Path) -> None:
    """Say what went wrong above what was found before, and leave no file of a check that passed."""
    found = files / FILES["markdown"]
    before = found.read_text(encoding="utf-8") if found.exists() else ""
    text = f"{summary_text(headline, done)}\n{before}".rstrip()
    found.write_text(f"{text}\n", encoding="utf-8")
    (files / FILES["badge"]).write_text(json.dumps(ERROR_BADGE), encoding="utf-8")
    for name in ("json", "junit"):
        (files / FILES[name]).unlink(missing_ok=True)


def main(esbench: Execute = esbench) -> None:
    """Write the files, the summary and the outputs of the step."""
    name = variable("ESBENCH_NAME", "esbench")
    name = name if re.fullmatch(NAME, name) else "invalid-name"
    # A new folder each time: trials that were left in an old one would be judged again.
    root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=variable("RUNNER_TEMP") or None))
    files, trials = root / "files", root / "trials"
    files.mkdir()
    is_command = not variable("ESBENCH_GRID")
    done = Output(ERROR[1])
    try:
        require_inputs()
        done = run_command(files) if is_command else check_grid(files, trials, esbench)
        verdict, code, headline = judge(done, files, is_command)
    except BadInputError as error:
        verdict, code, headline = *ERROR, f"ERROR: {error}"
    if verdict == ERROR[0]:
        write_error(headline, done, files)
    found = files / FILES["markdown"]
    if not found.exists():
        found.write_text(summary_text(headline, done), encoding="utf-8")
    write_summary(found.read_text(encoding="utf-8"))
    values = {"verdict": verdict, "exit-code": code, "headline": headline, "name": name}
    write_outputs({**values, "files": files, "trials": trials})


if __name__ == "__main__":
    main()
