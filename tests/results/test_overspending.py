"""One rule for the steps of searches and agents beyond the budget: noted, then refused."""

from pathlib import Path

import pytest
from fake_cells import make_cell
from fake_trials import make_records, make_trials, write_trial

from esbench.core.errors import UsageError
from esbench.publish.tables.comparison_table import compare_sides
from esbench.publish.tables.score_table import sheet
from esbench.publish.tables.table_notes import planned_text
from esbench.results.cell import require_comparable


@pytest.mark.parametrize("kind", ["search", "agent"])
@pytest.mark.parametrize(
    ("env_steps", "noted", "refused"),
    [
        (900, False, False),
        (1050, False, False),
        (1060, True, False),
        (1999, True, False),
        (2000, True, True),
        (float("nan"), False, False),
    ],
)
def test_steps_beyond_the_budget_are_noted_and_refused_alike(
    kind: str, env_steps: float, noted: bool, refused: bool
) -> None:
    cell = make_cell(env_steps=env_steps, budget=1000)
    if kind == "agent":
        vars(cell.runs[0])["description"]["spec"]["policy"] = None
        assert cell.is_agent
    notes = [note for note in sheet([cell]).notes if "more environment steps than" in note]
    assert len(notes) == noted
    other = {"search": "agents", "agent": "a search"}[kind]
    assert not any(other in note for note in notes)
    if refused:
        with pytest.raises(UsageError, match="100% more environment steps"):
            require_comparable([cell])
    else:
        require_comparable([cell])


def test_one_note_has_all_rows_of_an_environment() -> None:
    rows = [
        make_cell(algorithm=name, env_steps=steps, budget=100)
        for name, steps in {"ars": 107, "cem": 123, "snes": 100}.items()
    ]
    (note,) = [note for note in sheet(rows).notes if "more environment steps than" in note]
    assert note.startswith("HalfCheetah-v5: ars, cem: 7% to 23% more")
    (note,) = [note for note in sheet(rows[:2]).notes if "more environment steps than" in note]
    assert "every row" in note


def test_a_comparison_names_the_side_that_spent_more(tmp_path: Path) -> None:
    for name, steps in ("a", 145), ("b", 100):
        for trial in make_trials(tmp_path / name):
            write_trial(trial, make_records([1.0] * 10, steps=steps), 1.0)
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    (note,) = [note for note in sides.notes if "more environment steps than" in note]
    assert note.startswith("CartPole-v1: A: 45% more")


@pytest.mark.parametrize(
    ("largest", "words"),
    [
        ({}, ()),
        ({"snes": 0.05}, ()),
        ({"snes": 0.06, "ars": 0.2, "cem": 0.01}, ("up to 20% (ars, snes).",)),
        ({"snes": 1.0}, ("up to 100% (snes);", "not compared", "budget.env_steps")),
    ],
)
def test_a_plan_says_what_the_last_generation_may_add(
    largest: dict[str, float], words: tuple[str, ...]
) -> None:
    text = planned_text(largest)
    assert bool(text) == bool(words)
    assert all(word in text for word in words)
