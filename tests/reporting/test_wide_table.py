from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fake_trials import COMMAND, write_scores
from rich.console import Console
from test_score_table import make_row
from tex import compiled

from esbench.grids import environment_files as environments
from esbench.reporting.tables import wide_table as wide
from esbench.reporting.tables.score_table import ScoreRow, score_table
from esbench.reporting.tables.wide_table import (
    ACROSS,
    WideTable,
    as_latex,
    as_markdown,
    footnotes,
    wide_table,
)

SCORES = """
[scores]
random = { mean = 0.0, std = 5.0, episodes = 100, command = "esbench eval --random-policy" }
[[scores.references]]
method = "A"
score = 100.0
source = "a paper"
"""


@pytest.fixture
def _frozen_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "envs"
    folder.mkdir()
    for name, comparable in (("CartPole-v1", "true"), ("Acrobot-v1", "false")):
        text = f'id = "{name}"\n{SCORES}comparable = {comparable}\n'
        (folder / f"{name}.toml").write_text(text)
    (folder / "Pendulum-v1.toml").write_text('id = "Pendulum-v1"\n')
    monkeypatch.setattr(environments, "folder", lambda: folder)


def write(root: Path, environment: str, algorithm: str, scores: list[float]) -> None:
    write_scores(root, scores, environments=[environment], algorithms={algorithm: {}})


def entries(table: WideTable) -> dict[str, list[str]]:
    lines = (*table.lines, *table.frozen)
    return {
        line.name: [f"{entry.marked} {entry.interval}".strip() for entry in line.entries]
        for line in lines
    }


def printed(table: WideTable, width: int = 80) -> str:
    console = Console(width=width, record=True)
    with console.capture() as capture:
        for piece in wide.rich_tables(table, width):
            console.print(piece)
    return capture.get()


def grid(names: list[str], rows: list[str], **changes: Any) -> list[ScoreRow]:
    """Return made-up rows, the best first in each environment."""
    return [
        make_row(environment=name, algorithm=row, score=-1000.0 - number, **changes)
        for name in names
        for number, row in enumerate(rows)
    ]


@pytest.mark.usefixtures("_frozen_scores")
def test_a_row_an_algorithm_a_column_an_environment_and_the_best_over_all_first(
    tmp_path: Path,
) -> None:
    root = tmp_path / "runs"
    for environment in ("CartPole-v1", "Acrobot-v1"):
        write(root, environment, "snes", [50.0] * 4)
        write(root, environment, "ars", [20.0] * 4)
    write(root, "CartPole-v1", "pgpe", [90.0] * 4)
    table = wide_table(score_table(root))
    assert table.columns == ("Acrobot-v1", "CartPole-v1", ACROSS)
    assert entries(table) == {
        "snes": ["50.0 * [50.0, 50.0]", "50.0 = [50.0, 50.0]", "0.50 [0.50, 0.50]"],
        "ars": ["20.0 [20.0, 20.0]", "20.0 = [20.0, 20.0]", "0.20 [0.20, 0.20]"],
        "pgpe": ["-", "90.0 * [90.0, 90.0]", "-"],  # not everywhere: no IQM over all
        "random policy": ["0.0", "0.0", "0.00"],
        "reference": ["100.0† [1]", "100.0 [2]", "1.00"],
    }
    assert footnotes(table)[2] == (
        "Normalized IQM: over all runs of 2 environments, where 0 is the random policy and 1 the "
        "reference, with its 95 % stratified percentile bootstrap interval. The best is first."
    )
    assert footnotes(table)[3:-1] == [
        "Seeds: 4 each.",
        "Steps of training, mean over seeds: 200.",
        "Fewer than 10 seeds in some rows: the order of close scores may be chance.",
        "[1] Acrobot-v1: A, a paper; NOT comparable",
        "[2] CartPole-v1: A, a paper; comparable",
        "†: not comparable, for the reason given.",
    ]
    assert footnotes(table)[-1] == f"Made by: {COMMAND}"
    rule, best = as_markdown(table).splitlines()[1:3]
    assert rule == "| :-- | --: | --: | --: |"
    cells = r"50.0 \* [50.0, 50.0] | 50.0 = [50.0, 50.0] | 0.50 [0.50, 0.50]"
    assert best == f"| snes | {cells} |"


@pytest.mark.usefixtures("_frozen_scores")
def test_environments_without_frozen_scores_are_not_in_the_sum(tmp_path: Path) -> None:
    for environment in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1"):
        write(tmp_path / "runs", environment, "snes", [50.0] * 3)
    table = wide_table(score_table(tmp_path / "runs"))
    assert entries(table)["reference"] == ["100.0† [1]", "100.0 [2]", "-", "1.00"]
    assert any("of 2 environments, without Pendulum-v1," in note for note in footnotes(table))


@pytest.mark.usefixtures("_frozen_scores")
def test_frozen_scores_stand_below_only_where_they_hold_for_all_rows(tmp_path: Path) -> None:
    changed = {"CartPole-v1": {"kwargs": {"sutton_barto_reward": True}}}
    write(tmp_path / "runs", "CartPole-v1", "ars", [50.0] * 3)
    algorithms = {"snes": {}}
    write_scores(tmp_path / "runs", [1.0] * 3, environment=changed, algorithms=algorithms)
    assert wide_table(score_table(tmp_path / "runs")).frozen == ()


def test_without_a_sum_rows_are_sorted_by_their_mean_rank_with_ties_shared() -> None:
    # Ranks: a 3, 3, 1; b and c 3, 3, 2.5; d 1, 1, 4; e 5, 5 and none, which is last: 5.
    scores = {
        "a": (5.0, 5.0, 9.0),
        "b": (5.0, 5.0, 7.0),
        "c": (5.0, 5.0, 7.0),
        "d": (9.0, 9.0, 5.0),
        "e": (1.0, 1.0, math.nan),
    }
    rows = [
        make_row(environment=f"E{number}", algorithm=name, score=score)
        for name, values in scores.items()
        for number, score in enumerate(values)
    ]
    table = wide_table(rows)
    assert [line.name for line in table.lines] == ["d", "a", "b", "c", "e"]
    assert "Rows: by the mean of their ranks." in footnotes(table)
    assert table.columns == ("E0", "E1", "E2")


def test_policies_have_rows_of_their_own() -> None:
    table = wide_table([make_row(policy="mlp"), make_row()])
    assert {line.name for line in table.lines} == {"openai_es mlp", "openai_es"}


def test_seeds_and_steps_that_differ_are_in_the_footnotes() -> None:
    rows = grid(["A", "B"], ["x", "y", "z"])
    rows[1] = dataclasses.replace(rows[1], seeds=3, env_steps=20_000.0)
    notes = footnotes(wide_table(rows))
    assert "Seeds: 10 each, 3 of y on A." in notes
    assert "Steps of training, mean over seeds: 20 k to 3.0 M (A); 3.0 M (B)." in notes
    rows = [dataclasses.replace(row, seeds=3 + number) for number, row in enumerate(rows)]
    seeds = "Seeds: 3 to 8; the table that is not wide says how many where."
    assert seeds in footnotes(wide_table(rows))


def test_the_terminal_folds_intervals_and_splits_what_is_wider_than_it() -> None:
    names = ["HalfCheetah-v5", "MountainCarContinuous-v0", "esbench/RotatedEllipsoid-v0"]
    names += ["Humanoid-v5", "Walker2d-v5", "InvertedDoublePendulum-v5"]
    rows = grid(names, ["random_search", "an_algorithm_with_a_long_label #abc123"])
    rows[0] = dataclasses.replace(rows[0], standing="best")
    lines = printed(wide_table(rows)).splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if "Algorithm" in line]
    assert len(heads) == 2  # three columns each
    assert [line.count("[-2000.0, -500.0]") for line in lines if "[" in line] == [3] * 4
    shared = printed(wide_table(rows), 100).splitlines()  # and not four and two
    assert [line.count("[-2000.0, -500.0]") for line in shared if "[" in line] == [3] * 4
    (first,) = (number for number, line in enumerate(lines) if "-1000.0 *" in line)
    assert "random_search" in lines[first]
    text = " ".join(lines)
    for word in ("MountainCar", "Continuous-v0", "Ellipsoid-v0", "Pendulum-v5", "Walker2d-v5"):
        assert word in text
    wider = printed(wide_table(rows), 200).splitlines()
    assert len([line for line in wider if "Algorithm" in line]) == 1


def test_latex_has_the_best_in_bold_and_the_tied_underlined() -> None:
    rows = grid(["A", "B"], ["x_1", "y", "z"])
    marks = ["best", "tied", "", "", "", ""]
    rows = [dataclasses.replace(row, standing=mark) for row, mark in zip(rows, marks, strict=True)]
    lines = as_latex(wide_table(rows)).splitlines()
    interval = r"{\scriptsize {[}$-$2000.0, $-$500.0{]}}"
    at = lines.index(r"x\_1 & \textbf{\boldmath $-$1000.0} & $-$1000.0 \\")
    assert lines[at + 1] == rf" & {interval} & {interval} \\"
    assert lines[at + 2] == r"\addlinespace"
    assert r"y & \underline{$-$1001.0} & $-$1001.0 \\" in lines
    notes = "\n".join(lines)
    assert "Bold: the best of its environment. Underlined: not told apart" in notes
    assert "*:" not in notes


def test_a_real_tex_sets_a_wide_table(tmp_path: Path) -> None:
    names = [f"esbench/Rotated_Ellipsoid{letter}-v0" for letter in "ABCDEFGHIJK"]
    frozen = {"random_score": -3e6, "reference_score": 1.0, "reference_method": "M"}
    frozen |= {"reference_source": "ü", "reference_note": "[†]", "reference_comparable": False}
    rows = grid(names, [f"[es_{number} ~^#" for number in range(25)], standing="tied", **frozen)
    text = as_latex(wide_table(rows))
    assert text.count(r"\begin{tabular}") >= 4  # columns and rows are split
    log = compiled(text, tmp_path)
    assert "Output written" in log, log[-2000:]
    for trouble in ("Overfull", "Float too large", "Missing character"):
        assert trouble not in log


@pytest.mark.parametrize("form", ["csv", "json"])
def test_formats_for_programs_are_not_wide(esbench: Run, form: str) -> None:
    code, out, err = esbench("table", "out", "--wide", "--format", form)
    assert (code, out) == (2, "")
    assert f"--wide with --format {form}: expected one of text, markdown, latex" in err


def test_the_command_prints_it(esbench: Run, tmp_path: Path) -> None:
    write(tmp_path, "CartPole-v1", "snes", [50.0] * 3)
    for form, expected in {
        "text": r"snes +50\.0\n +\[50\.0, 50\.0\]",
        "markdown": r"\| snes \| 50\.0 \[50\.0, 50\.0\] \|",
        "latex": r"snes & 50\.0 \\\\\n",
    }.items():
        code, out, err = esbench("table", str(tmp_path), "--wide", "--format", form)
        assert (code, err) == (0, "")
        assert re.search(expected, out), out
        assert "22.6" in out  # of random actions
