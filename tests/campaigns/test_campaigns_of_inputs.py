"""Short forms of the campaigns ``fuzzed_inputs`` and ``closed_streams``."""

import os
import sys
from pathlib import Path

import closed_streams
import fuzzed_inputs
import pytest
from command_line import finished

HERE = Path(__file__).parent


def test_a_few_fuzzed_inputs() -> None:
    arguments = ["--inputs", "25", "--seed", "0"]
    code, out, err = finished(str(HERE / "fuzzed_inputs.py"), *arguments)
    assert (code, err) == (0, ""), out
    assert "25 inputs, 25 distinct" in out


def test_inputs_depend_on_their_seed_and_number_only() -> None:
    first = [fuzzed_inputs.make_input(1, number)[0] for number in range(200)]
    assert first == [fuzzed_inputs.make_input(1, number)[0] for number in range(200)]
    assert len(set(first)) > 190
    assert fuzzed_inputs.make_input(2, 0)[0] != first[0]


@pytest.mark.parametrize(
    ("code", "output", "changed"),
    [
        (-14, "", []),
        (70, "", []),
        (1, "Traceback (most recent call last):\n", []),
        (2, "", []),
        (2, "esbench: x\n" * 30, []),
        (2, "esbench: x\n", ["new/b.json"]),
        (0, "", ["out/a"]),
    ],
)
def test_a_violation_is_seen(code: int, output: str, changed: list[str]) -> None:
    assert fuzzed_inputs.violation(code, output, changed)


def test_no_violation() -> None:
    assert not fuzzed_inputs.violation(2, "esbench: x\n", [])
    assert not fuzzed_inputs.violation(0, "", ["new/b.json"])


@pytest.mark.parametrize("way", [">&- 2>&-", "| true"])
def test_a_closed_stream_changes_no_result(tmp_path: Path, way: str) -> None:
    (tmp_path / "once").mkdir()
    closed_streams.prepare(tmp_path, with_trained=False)
    command = "check worse --baseline base.json --json new/check.json"
    code, found = closed_streams.outcome(tmp_path, command, way)
    assert code == 1
    assert '"regression"' in found["check.json"]


def test_training_goes_on_when_its_streams_are_closed(tmp_path: Path) -> None:
    command = f"run {closed_streams.GRID} --quiet --out new"
    assert closed_streams.shell(tmp_path, command, "<&- >&- 2>&-") == 0
    assert len(list(tmp_path.rglob("result.json"))) == 2
    assert not list(tmp_path.rglob("error.txt"))


def test_the_streams_of_python_itself_are_kept() -> None:
    before = sys.stdout, sys.stderr, os.fstat(1).st_ino
    from esbench.core.process import occupy_streams

    occupy_streams()
    assert before == (sys.stdout, sys.stderr, os.fstat(1).st_ino)
