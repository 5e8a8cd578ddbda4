from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_trials import make_records, make_trials, write_trial
from rich.console import Console

from esbench.cli import progress
from esbench.cli.progress import GridDisplay, LiveDisplay, Meter, PlainDisplay
from esbench.training.trials import Trial

LONG = {"environments": ["InvertedDoublePendulum-v5"], "algorithms": {"random_search": {}}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Return the time that the displays see, as a list of one."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    yield now
    monkeypatch.undo()


def play(
    display: GridDisplay, trial: Trial, returns: list[float], before: int = 0
) -> Callable[[], None]:
    """Show a trial up to its scoring; returns what ends it."""
    display.trial_started(trial, before)
    for record in make_records(returns)[before:]:
        display.generation_done(trial, record)
    display.scoring_started(trial, 100)
    return lambda: display.trial_ended(trial, "done", "score -1234.5")


def plain(trial: Trial, returns: list[float], quiet: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    with PlainDisplay(console, 1, quiet) as display:
        play(display, trial, returns)()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def live(width: int, seen: Callable[[LiveDisplay], None]) -> list[str]:
    """Return the lines that are left on a terminal."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with LiveDisplay(console, 3) as display:
        seen(display)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def bars(display: LiveDisplay) -> list[str]:
    """Return the lines that the display keeps redrawing."""
    console = Console(width=display.console.width, color_system=None)
    with console.capture() as capture:
        console.print(display._progress.get_renderable())
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def test_the_meter_knows_speed_time_left_and_the_best(tmp_path: Path, clock: list[float]) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0], budget={"env_steps": 1000})
    meter = Meter(trial)
    assert meter.text() == "gen    0        - steps/s  best        -  ETA -"
    for record in make_records([1.0, 5.0, 3.0]):
        clock[0] += 2.0
        meter.update(record)
    assert meter.steps_per_second == 50.0  # the first generation has the start-up in it
    assert meter.text() == "gen    3       50 steps/s  best      5.0  ETA 14.0 s"


def test_the_population_stands_in_for_a_centre_that_does_not_play(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    meter = Meter(trial)
    (record,) = make_records([1.0])
    nan = dataclasses.replace(record, center_return=math.nan, population_return_mean=7.0)
    meter.update(nan)
    assert "best      7.0" in meter.text()


def test_plain_lines(tmp_path: Path, clock: list[float]) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    name = "CartPole-v1 openai_es seed 0"
    end = f"done  {name:<40} score -1234.5      200 steps     2 generations     0.0 s"
    assert plain(trial, [1.0, 2.0]) == [f"[1/1] {name}", end]
    assert plain(trial, [1.0, 2.0], quiet=True) == [end]
    assert plain(trial, [1.0])[-1].split("  ")[-3:] == ["1 generation", "", " 0.0 s"]


def test_plain_lines_every_ten_seconds(tmp_path: Path, clock: list[float]) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    console = Console(file=io.StringIO(), width=80)
    display = PlainDisplay(console, 1)
    display.trial_started(trial, 0)
    for record in make_records([1.0] * 9):
        clock[0] += 3.0
        display.generation_done(trial, record)
    assert isinstance(console.file, io.StringIO)
    assert [line.split()[:2] for line in console.file.getvalue().splitlines()[1:]] == [
        ["gen", "4"],
        ["gen", "8"],
    ]


@pytest.mark.parametrize("width", [80, 110])
def test_the_live_display_fits_the_terminal(tmp_path: Path, width: int) -> None:
    (trial,) = make_trials(tmp_path, seeds=[10], **LONG)
    name = "InvertedDoublePendulum-v5 random_search seed 10"

    def see(display: LiveDisplay) -> None:
        assert len(bars(display)) == 1
        display.trial_started(trial, 0)
        for record in make_records([-12345.6] * 3, steps=123_456):
            display.generation_done(trial, record)
            grid, title, bar = bars(display)
            assert grid.endswith("0 of 3 trials")
            assert title == name
            assert "best -12345.6  ETA" in bar
            assert len(bar) < 80
        display.scoring_started(trial, 100)
        display.trial_ended(trial, "done", "score -12345.6")
        assert bars(display)[0].endswith("1 of 3 trials")

    lines = live(width, see)
    (number,) = (n for n, line in enumerate(lines) if "done " in line)
    ended = lines[number].split("done  ")[1]
    if width == 80:
        assert ended == name
        assert lines[number + 1].startswith("      score -12345.6  370 k steps  3 generations  0.")
    else:
        assert ended.startswith(f"{name} score -12345.6")


def test_a_terminal_too_narrow_for_a_line_cuts_it(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[10], **LONG)

    def see(display: LiveDisplay) -> None:
        play(display, trial, [1.0])
        assert len(bars(display)) == 3
        assert max(map(len, bars(display))) <= 40

    live(40, see)


def test_scoring_is_shown_however_early_training_ends(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0], budget={"env_steps": 10**9})

    def see(display: LiveDisplay) -> None:
        end = play(display, trial, [1.0, 2.0])
        assert bars(display)[-1].endswith(
            "gen    2  best      2.0  scoring on 100 held-out episodes"
        )
        assert display._progress.tasks[-1].percentage == 100
        end()
        display.trial_started(trial, 0)
        assert bars(display)[-1].endswith("starting")
        assert display._progress.tasks[-1].percentage == 0

    live(80, see)


def test_trials_side_by_side_have_a_bar_each(tmp_path: Path, clock: list[float]) -> None:
    first, second = make_trials(tmp_path, seeds=[0, 1])

    def see(display: LiveDisplay) -> None:
        end = play(display, first, [1.0])
        display.trial_started(second, 0)
        _, *lines = bars(display)
        assert lines[::2] == [first.name, second.name]
        assert lines[1].endswith("scoring on 100 held-out episodes")
        assert lines[3].endswith("starting")
        end()
        assert bars(display)[1] == second.name

    live(100, see)


def test_plain_lines_say_which_of_several_trials_they_are_about(
    tmp_path: Path, clock: list[float]
) -> None:
    first, second = make_trials(tmp_path, seeds=[0, 1])
    console = Console(file=io.StringIO(), width=80)
    display = PlainDisplay(console, 2)
    for trial in (first, second):
        display.trial_started(trial, 0)
    clock[0] += 11.0
    for trial in (second, first, second):
        display.generation_done(trial, make_records([1.0])[0])
    assert isinstance(console.file, io.StringIO)
    begun, also, *lines = console.file.getvalue().splitlines()
    assert (begun, also) == (f"[1/2] {first.name}", f"[2/2] {second.name}")
    assert [
        line.endswith(name) for line, name in zip(lines, (second.name, first.name), strict=True)
    ] == [
        True,
        True,
    ]
    assert len(lines) == 2


def test_a_resumed_trial_keeps_its_best(tmp_path: Path, clock: list[float]) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    write_trial(trial, make_records([1.0, 9.0, 100.0]))  # the last is after the checkpoint
    console = Console(file=io.StringIO(), width=80)
    display = PlainDisplay(console, 1)
    display.trial_started(trial, 2)
    display.generation_done(trial, make_records([1.0, 9.0, 5.0])[2])
    (meter,) = display.meters.values()
    assert "best      9.0" in meter.text()
    assert math.isnan(meter.steps_per_second)
    assert isinstance(console.file, io.StringIO)
    assert "(resumed after generation 2)" in console.file.getvalue()


def test_a_trial_whose_process_died_says_so_and_has_one_bar(tmp_path: Path) -> None:
    (trial,) = make_trials(tmp_path, seeds=[0])
    said = "its process died, signal SIGKILL; another"

    def again(display: GridDisplay) -> None:
        display.trial_started(trial, 0)
        display.trial_died(trial, "signal SIGKILL")
        display.trial_started(trial, 0)

    console = Console(file=io.StringIO(), width=80)
    with PlainDisplay(console, 1) as display:
        again(display)
    assert isinstance(console.file, io.StringIO)
    first, died, second = console.file.getvalue().splitlines()
    assert died.split("  ")[0] == "died"
    assert said in died
    assert first == second == f"[1/1] {trial.name}"

    def seen(display: LiveDisplay) -> None:
        again(display)
        assert sum(trial.name in line for line in bars(display)) == 1

    assert said in " ".join(" ".join(live(120, seen)).split())
