import io
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_trials import make_records, make_trials
from rich.console import Console

from esbench.cli.console import TerminalProgress
from esbench.experiment.trials import Trial

LONG = {"environments": ["esbench/SpaceInvaders-ram-v5"], "algorithms": {"random_search": {}}}
COLUMNS = ["budget", "gen", "return", "best", "rank", "sigma", "steps/s", "ETA"]


class Screen:
    """A display of three trials on a terminal or in a pipe, with a clock of its own."""

    def __init__(
        self, width: int = 80, terminal: bool = True, quiet: bool = False, warns: bool = True
    ) -> None:
        self.now = 0.0
        self.console = Console(
            file=io.StringIO(), width=width, force_terminal=terminal, color_system=None
        )
        self.display = TerminalProgress(self.console, 3, quiet, warns)
        self.display.now = lambda: self.now

    def play(self, trial: Trial, returns: list[float], steps: int = 100) -> Callable[[], None]:
        """Show a trial up to its scoring; returns what ends it."""
        self.display.trial_started(trial, 0)
        for record in make_records(returns, steps=steps):
            self.display.generation_done(trial, record)
        self.display.scoring_started(trial, 100)
        return lambda: self.display.trial_ended(trial, "done", "score -1234.5")

    def lines(self) -> list[str]:
        """What was printed."""
        assert isinstance(self.console.file, io.StringIO)
        return self.console.file.getvalue().splitlines()

    def table(self) -> list[str]:
        """The lines that the display redraws."""
        console = Console(width=self.console.width, color_system=None)
        with console.capture() as capture:
            for line in self.display.lines():
                console.print(line)
        return [line.rstrip() for line in capture.get().splitlines()]

    def cells(self, trial: Trial) -> list[str]:
        """The values of a running trial."""
        cells = self.display.running[trial.name].cells()
        assert list(cells) == COLUMNS
        return list(cells.values())

    def activity(self, trial: Trial) -> str:
        """What a running trial does now."""
        return self.display.running[trial.name].activity


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return make_trials(tmp_path, seeds=[0])[0]


def test_the_values_of_a_running_trial(trial: Trial) -> None:
    screen = Screen()
    screen.display.trial_started(trial, 0)
    assert screen.cells(trial) == ["0 %", "0", *"------"]
    first, *others = make_records([1.0, 5.0, 3.0], ranks=[0.0, 0.0, 0.25])
    screen.now = 50.0
    screen.display.generation_done(trial, first)
    assert screen.cells(trial)[-2:] == ["2", "7 min 30 s"]
    for record in others:
        screen.now += 40.0
        screen.display.generation_done(trial, record)
    # The speed is that of the last two generations: the first one has the start-up in it.
    expected = ["30 %", "3", "3.0", "5.0", "3.5/10", "0.10", "2", "4 min 40 s"]
    assert screen.cells(trial) == expected


@pytest.mark.parametrize("quiet", [False, True])
def test_plain_lines(trial: Trial, quiet: bool) -> None:
    screen = Screen(terminal=False, quiet=quiet)
    with screen.display:
        screen.play(trial, [1.0, 2.0])()
        screen.display.trial_ended(trial, "skipped", "score 1.0")
    start, name = [f"[1/3] {trial.name}"], f"{trial.name:<40}"
    assert screen.lines() == [
        *([] if quiet else start),
        f"done  {name} score -1234.5      200 steps     2 generations     0.0 s",
        f"skip  {name} score 1.0",
    ]


@pytest.mark.parametrize("width", [80, 110, 140])
def test_the_table_fits_the_terminal(tmp_path: Path, width: int) -> None:
    (trial,) = make_trials(tmp_path, seeds=[10], **LONG)
    screen = Screen(width)
    with screen.display:
        end = screen.play(trial, [-12345.6] * 3, steps=123_456)
        _, heading, *rows = screen.table()
        assert all(len(line) <= width for line in [heading, *rows])
        assert set(COLUMNS) <= {*heading.split()}
        assert len(rows) == (2 if width < 140 else 1)
        (values,) = (row for row in rows if "-12346" in row)
        last = heading.index("return") + len("return")  # values end where their heading ends
        assert values[last - 1 : last + 1].strip() == values[last - 1]
        end()
    assert any("done " in line for line in screen.lines())


def test_trials_side_by_side_have_rows_below_one_heading(tmp_path: Path) -> None:
    first, second = make_trials(tmp_path, seeds=[0, 1], budget={"env_steps": 10**9})
    screen = Screen(120)
    end = screen.play(first, [1.0])  # training may end before its budget
    assert screen.cells(first)[0] == "100 %"
    screen.display.trial_started(second, 0)
    _, heading, *rows = screen.table()
    assert heading.split() == ["trial", *COLUMNS]
    assert [row[: len(first.name)] for row in rows] == [first.name, second.name]
    assert [row.split("  ")[-1] for row in rows] == ["scoring 0/100", "starting"]
    end()
    assert [line[: len(first.name)] for line in screen.table()[2:]] == [second.name]
