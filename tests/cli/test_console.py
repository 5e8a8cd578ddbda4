"""How tables fit a terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from esbench.cli.console import Terminal, print_sheet
from esbench.publish.tables.render_table import INTERVAL, Sheet

HEADER = ("Environment", "Algorithm", "Score", INTERVAL, "Tail", "Steps")
BODY = (
    ("InvertedDoublePendulum-v5", "sep_cma_es", "1514.0", "[272.8, 4308.7]", "53.8", "301 k"),
    ("InvertedDoublePendulum-v5", "openai_es", "9182.9", "[4444.3, 9359.7]", "7591.1", "307 k"),
    ("Swimmer-v5", "openai_es", "351.9", "[347.8, 354.0]", "348.7", "512 k"),
)
SHEET = Sheet(HEADER, BODY, [], best=frozenset({(1, 2), (2, 2)}))


def printed(width: int, *, colors: bool = False) -> list[str]:
    """The lines of the table on a terminal of a width."""
    console = Console(width=width, force_terminal=colors or None, no_color=True)
    with console.capture() as capture:
        print_sheet(SHEET, console)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_wide_terminal_has_a_column_of_environments() -> None:
    lines = printed(120)
    assert lines[0].split()[:2] == ["Environment", "Algorithm"]
    assert len(lines) == 2 + len(BODY)


def test_a_narrow_terminal_has_each_environment_once_above_its_algorithms() -> None:
    lines = printed(70)
    assert max(map(len, lines)) <= 70
    names = [line.split()[0] for line in lines[2:]]
    assert names == [
        "InvertedDoublePendulum-v5", "sep_cma_es", "openai_es", "Swimmer-v5", "openai_es"
    ]  # fmt: skip
    assert "[4444.3, 9359.7]" in lines[4]


def test_the_best_scores_stay_bold_on_a_narrow_terminal() -> None:
    bold = "\x1b[1m"
    lines = printed(70, colors=True)[2:]
    assert [bold in line for line in lines] == [True, False, True, True, True]
    assert lines[2].index(bold) < lines[2].index("9182.9")


def test_progress_leaves_standard_output_to_a_result_for_programs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    display = Terminal(stderr=True)
    with display.grid(2) as progress:
        progress.say("a trial")
    display.say("a look")
    assert tuple(capfd.readouterr()) == ("", "a trial\na look\n")
