"""The gate as a pytest plugin: a library's tests compare its agents' scores with a baseline.

    def test_my_agent(esbench_check):
        esbench_check(MyAgent(), "my_agent", environment="CartPole-v1", seeds=range(8))

``MyAgent().train(seed)`` trains from scratch and returns a score; higher is better. The first run
with ``--esbench-update`` freezes the scores in ``--esbench-baseline FILE``. Later runs compare with
them. Every call is one cell. It fails by the rules of ``esbench check``; all cells of a file share
its level, also those that no test checks any more: the end of the session names them.

pytest imports this file in every session, so it imports the gate only when a test uses it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

DEFAULT_BASELINE: Final = "esbench-baseline.json"
SESSION: Final = pytest.StashKey[Any]()  # an AgentGate
OUTPUT: Final = "esbench"  # the key of what a worker of pytest-xdist sends
WRITTEN: Final = {"markdown": "check.md", "json": "check.json", "badge": "badge.json"}
FOLDER: Final = "ESBENCH_FILES"  # the variable with a folder of these files, which a program reads


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("esbench", "compare scores with a baseline (esbench)")
    group.addoption(
        "--esbench-baseline",
        metavar="FILE",
        help=f"the baseline of the scores (default: {DEFAULT_BASELINE} in pytest's root folder)",
    )
    group.addoption(
        "--esbench-update",
        action="store_true",
        help="write the scores to the baseline instead of comparing them",
    )
    group.addoption(
        "--esbench-allow-inconclusive",
        action="store_true",
        help="pass if there are too few seeds to exclude a drop",
    )
    for name in WRITTEN:
        group.addoption(
            f"--esbench-{name}",
            metavar="FILE",
            help=f"also write what was compared to this file, as 'esbench check --{name}' does",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to freeze scores in several processes, and files that cannot be written as given."""
    folder, words = config.invocation_params.dir, config.invocation_params.args
    for option in (f"--esbench-{name}" for name in WRITTEN):
        given = config.getoption(option)
        if given is not None and Path(folder, given).is_dir():
            raise pytest.UsageError(f"{option} {given} is a folder; expected a file")
        # pytest counts a file that exists among its arguments, from which it finds its root folder.
        is_argument = option in words and Path(folder, given).exists()
        is_outside = is_argument and not Path(folder, given).resolve().is_relative_to(folder)
        is_fixed = config.getoption("rootdir") or config.getoption("inifilename")
        if is_outside and not is_fixed and config.getoption("--esbench-baseline") is None:
            raise pytest.UsageError(
                f"{option} {given}: expected {option}={given}, because pytest would look for the "
                "baseline beside it"
            )
    if config.getoption("--esbench-update") and config.getoption("numprocesses", 0):  # xdist's
        raise pytest.UsageError("--esbench-update writes one file; expected one process (-n 0)")


@pytest.fixture
def esbench_check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function that compares an agent's scores with the baseline."""
    from esbench.core.errors import UsageError
    from esbench.core.escape import one_line

    gate = _session_gate(request.config).of_test(request.node.nodeid)

    @functools.wraps(gate.__call__)
    def check(*arguments: Any, **options: Any) -> None:
        __tracebackhide__ = True
        problem = ""
        try:
            gate(*arguments, **options)
        except UsageError as error:
            problem = one_line(str(error))
        except pytest.skip.Exception:
            gate.leave()
            raise
        if problem:  # outside the handler, since pytest would print the error, too
            pytest.fail(problem, pytrace=False)

    return check


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist, send what was found to the main process."""
    found = session.config.stash.get(SESSION, None)
    output = getattr(session.config, "workeroutput", None)
    if found is not None and output is not None:
        output[OUTPUT] = {
            "owners": found.owners,
            "found": found.found,
            "measured": [list(each) for each in found.measured],
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the main process of pytest-xdist, add what a worker found; a crashed one sends nothing."""
    if sent := getattr(node, "workeroutput", {}).get(OUTPUT):
        gate = _session_gate(node.config)
        gate.owners.update(sent["owners"])
        gate.found.extend(sent["found"])
        gate.measured.extend(map(tuple, sent["measured"]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was found or frozen and the cells that no test has checked; write the files."""
    gate = config.stash.get(SESSION, None)
    if gate is None or not gate.owners:
        return
    from esbench.core.errors import UsageError
    from esbench.core.escape import one_line
    from esbench.results.baselines import read_baseline

    path = _baseline_path(config)
    baseline = None
    with contextlib.suppress(UsageError):  # the tests have reported a damaged file
        baseline = read_baseline(path) if path.exists() else None
    if baseline is not None and not gate.update:
        _write_files(config, gate.report(baseline))
    lines = gate.lines(baseline)
    names = [cell.name for cell in baseline.cells] if baseline else []
    if left := [name for name in names if name not in gate.owners]:
        lines.append(
            f"not checked: {', '.join(left)}. Every cell of {path.name} makes the tests of the "
            "others stricter; to remove those without a test, delete the file and freeze all again"
        )
    if lines:
        terminalreporter.section("esbench")
        for line in lines:
            terminalreporter.line(one_line(line))


def _write_files(config: pytest.Config, report: Any) -> None:
    """Write the check of the session to the files of the options, and of a program's folder."""
    from esbench.publish.gate.render_check import RENDERINGS
    from esbench.store.outputs import write_bytes

    folder = os.environ.get(FOLDER)
    if folder and (report is None or (not report.exit_code and _has_failed(Path(folder)))):
        folder = None  # a later session of the program does not hide what an earlier one has found
    for name, file in WRITTEN.items() if report is not None else ():
        given = config.getoption(f"--esbench-{name}")
        paths = [config.invocation_params.dir / str(given)] if given is not None else []
        for path in [*paths, *([Path(folder, file)] if folder else [])]:
            write_bytes(path, RENDERINGS[name](report).encode())


def _has_failed(folder: Path) -> bool:
    """Whether a session has written a check there that has not passed."""
    from esbench.core.files import read_json

    with contextlib.suppress(FileNotFoundError):
        return bool(read_json(folder / WRITTEN["json"]).get("exit_code"))
    return False


def _session_gate(config: pytest.Config) -> Any:
    """The gate of the session, made by the first test that uses it."""
    from esbench.publish.gate.agent_gate import AgentGate

    made = AgentGate(
        _baseline_path(config),
        update=bool(config.getoption("--esbench-update")),
        allow_inconclusive=bool(config.getoption("--esbench-allow-inconclusive")),
    )
    return config.stash.setdefault(SESSION, made)


def _baseline_path(config: pytest.Config) -> Path:
    """The file of the option, relative to the current folder, or the default one.

    A file that exists can change pytest's root folder, since pytest counts it among its arguments.
    """
    given = config.getoption("--esbench-baseline")
    if given is None:
        return config.rootpath / DEFAULT_BASELINE
    return config.invocation_params.dir / str(given)
