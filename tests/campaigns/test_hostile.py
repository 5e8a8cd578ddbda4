"""The short form of the campaign of user code that misbehaves."""

from pathlib import Path

from hostile import Case, Plan, drawn, grid, violations

from esbench.grids.grid_file import parse_grid

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


def test_several_at_once(tmp_path: Path) -> None:
    assert list(violations(SEVERAL, tmp_path)) == []


def test_a_seed_draws_the_same_grid_again() -> None:
    assert drawn(7) == drawn(7)
    for seed in range(50):
        parse_grid(grid(drawn(seed)), "campaign")
