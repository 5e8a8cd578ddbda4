import io
import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from command_line import Run
from fake_trials import edit, make_trials, write_scores, write_trial

from esbench.core.errors import UsageError
from esbench.publish.tables.comparison_table import (
    as_markdown,
    compare_sides,
    comparison_frame,
    outcome,
    sheet,
)
from esbench.publish.tables.score_table import score_table

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
    assert cells["p"] == f"{cartpole.p_value:.2g}"
    assert sides.across is not None
    assert sides.across[1].value == pytest.approx(0.75)
    assert outcome(sides).startswith("a against b: better on 1, worse on 0, not ")
    assert outcome(sides).endswith(" on 1 of 2")
    assert outcome(compare_sides("b", "a")).startswith("b against a: better on 0, worse on 1")


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
    assert "Tails" in as_markdown(sides)
    shutil.copytree("b", "c")
    assert "Tails" not in as_markdown(compare_sides("b", "c"))


@pytest.mark.usefixtures("two")
def test_sides_without_spread_are_told_apart(tmp_path: Path) -> None:
    write_scores(tmp_path / "high", [500.0] * 8)
    write_scores(tmp_path / "low", [400.0] * 8)
    assert outcome(compare_sides("high", "low")) == "high is better than low"
    assert outcome(compare_sides("low", "high")) == "low is worse than high"
    write_scores(tmp_path / "same", [400.0] * 8)
    assert outcome(compare_sides("low", "same")) == "low and same are not significantly different"


def test_better_is_what_the_test_says_and_not_what_most_runs_do(tmp_path: Path) -> None:
    # Three quarters of the runs are a little better and the others far worse: the interquartile
    # means differ upwards and the means, which are tested, downwards.
    write_scores(tmp_path / "a", [401.0] * 18 + [5.0] * 6)
    write_scores(tmp_path / "b", [400.0 + seed / 100 for seed in range(24)])
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    assert sides.pairs[0].comparison.improvement.value > 0.5
    assert sides.pairs[0].comparison.difference.value > 0
    assert " is worse than " in outcome(sides)


def test_sides_that_share_trials_are_refused(tmp_path: Path) -> None:
    *_, last = write_scores(tmp_path / "a", GOOD)
    linked = tmp_path / "b" / last.folder.path.relative_to(tmp_path / "a")
    linked.parent.mkdir(parents=True)
    linked.symlink_to(last.folder.path)
    with pytest.raises(UsageError, match="trials in common"):
        compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))


def test_intervals_that_are_not_shown_are_not_called_narrow(tmp_path: Path) -> None:
    for seeds in (1, 4):
        write_scores(tmp_path / "a", GOOD[:1])
        write_scores(tmp_path / f"b{seeds}", BAD[:seeds])
        sides = compare_sides(str(tmp_path / "a"), str(tmp_path / f"b{seeds}"))
        assert not any("narrow" in note for note in sides.notes)


def test_two_algorithms_of_one_folder(tmp_path: Path) -> None:
    for name, scores in (("ars", GOOD), ("snes", BAD), ("openai_es", BAD)):
        write_scores(tmp_path, scores, algorithms={name: {}})
    sides = compare_sides("ars", "snes", tmp_path)
    (pair,) = sides.pairs
    assert (pair.first_name, pair.second_name) == ("ars", "snes")
    assert pair.comparison.difference.value == pytest.approx(100)
    with pytest.raises(UsageError, match=r"unknown algorithm in .* 'snse'; did you mean 'snes'"):
        compare_sides("ars", "snse", tmp_path)


def test_the_name_of_an_algorithm_stands_for_its_only_row(tmp_path: Path) -> None:
    sweep = {
        "one": {"algorithm": "ars"},
        "low": {"algorithm": "snes"},
        "high": {"algorithm": "snes"},
    }
    for label, settings in sweep.items():
        write_scores(tmp_path, GOOD, algorithms={label: settings})
    assert compare_sides("ars", "low", tmp_path).pairs[0].first_name == "one"
    with pytest.raises(UsageError, match=r"'snes' has several rows in .*; expected .* high, low"):
        compare_sides("ars", "snes", tmp_path)


def test_several_algorithms_on_both_sides_are_paired_by_name(tmp_path: Path) -> None:
    for side, name in (("a", "ars"), ("a", "snes"), ("b", "snes"), ("b", "openai_es")):
        write_scores(tmp_path / side, GOOD, algorithms={name: {}})
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [(pair.first_name, pair.second_name) for pair in sides.pairs] == [("snes", "snes")]
    (note,) = [note for note in sides.notes if note.startswith("On one side only")]
    assert "ars on CartPole-v1" in note
    assert "openai_es on CartPole-v1" in note


def test_several_settings_of_a_name_are_paired_with_equal_settings(tmp_path: Path) -> None:
    for side, sizes in (("a", (0.1, 0.2)), ("b", (0.2, 0.3))):
        for sigma in sizes:
            write_scores(tmp_path / side / str(sigma), GOOD, algorithms={"ars": {"sigma": sigma}})
        write_scores(tmp_path / side, GOOD, algorithms={"snes": {}})
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    names = [(pair.first_name, pair.second_name) for pair in sides.pairs]
    (name,) = [first for first, _ in names if first.startswith("ars #")]
    assert names == [(name, name), ("snes", "snes")]
    assert not [note for note in sides.notes if note.startswith("On one side only")]
    (note,) = [note for note in sides.notes if note.startswith("Not compared")]
    assert note.count("ars #") == 2
    assert name not in note


def test_what_to_beware_of_is_said(tmp_path: Path) -> None:
    write_scores(tmp_path / "a", GOOD[:3])
    write_scores(tmp_path / "b", GOOD, budget={"env_steps": 2000})
    (trial,) = make_trials(tmp_path / "a", seeds=[9])
    write_trial(trial, error="Traceback")
    notes = " ".join(sheet(compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))).notes)
    assert "Fewer than 10 seeds" in notes
    assert "Unequal numbers of seeds" in notes
    assert "fewer than 6 seeds the intervals are too narrow" in notes
    assert "1 trial without a score left out" in notes
    assert "CartPole-v1: A and B differ in budget.env_steps (1000, 2000)." in notes


def test_a_setting_that_one_side_lacks_is_named_once(tmp_path: Path) -> None:
    write_scores(tmp_path / "a", GOOD, environment={"CartPole-v1": {"kwargs": {"sutton": True}}})
    write_scores(tmp_path / "b", GOOD)
    notes = " ".join(compare_sides(str(tmp_path / "a"), str(tmp_path / "b")).notes)
    assert "A and B differ in environment.kwargs.sutton (true, none)." in notes
    nested = {"CartPole-v1": {"kwargs": {"sutton": {"a": 1}}}}
    write_scores(tmp_path / "c", GOOD, environment=nested)
    notes = " ".join(compare_sides(str(tmp_path / "c"), str(tmp_path / "b")).notes)
    assert "A and B differ in environment.kwargs.sutton.a (1, none)." in notes


def test_algorithms_of_one_environment_are_told_apart(tmp_path: Path) -> None:
    algorithms = ("openai_es", "snes")
    for name in algorithms:
        write_scores(tmp_path / "a", GOOD, algorithms={name: {}})
        write_scores(tmp_path / "b", GOOD, algorithms={name: {}}, budget={"env_steps": 2000})
    notes = compare_sides(str(tmp_path / "a"), str(tmp_path / "b")).notes
    said = "A and B differ in budget.env_steps (1000, 2000)."
    assert [note for note in notes if said in note] == [
        f"CartPole-v1 {name}: {said}" for name in algorithms
    ]


def test_settings_that_differ_are_named_unless_the_labels_stand_for_them(tmp_path: Path) -> None:
    policies = {"small": {"hidden": [4]}, "large": {"hidden": [8]}}
    algorithms = {"openai_es": {"sigma": 0.1}, "wide": {"algorithm": "openai_es", "sigma": 0.3}}
    for label, settings in algorithms.items():
        for policy, layers in policies.items():
            given = {"algorithms": {label: settings}, "policies": {policy: layers}}
            write_scores(tmp_path / "a", GOOD, **given)

    def apart(first: str, second: str, root: Path | None = None) -> list[str]:
        sides = (first, second) if root else (str(tmp_path / first), str(tmp_path / second))
        return [note for note in compare_sides(*sides, root).notes if "differ in" in note]

    assert apart("openai_es small", "wide small", tmp_path / "a") == []
    assert apart("openai_es small", "openai_es large", tmp_path / "a") == []
    many = {"sigma": 0.9, "learning_rate": 0.3, "shaping": "raw", "weight_decay": 0.1}
    many |= {"antithetic": False, "optimizer": "sgd", "center_init": 1.0, "sigma_decay": 0.9}
    write_scores(tmp_path / "b", GOOD, policy={"hidden": [16]})
    write_scores(tmp_path / "c", BAD, policy={"hidden": [4]})
    write_scores(tmp_path / "d", BAD, policy={"hidden": [4]}, algorithms={"openai_es": many})
    (said,) = apart("b", "c")
    assert said == "CartPole-v1: A and B differ in policy.settings.hidden ([16], [4])."
    (said,) = apart("b", "d")
    assert said.count(";") == 8
    assert said.endswith("; and 1 more.")


@pytest.mark.usefixtures("two")
def test_every_format(esbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = esbench("compare", "a", "b")
    assert code == 0
    table, _, _ = out.partition("Scores:")
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert out.splitlines()[-1].startswith("a against b: better on 1")
    assert "100.0" in out
    content = json.loads(esbench("compare", "a", "b", "--format", "json")[1])
    assert content["pairs"][1]["comparison"]["difference"]["value"] == pytest.approx(100)
    assert content["outcome"].startswith("a against b")
    text = esbench("compare", "a", "b", "--format", "markdown")[1]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert len({row.count("|") for row in rows}) == 1
    assert "p: two-sided permutation test" in text.partition("better on 1")[2]
    frame = pd.read_csv(io.StringIO(esbench("compare", "a", "b", "--format", "csv")[1]))
    pd.testing.assert_frame_equal(frame, comparison_frame(compare_sides("a", "b")))
    text = esbench("compare", "a", "b", "--format", "latex")[1]
    assert r"\begin{tabular}{lrrrrrr}" in text
    assert "better on 1" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none", "a"], "no folder 'none'; expected two output folders, or --in DIR"),
        (["a", "c"], "nothing to compare: a has openai_es on CartPole-v1, c has openai_es on Ac"),
        (["a", "d"], "openai_es on CartPole-v1 has no finished trial"),
        (["a", "a", "--in", "a"], "unknown algorithm in a 'a'"),
        (["openai_es", "openai_es", "--in", "a"], "openai_es and openai_es have trials in common"),
        (["a", "./a"], "a and ./a have trials in common"),
    ],
)
def test_bad_input_is_one_sentence(
    esbench: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    write_scores(tmp_path / "a", GOOD)
    write_scores(tmp_path / "c", GOOD, environments=["Acrobot-v1"])
    (trial,) = make_trials(tmp_path / "d", seeds=[9])
    write_trial(trial, error="Traceback")
    code, _, err = esbench("compare", *arguments)
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
