"""Seeds that make no difference are refused; seeds that all solve a task are not."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import own_search
import pytest
from fake_trials import edit, make_records, make_trials, write_trial

import esbench
from esbench.core.errors import TrainingError, UsageError
from esbench.publish.gate.agent_gate import AgentGate
from esbench.publish.gate.check import check
from esbench.results.baselines import freeze, read_baseline
from esbench.results.sources import load_cells
from esbench.results.statistics.judgment import GateRules

SOLVED = [500.0] * 4
UNSOLVED = [-200.0] * 4


def write_seeds(
    root: Path, digests: str, returns: list[float], low: float, high: float, held_out: str = "aaa"
) -> None:
    """Write a done trial for each seed, with a letter for its digests and its held-out returns."""
    trials = make_trials(root, seeds=list(range(len(digests))))
    letters = zip(trials, digests, held_out, strict=True)
    for trial, digest, last in letters:
        extremes = {"population_return_min": low, "population_return_max": high}
        rows = [replace(row, digest=digest * 64, **extremes) for row in make_records(returns)]
        write_trial(trial, rows, returns[-1])
        own = {"returns": [returns[-1] - "abc".index(last)] * 2}
        edit(trial.folder.path, "result.json", partial(dict.update, **own))


@pytest.mark.parametrize(
    ("case", "ignores"),
    [
        (("aaa", [1.0, 2.0], 0.0, 3.0), True),
        (("aaa", SOLVED, 9.0, 500.0), True),
        (("abc", SOLVED, 9.0, 500.0), False),  # solved after different curves
        (("aab", SOLVED, 9.0, 500.0), False),
        (("aaa", UNSOLVED, -200.0, -200.0), False),  # from which nothing can be learnt
        (("aaa", [1.0, 2.0], 0.0, 3.0, "aab"), False),
        (("a", [1.0, 2.0], 0.0, 3.0, "a"), False),
    ],
    ids=["same", "solved", "curves", "one", "unsolved", "episodes", "single"],
)
def test_equal_training_and_not_equal_scores_is_the_sign_in_a_grid(
    tmp_path: Path, case: Any, ignores: bool
) -> None:
    write_seeds(tmp_path / "out", *case)
    (cell,) = load_cells(tmp_path / "out")
    assert cell.ignores_seed is ignores
    notes = " ".join(esbench.table(tmp_path / "out").attrs["notes"])
    assert ("does the code use its seed?" in notes) is ignores
    if ignores:
        with pytest.raises(UsageError, match="does the code use its seed"):
            freeze(tmp_path / "out", "")


def test_seeds_that_make_no_difference_are_not_measured(tmp_path: Path) -> None:
    write_seeds(tmp_path / "base", "abc", [1.0, 2.0], 0.0, 3.0)
    write_seeds(tmp_path / "out", "aaa", [1.0, 2.0], 0.0, 3.0)
    frozen = freeze(tmp_path / "base", "")
    assert check(tmp_path / "base", frozen, GateRules()).exit_code == 0
    report = check(tmp_path / "out", frozen, GateRules())
    assert (report.exit_code, "its seed?" in report.cells[0].reason) == (3, True)


@pytest.mark.parametrize(
    ("scores", "given", "passes"),
    [
        ([195.3] * 8, {}, False),
        ([1.0] * 8, {}, False),  # worse than random actions
        ([195.3] * 8, {"equal_scores": True}, True),
        ([195.3] * 7 + [195.4], {}, True),
        ([195.3] * 2, {}, True),
        ([500.0] * 8, {}, True),  # the reference: every seed solves the task
        ([22.63] * 8, {}, True),  # random actions: no seed learns
    ],
)
@pytest.mark.parametrize("update", [True, False])
def test_equal_scores_inside_of_the_range_or_below_are_refused_by_the_plugin(
    tmp_path: Path, scores: list[float], given: dict[str, bool], passes: bool, update: bool
) -> None:
    path, agent = tmp_path / "b.json", SimpleNamespace(train=lambda seed: scores[seed])
    options: Any = {"environment": "CartPole-v1", "seeds": range(len(scores))}
    if not update:
        AgentGate(path, True, True)(agent, "mine", equal_scores=True, **options)
    gate = AgentGate(path, update, allow_inconclusive=True)
    if passes:
        gate(agent, "mine", **options, **given)
        (line,) = gate.lines(read_baseline(path))
        assert ("all equal" in line) is (len({*scores}) == 1 and len(scores) > 2)
        return
    with pytest.raises(UsageError, match=r"all 8 seeds gave the same score 1[\d.]+; does train"):
        gate(agent, "mine", **options, **given)
    assert path.exists() is not update


class Fixed(own_search.Rebinding):
    """A search that seeds its members with the generation alone."""

    def __init__(self, settings: Any, center: Any, seed: int, shapes: Any = ()) -> None:
        super().__init__(settings, center, 0, shapes)


def test_a_search_whose_members_are_those_of_every_seed_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"Fixed asks for the same members .* self\.seed"):
        esbench.check_algorithm(Fixed)
    esbench.check_algorithm(type("Computed", (Fixed,), {"uses_seed": False}))
