import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import Run
from fake_trials import edit, write_one, write_scores

from esbench.core.errors import UsageError
from esbench.publish.tables.comparison_table import (
    compare_sides,
    comparison_frame,
    export_comparison,
    outcome,
    sheet,
)
from esbench.publish.tables.score_table import score_table
from esbench.results.cell import cells_named
from esbench.results.sources import read_folder
from esbench.store.merge import merge

GOOD = [480.0, 485.0, 490.0, 491.0, 492.0, 495.0, 498.0, 500.0, 499.0, 497.0]
BAD = [score - 100 for score in GOOD]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write folders a and b, where a is better on CartPole and the same on Acrobot."""
    monkeypatch.chdir(tmp_path)
    write_scores(tmp_path / "a", GOOD)
    write_scores(tmp_path / "b", BAD)
    for side in "ab":
        write_scores(tmp_path / side, [-90.0, -91.0, -92.0] * 3, environments=["Acrobot-v1"])


@pytest.mark.usefixtures("two")
def test_two_folders() -> None:
    sides = compare_sides("a", "b")
    acrobot, cartpole = sides.pairs
    assert (acrobot.environment, cartpole.environment) == ("Acrobot-v1", "CartPole-v1")
    assert cartpole.comparison.difference.value == pytest.approx(100)
    assert cartpole.p_value < 0.001 < acrobot.p_value
    assert cartpole.p_value == pytest.approx(2 * cartpole.comparison.p_value)  # Holm
    table = sheet(sides)
    cells = dict(zip(table.header, table.body[1], strict=True))
    assert cells["A - B"].startswith("100.0\n[")
    assert cells["P(A > B)"] == "1.00\n[0.80, 1.00]"
    assert cells["p"] == "< 0.001"
    assert sides.across is not None
    assert sides.across[1].value == pytest.approx(0.75)
    assert outcome(sides).startswith("a against b: better on 1, worse on 0, not ")
    assert outcome(sides).endswith(" on 1 of 2")
    assert outcome(compare_sides("b", "a")).startswith("b against a: better on 0, worse on 1")
    for side, scores in (("high", [500.0] * 8), ("low", [400.0] * 8), ("same", [400.0] * 8)):
        write_scores(Path(side), scores)  # without spread
    assert outcome(compare_sides("high", "low")) == "high is better than low"
    assert outcome(compare_sides("low", "high")) == "low is worse than high"
    assert outcome(compare_sides("low", "same")) == "low and same are not significantly different"


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("reference", [-500.0, -499.0])
def test_a_reference_that_is_not_better_than_random_actions_is_no_scale(reference: float) -> None:
    random = {"mean": -499.0, "std": 1.0, "episodes": 100, "command": "none"}
    found = {"method": "A", "score": reference, "source": "a paper", "comparable": True}
    scores = {"random": random, "references": [found]}
    for side in "ab":
        (folder,) = Path(side).glob("Acrobot*")
        edit(folder, "trial.json", lambda content: content.update(scores=scores))
    sides = compare_sides("a", "b")
    assert len(sides.pairs) == 2
    assert sides.across is None
    acrobot, cartpole = score_table(Path("a"))
    assert math.isnan(acrobot.normalized(acrobot.score))
    assert cartpole.normalized(cartpole.score) > 0.5


@pytest.mark.usefixtures("two")
def test_over_environments_only_where_each_counts_the_same() -> None:
    for side in "ab":
        write_scores(Path(side), GOOD, algorithms={"snes": {}})
    assert compare_sides("a", "b").across is None
    for side in "ab":
        write_scores(Path(side), GOOD, algorithms={"snes": {}}, environments=["Acrobot-v1"])
    assert compare_sides("a", "b").across is not None
    for side in "ab":
        shutil.rmtree(Path(side) / "Acrobot-v1")
    assert compare_sides("a", "b").across is None


@pytest.mark.usefixtures("two")
def test_the_tails_of_both_sides() -> None:
    edit(Path("a"), "result.json", lambda content: content.update(returns=[7.0, *range(8, 17)]))
    sides = compare_sides("a", "b")
    assert [pair.tails for pair in sides.pairs] == [(7.0, pytest.approx(math.nan, nan_ok=True))] * 2
    frame = comparison_frame(sides)
    assert frame["a_tail"].tolist() == [7.0, 7.0]
    assert frame["b_tail"].isna().all()
    assert sheet(sides, tail=True).body[0][-1] == "7.0,\n-"
    assert "Tails" in export_comparison(sides, "markdown")
    shutil.copytree("b", "c")
    assert "Tails" not in export_comparison(compare_sides("b", "c"), "markdown")


def test_better_is_what_the_test_says_and_not_what_most_runs_do(tmp_path: Path) -> None:
    # Three quarters of the runs are a little better and the others far worse: the interquartile
    # means differ upwards and the means, which are tested, downwards.
    write_scores(tmp_path / "a", [401.0] * 18 + [5.0] * 6)
    write_scores(tmp_path / "b", [400.0 + seed / 100 for seed in range(24)])
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    assert sides.pairs[0].comparison.improvement.value > 0.5
    assert sides.pairs[0].comparison.difference.value > 0
    assert " is worse than " in outcome(sides)


def test_algorithms_of_one_folder_are_named_by_label_or_by_their_only_algorithm(
    tmp_path: Path,
) -> None:
    for label, scores, name in (("one", GOOD, "ars"), ("low", BAD, "snes"), ("high", BAD, "snes")):
        write_scores(tmp_path, scores, algorithms={label: {"algorithm": name}})
    (pair,) = compare_sides("ars", "low", tmp_path).pairs
    assert (pair.first.name, pair.second.name) == ("one", "low")
    assert pair.comparison.difference.value == pytest.approx(100)
    with pytest.raises(UsageError, match=r"'snes' has several rows in .*; expected .* high, low"):
        compare_sides("ars", "snes", tmp_path)
    with pytest.raises(UsageError, match=r"unknown algorithm in .* 'hihg'; did you mean 'high'"):
        compare_sides("ars", "hihg", tmp_path)


def test_two_algorithms_of_a_folder_are_paired_by_equal_settings(tmp_path: Path) -> None:
    for name in ("snes", "ars"):
        algorithms = {name: {}}
        write_scores(tmp_path, GOOD, algorithms=algorithms, environments=["Acrobot-v1"])
        for steps in (5_000, 9_000) if name == "snes" else (5_000, 9_000, 10_000):
            part = tmp_path / str(steps)
            write_scores(part, GOOD, algorithms=algorithms, budget={"env_steps": steps})
    sides = compare_sides("snes", "ars", tmp_path)
    pairs = [(pair.first.title, pair.first.budget, pair.second.budget) for pair in sides.pairs]
    assert {title.partition(" #")[0] for title, *_ in pairs} == {"snes", "snes on Acrobot-v1"}
    assert sorted(own for title, own, _ in pairs if "#" in title) == [5_000, 9_000]
    assert all(ours == theirs for _, ours, theirs in pairs)
    (left,) = [note for note in sides.notes if note.startswith("Not compared")]
    assert left.count(" on ") == 1
    assert {cell.environment for cell in cells_named(read_folder(tmp_path), "snes")} == {
        "Acrobot-v1",
        "CartPole-v1",
    }


def test_rows_are_paired_by_their_name_and_then_by_equal_settings(tmp_path: Path) -> None:
    for side, sizes, other in (("a", (0.1, 0.2), "pgpe"), ("b", (0.2, 0.3), "cem")):
        for sigma in sizes:
            write_scores(tmp_path / side / str(sigma), GOOD, algorithms={"ars": {"sigma": sigma}})
        for name in ("snes", other):
            write_scores(tmp_path / side, GOOD, algorithms={name: {}})
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    names = [(pair.first.name, pair.second.name) for pair in sides.pairs]
    (name,) = [first for first, _ in names if first.startswith("ars #")]
    assert names == [(name, name), ("snes", "snes")]
    (note,) = [note for note in sides.notes if note.startswith("Not compared")]
    assert (note.count("ars #"), name in note) == (2, False)
    assert {"pgpe on CartPole-v1", "cem on CartPole-v1"} < {*note.rstrip(".").split(", ")}


def test_unequal_and_unfinished_seeds_are_named(tmp_path: Path) -> None:
    write_scores(tmp_path / "a", GOOD[:3])
    write_scores(tmp_path / "b", GOOD)
    write_one(tmp_path / "a", 9, "Traceback")
    notes = " ".join(compare_sides(str(tmp_path / "a"), str(tmp_path / "b")).notes)
    for words in ("fewer than 10 seeds", "Unequal numbers", "too narrow", "1 trial without a sco"):
        assert words in notes


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {"budget": {"env_steps": 2000}}, "budget.env_steps (1000, 2000)."),
        ({}, {"policy": {"hidden": [16]}}, "policy.settings.hidden ([64, 64], [16])."),
        ({"kwargs": {"sutton": True}}, {}, "environment.kwargs.sutton (true, none)."),
        ({"kwargs": {"sutton": {"a": 1}}}, {}, "environment.kwargs.sutton.a (1, none)."),
        # The labels stand for the settings of an algorithm or a policy.
        ({"algorithms": {"wide": {"algorithm": "openai_es", "sigma": 0.3}}}, {}, None),
        ({"policies": {"large": {"hidden": [8]}}}, {}, None),
    ],
)
def test_settings_that_differ_are_named(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], said: str | None
) -> None:
    for side, grid in (("a", first), ("b", second)):
        table = {"environment": {"CartPole-v1": grid}} if "kwargs" in grid else grid
        write_scores(tmp_path / side, GOOD, **table)
    found = compare_sides(str(tmp_path / "a"), str(tmp_path / "b")).notes
    notes = [note for note in found if "differ in" in note]
    assert len(notes) == (said is not None)
    assert all(note.startswith("CartPole-v1: A and B differ in ") for note in notes)
    assert said is None or notes[0].endswith(said)


@pytest.mark.usefixtures("two")
def test_csv_and_json_have_the_numbers_of_the_frame(esbench: Run) -> None:
    frame = comparison_frame(compare_sides("a", "b"))
    text = esbench("compare", "a", "b", "--format", "csv")[1]
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(text)), frame)
    content = json.loads(esbench("compare", "a", "b", "--format", "json")[1])
    found = [pair["comparison"]["difference"]["value"] for pair in content["pairs"]]
    assert found == frame["difference"].tolist()
    assert content["outcome"] == frame.attrs["outcome"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none", "a"], "no folder 'none'; expected two output folders, or --in DIR"),
        (["a", "c"], "nothing to compare: a has openai_es on CartPole-v1, c has openai_es on Ac"),
        (["a", "d"], "openai_es on CartPole-v1 has no finished trial"),
        (["openai_es", "openai_es", "--in", "a"], "openai_es and openai_es have trials in common"),
        (["a", "linked"], "a and linked have trials in common"),
        (["a", "joined"], "a and joined have trials in common, or copies"),
    ],
)
def test_bad_input_is_one_sentence(
    esbench: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    write_scores(tmp_path / "a", GOOD)
    edit(tmp_path / "a", "result.json", lambda result: result.update(generations=2, rows=""))
    merge([tmp_path / "a"], tmp_path / "joined")
    write_scores(tmp_path / "joined", [470.0], seeds=[20])
    write_scores(tmp_path / "c", GOOD, environments=["Acrobot-v1"])
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    write_one(tmp_path / "d", 9, "Traceback")
    code, _, err = esbench("compare", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert words in err
