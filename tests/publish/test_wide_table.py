import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_cells import make_cell
from fake_trials import write_scores
from programs import compiled
from rich.console import Console

from esbench.cli.console import print_sheet
from esbench.publish.tables.render_table import Sheet, as_latex
from esbench.publish.tables.score_table import ACROSS, score_table, wide_frame, wide_sheet
from esbench.results.cell import Cell


@pytest.fixture
def _frozen_scores(freeze: Callable[..., None]) -> None:
    freeze("CartPole-v1", comparable="true")
    freeze("Acrobot-v1")


def write(root: Path, environment: str, algorithm: str, scores: list[float]) -> None:
    write_scores(root, scores, environments=[environment], algorithms={algorithm: {}})


def entries(table: Sheet) -> dict[str, list[str]]:
    return {name: [" ".join(text.split()) for text in cells] for name, *cells in table.body}


def printed(table: Sheet, width: int = 80) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        print_sheet(dataclasses.replace(table, notes=()), console, split=True)
    return capture.get().splitlines()


ALONE = "random_search"


def grid(names: list[str], rows: list[str], **changes: Any) -> list[Cell]:
    """Return made-up rows, the best first in each environment."""
    return [
        make_cell(environment=name, algorithm=row, score=-1000.0 - number, **changes)
        for name in names
        for number, row in enumerate(rows)
    ]


def test_the_frame_has_tails_if_wanted() -> None:
    rows = grid(["CartPole-v1", "Acrobot-v1"], ["snes", "ars"], tail=-2000.0)
    assert set(entries(wide_sheet([make_cell(policy="mlp")]))) == {"openai_es mlp"}
    plain, full = wide_frame(rows), wide_frame(rows, tail=True)
    assert list(full) == ["CartPole-v1", "CartPole-v1 tail", "Acrobot-v1", "Acrobot-v1 tail"]
    assert full[list(plain)].equals(plain)
    assert set(full["Acrobot-v1 tail"]) == {-2000.0}


@pytest.mark.usefixtures("_frozen_scores")
def test_a_row_an_algorithm_a_column_an_environment_and_the_best_over_all_first(
    tmp_path: Path,
) -> None:
    root = tmp_path / "runs"
    for environment in ("CartPole-v1", "Acrobot-v1"):
        write(root, environment, "snes", [50.0] * 4)
        write(root, environment, "ars", [20.0] * 4)
    write(root, "CartPole-v1", "pgpe", [90.0] * 4)
    table = wide_sheet(score_table(root))
    assert table.header == ["Algorithm", "Acrobot-v1", "CartPole-v1", ACROSS]
    assert (table.separated, table.best) == (2, {(0, 1), (2, 2)})
    assert entries(table) == {
        "snes": ["50.0 * [50.0, 50.0]", "50.0 = [50.0, 50.0]", "0.50 [0.50, 0.50]"],
        "ars": ["20.0 [20.0, 20.0]", "20.0 = [20.0, 20.0]", "0.20 [0.20, 0.20]"],
        "pgpe": ["-", "90.0 * [90.0, 90.0]", "-"],  # not everywhere: no IQM over all
        "random policy": ["0.0", "0.0", "0.00"],
        "reference": ["100.0† [1]", "100.0 [2]", "1.00"],
    }


@pytest.mark.usefixtures("_frozen_scores")
def test_frozen_scores_stand_below_only_where_they_hold_for_all_rows(tmp_path: Path) -> None:
    for environment in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1"):
        write(tmp_path / "all", environment, "snes", [50.0] * 3)
    table = wide_sheet(score_table(tmp_path / "all"))
    assert entries(table)["reference"] == ["100.0† [1]", "100.0 [2]", "-", "1.00"]
    changed = {"CartPole-v1": {"kwargs": {"sutton_barto_reward": True}}}
    write(tmp_path / "runs", "CartPole-v1", "ars", [50.0] * 3)
    algorithms = {"snes": {}}
    write_scores(tmp_path / "runs", [1.0] * 3, environment=changed, algorithms=algorithms)
    assert wide_sheet(score_table(tmp_path / "runs")).separated == 0


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
        make_cell(environment=f"E{number}", algorithm=name, score=score)
        for name, values in scores.items()
        for number, score in enumerate(values)
    ]
    table = wide_sheet(rows)
    assert [cells[0] for cells in table.body] == ["d", "a", "b", "c", "e"]
    assert table.header == ["Algorithm", "E0", "E1", "E2"]


def test_the_terminal_splits_a_table_that_is_wider_than_it() -> None:
    names = ["HalfCheetah-v5", "MountainCarContinuous-v0", "esbench/RotatedEllipsoid-v0"]
    names += ["Humanoid-v5", "Walker2d-v5", "InvertedDoublePendulum-v5"]
    rows = grid(names, [ALONE, "an_algorithm_with_a_long_label #abc123"])
    rows[0] = make_cell(-1000.0, environment=names[0], algorithm=ALONE, standing="best")
    lines = printed(wide_sheet(rows))
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if "Algorithm" in line]
    assert len(heads) == 2
    assert sum(line.count("[-2000, -500.0]") for line in lines) == len(rows)
    (first,) = (number for number, line in enumerate(lines) if "-1000 *" in line)
    assert ALONE in lines[first]
    text = " ".join(lines)
    for word in ("Mountain", "Continuous-v0", "Ellipsoid-v0", "Pendulum-v5", "Walker2d-v5"):
        assert word in text
    wider = printed(wide_sheet(rows), 200)
    assert len([line for line in wider if "Algorithm" in line]) == 1


def test_a_real_tex_sets_a_wide_table(tmp_path: Path) -> None:
    names = [f"esbench/Rotated_Ellipsoid{letter}-v0" for letter in "ABCDEFGHIJK"]
    frozen = {"random": -3e6, "reference": 1.0, "source": "ü", "note": "[†]"}
    rows = grid(names, [f"[es_{number} ~^#" for number in range(25)], standing="tied", **frozen)
    log = compiled(as_latex(wide_sheet(rows)), tmp_path)
    assert "Output written" in log, log[-2000:]
    for trouble in ("Overfull", "Float too large", "Missing character"):
        assert trouble not in log
