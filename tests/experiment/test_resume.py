import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_line import Run, execute, python, working_in
from fake_trials import outcome

from esbench import make_trainer
from esbench.store.checkpoints import Checkpoints

ARGUMENTS = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--seeds", "0",
    "--env-steps", "9000", "--out", "out", "--quiet",
    "--set", "algorithms.openai_es.population_size=8",
    "--set", "algorithms.openai_es.learning_rate=0.1",
    "--set", "policy.hidden=[8]",
    "--set", "evaluation.episodes=5",
]  # fmt: skip
NEVER = 1000.0

Outcome: TypeAlias = list[Any]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]

SCRIPT = """
import sys
import esbench.experiment.trainer
from esbench.cli import main

if __name__ == "__main__":
    esbench.experiment.trainer.CHECKPOINT_SECONDS = float(sys.argv.pop(1))
    main()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``esbench run``, which ends with the test; ``every`` is between checkpoints [s]."""
    started: list[subprocess.Popen[str]] = []

    def begin(every: float, workers: int) -> subprocess.Popen[str]:
        (tmp_path / "script.py").write_text(SCRIPT)
        arguments = [str(every), *ARGUMENTS, "--workers", str(workers)]
        # A terminal sends Ctrl-C to the whole group.
        process = python("script.py", *arguments, cwd=tmp_path, start_new_session=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("whole")
    with working_in(folder):
        assert execute(*ARGUMENTS, "--workers", "0") == 0
    return outcome(folder)


def wait_for_rows(process: subprocess.Popen[str], folder: Path, rows: int, also: str = "*") -> None:
    """Wait until there are ``rows`` rows, and then for a file that matches ``also``."""
    deadline = time.monotonic() + 60
    while process.poll() is None:
        found = sum(path.read_bytes().count(b"\n") for path in folder.rglob("metrics.jsonl"))
        if found >= rows and any(folder.rglob(also)):
            return
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.002)


def test_killed_again_and_again_it_ends_with_the_same_bits(
    start: Start, esbench: Run, uninterrupted: Outcome, tmp_path: Path
) -> None:
    out, kills = tmp_path / "out", 0
    for every, rows, also in (
        (0.0, 1, "*"),  # hardly begun
        (0.0, 12, "*.tmp"),  # in the middle of writing a checkpoint
        (0.1, 24, "*"),  # with rows after the checkpoint
    ):
        process = start(every, workers=1)
        wait_for_rows(process, out, rows, also)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2  # the last one may come too late on a busy machine
    code, printed, complaint = esbench(*ARGUMENTS, "--workers", "0")
    assert (code, complaint) == (0, "")
    assert printed.startswith(("done", "skip"))  # the latter after a kill that came too late
    assert outcome(out) == uninterrupted


def test_ctrl_c_saves_and_says_how_to_go_on(
    start: Start, esbench: Run, uninterrupted: Outcome, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(NEVER, workers=2)
    wait_for_rows(process, out, 3)
    process.send_signal(signal.SIGSTOP)  # it holds the trial for as long as this takes
    code, printed, _ = esbench(*ARGUMENTS, "--workers", "0")
    assert (code, "another process runs it" in printed) == (0, True)
    process.send_signal(signal.SIGCONT)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    (log,) = out.rglob("log.txt")
    assert log.read_text() == ""  # the workers were not interrupted, they were told
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "Resume with: esbench run --env doubles:Walk-v0" in stderr
    assert list(out.rglob("state.json"))  # written on the way out
    assert esbench(*ARGUMENTS, "--workers", "0")[0] == 0
    assert outcome(out) == uninterrupted


def test_an_interrupted_checkpoint_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = Checkpoints.save, []

    def interrupted(*arguments: Any) -> None:
        written.append(arguments)
        if len(written) == 1:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    trainer = make_trainer(
        "snes", env="doubles:Walk-v0", budget={"generations": 2}, workers=0, out=tmp_path / "out",
    )  # fmt: skip
    with trainer, pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert any(tmp_path.rglob("state.json"))
