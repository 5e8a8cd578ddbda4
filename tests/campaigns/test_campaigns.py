"""The short forms of the campaigns; ``tox -e campaign`` runs the long ones."""

import os
import sys
from pathlib import Path

import closed_streams
import fuzzed_inputs
import pytest
from command_line import finished
from commands import Ended
from hostile import Case, Plan, drawn, grid, violations

from esbench.core.process import occupy_streams
from esbench.grids.grid_file import parse_grid

HERE = Path(__file__).parent
SEVERAL = Plan(
    (
        Case("Constructor", "sys_exit"),
        Case("Step", "surrogate"),
        Case("Close", "raise"),
        Case("Network", "raise"),
        Case("Train", "os_exit"),
        Case("Ask", "mute"),
        Case("Search", "bare"),
        Case("Train", "thread"),
    )
)


@pytest.mark.parametrize(
    ("campaign", "options", "printed"),
    [
        ("damaged.py", ["--cases", "12", "--quick"], "12 distinct damages"),
        ("kills.py", ["--kills", "1", "--quick"], " 0 violations"),
        ("fuzzed_inputs.py", ["--inputs", "25", "--seed", "0"], "25 inputs"),
    ],
)
def test_a_short_campaign_finds_no_violation(
    campaign: str, options: list[str], printed: str
) -> None:
    code, out, err = finished(str(HERE / campaign), *options)
    assert code == 0, out + err
    assert printed in out


def test_several_kinds_of_bad_user_code_in_one_grid(tmp_path: Path) -> None:
    assert list(violations(SEVERAL, tmp_path)) == []


def test_a_seed_draws_the_same_inputs_again() -> None:
    assert drawn(7) == drawn(7)
    for seed in range(50):
        parse_grid(grid(drawn(seed)), "campaign")
    first = [fuzzed_inputs.make_input(1, number)[0] for number in range(200)]
    assert first == [fuzzed_inputs.make_input(1, number)[0] for number in range(200)]
    assert len(set(first)) > 190
    assert fuzzed_inputs.make_input(2, 0)[0] != first[0]


@pytest.mark.parametrize(
    ("ended", "changed"),
    [
        (Ended(None, "", ""), []),
        (Ended(70, "", ""), []),
        (Ended(1, "", "Traceback (most recent call last):\n"), []),
        (Ended(2, "", ""), []),
        (Ended(2, "", "esbench: x\n" * 30), []),
        (Ended(2, "", "esbench: x\n"), ["new/b.json"]),
        (Ended(0, "", ""), ["out/a"]),
    ],
)
def test_a_violation_is_seen(ended: Ended, changed: list[str]) -> None:
    assert fuzzed_inputs.violation(ended, changed)
    assert not fuzzed_inputs.violation(Ended(2, "", "esbench: x\n"))
    assert not fuzzed_inputs.violation(Ended(0, "", ""), ["new/b.json"])


@pytest.mark.parametrize("way", [">&- 2>&-", "| true"])
def test_a_closed_stream_changes_no_result(tmp_path: Path, way: str) -> None:
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
    occupy_streams()
    assert before == (sys.stdout, sys.stderr, os.fstat(1).st_ino)
