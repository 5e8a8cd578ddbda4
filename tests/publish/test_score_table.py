import csv
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from command_line import finished
from fake_cells import make_cell
from fake_trials import COMMAND, edit, make_records, make_trials, write_scores, write_trial
from scipy.stats import trim_mean

from esbench.core.errors import UsageError
from esbench.grids.environment_files import RandomScore, Scores
from esbench.publish.tables.comparison_table import compare_sides
from esbench.publish.tables.render_table import Sheet, as_csv, as_latex, export, records
from esbench.publish.tables.score_table import COLUMNS, score_frame, score_table, sheet, wide_sheet
from esbench.results.cell import Cell
from esbench.results.sources import read_folder
from esbench.store.trial_folder import keep_selected_score

ENVIRONMENT = """
[scores]
random = {{ mean = 20.0, std = 5.0, episodes = 100, command = "esbench eval --random-policy" }}
[[scores.references]]
method = "OpenAI-ES"
score = 120.0
source = "table 1 of a_paper"
comparable = false
note = "50 % longer episodes"
[[scores.references]]
method = "Second"
score = 1.0
source = "another"
comparable = true
"""


@pytest.fixture
def _scores_of_cartpole(freeze: Callable[..., None]) -> None:
    freeze("CartPole-v1", text=ENVIRONMENT)


def notes_with(rows: list[Cell], words: str) -> list[str]:
    return [note for note in sheet(rows).notes if words in note]


@pytest.mark.usefixtures("_scores_of_cartpole")
def test_a_row_has_scores_cost_reference_and_command(tmp_path: Path) -> None:
    trials = make_trials(tmp_path / "run", seeds=[0, 1, 2, 3])
    for trial, score, cost in zip(trials, (10.0, None, 20.0, 90.0), (1, 9, 1, 4), strict=True):
        write_trial(trial, make_records([1.0] * cost), score, wall_time_s=float(cost))
    rows = score_table(tmp_path / "run")
    (row,) = records(COLUMNS, rows)
    low, high = row.pop("low"), row.pop("high")
    assert 10 <= low < 40 < high <= 90
    assert {key: value for key, value in row.items() if value not in ("", (), 0.0, None)} == {
        "environment": "CartPole-v1",
        "algorithm": "openai_es",
        "policy": "default",
        "score": 40.0,
        "seeds": 3,
        "unfinished": 1,
        "env_steps": 200.0,
        "wall_time_s": 2.0,
        "random_score": 20.0,
        "reference_score": 120.0,
        "reference_method": "OpenAI-ES",
        "reference_source": "table 1 of a_paper",
        "reference_note": "50 % longer episodes",
        "normalized": 0.2,
        "commands": (COMMAND,),
        "hardware": ("Test CPU, 2 cores",),
        "trials": tuple(str(tmp_path / f"run/CartPole-v1/openai_es/seed-{n}") for n in (0, 2, 3)),
        "scores": (10.0, 20.0, 90.0),
        "tail": pytest.approx(math.nan, nan_ok=True),
        "selected": pytest.approx(math.nan, nan_ok=True),
        "variety": "varied",
        "statistic": "mean",
        "budget": 1000,
    }
    assert row["reference_comparable"] is False
    assert notes_with(rows, "1 trial without a score")


@pytest.mark.usefixtures("_scores_of_cartpole")
@pytest.mark.parametrize(
    "changed",
    [
        {"kwargs": {"sutton_barto_reward": True}},
        {"wrappers": [{"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 3}]},
    ],
)
def test_frozen_scores_do_not_hold_for_a_changed_environment(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    environment = {"CartPole-v1": changed}
    write_scores(tmp_path / "run", [10.0, 20.0, 90.0], environment=environment)
    (row,) = score_table(tmp_path / "run")
    assert math.isnan(row.random_score)
    assert not row.has_scale
    assert row.reference is None


@pytest.mark.usefixtures("freeze")
def test_rows_are_sorted_by_environment_then_score_with_the_missing_last(tmp_path: Path) -> None:
    names = {"random_search": 3.0, "openai_es": 7.0}
    for name, score in names.items():
        write_scores(tmp_path / name, [score], algorithms={name: {}})
    for trial in make_trials(tmp_path / "c", algorithms={"b": {"algorithm": "openai_es"}}):
        write_trial(trial)
    write_scores(tmp_path / "d", [-5.0], environments=["Acrobot-v1"])
    rows = score_table(tmp_path)
    assert [(row.environment, row.algorithm) for row in rows] == [
        ("Acrobot-v1", "openai_es"),
        ("CartPole-v1", "openai_es"),
        ("CartPole-v1", "random_search"),
        ("CartPole-v1", "b"),
    ]


@pytest.mark.usefixtures("_scores_of_cartpole")
def test_a_run_that_diverged_counts_as_the_worst_of_its_row_or_of_random_actions(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path / "a", [300.0, 301.0, 302.0, 303.0, 304.0])
    diverging = [490.0, 495.0, 500.0, math.nan, math.nan, math.nan]
    write_scores(tmp_path / "b", diverging, algorithms={"snes": {}})
    write_scores(tmp_path / "c", [math.nan] * 3, algorithms={"ars": {}})
    first, second, last = score_table(tmp_path)
    assert (first.algorithm, first.standing, first.diverged) == ("openai_es", "best", 0)
    assert (second.algorithm, second.unfinished, second.diverged) == ("snes", 0, 3)
    assert sorted(second.scores) == [20.0, 20.0, 20.0, 490.0, 495.0, 500.0]  # 20: random actions
    assert second.score == trim_mean(second.scores, 0.25)
    assert (last.algorithm, last.scores, last.diverged) == ("ars", (), 3)
    assert all(math.isnan(row.score) == (row is last) for row in (first, second, last))
    (note,) = notes_with([first, second, last], "the worst of the row and the random policy")
    assert note.startswith("snes on CartPole-v1: 3 runs diverged")
    (note,) = notes_with([first, second, last], "The row has no score")
    assert note.startswith("ars on CartPole-v1: 3 runs diverged")
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    assert sides.pairs[0].comparison.second == second.score
    with pytest.raises(UsageError, match="finite"):
        compare_sides(str(tmp_path / "a"), str(tmp_path / "c"))
    write_scores(tmp_path / "d", [-900.0] * 3, algorithms={"pgpe": {}})
    again = {row.algorithm: (row.score, row.standing) for row in score_table(tmp_path)}
    assert again["openai_es"] == (first.score, "best")
    assert again["snes"] == (second.score, second.standing)  # a worse row changes no other one


@pytest.mark.usefixtures("freeze")
def test_without_a_random_score_a_run_that_diverged_counts_as_the_worst_of_all(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path, [3.0, 4.0, 5.0, math.nan])
    write_scores(tmp_path, [1.0, 2.0, 3.0, 4.0], algorithms={"snes": {}})
    first, second = sorted(score_table(tmp_path), key=lambda row: row.algorithm)
    assert first.scores == (3.0, 4.0, 5.0, 1.0)
    assert len(notes_with([first, second], "the worst of all rows")) == 1
    notes = compare_sides("openai_es", "snes", tmp_path).notes
    assert any("the worst of both sides" in note for note in notes)
    known = replace(
        second, frozen=Scores(random=RandomScore(mean=2.0, std=1.0, episodes=9, command="x"))
    )
    assert len(notes_with([first, known], "the worst of all rows")) == 1


def test_what_is_unfinished_changes_no_other_row_of_an_environment_without_a_file(
    tmp_path: Path,
) -> None:
    """Only finished trials record the score of random actions there."""
    own: dict[str, Any] = {"environments": ["doubles:Walk-v0"]}
    trials = write_scores(tmp_path, [-12.0, -11.0, -10.0, math.nan], **own)
    trials += write_scores(tmp_path, [-40.0, -30.0, -20.0], algorithms={"snes": {}}, **own)
    for trial in trials:
        trial.record_scores(RandomScore(mean=-13.0, std=1.0, episodes=100, command="x"))
    before = {row.algorithm: (row.scores, row.standing) for row in score_table(tmp_path)}
    assert before["openai_es"][0] == (-12.0, -11.0, -10.0, -13.0)
    for number, error in enumerate(("", "it has failed")):
        names = {f"late_{number}": {"algorithm": "pgpe"}}
        for trial in make_trials(tmp_path, seeds=[0], algorithms=names, **own):
            write_trial(trial, error=error)
        rows = {row.algorithm: row for row in score_table(tmp_path)}
        for name, known in before.items():
            assert (rows[name].scores, rows[name].standing) == known
        assert rows[f"late_{number}"].random_score == -13.0
    edit(trials[0].folder.path, "trial.json", lambda table: table.pop("scores"))
    again, *_ = score_table(tmp_path)
    assert (again.scores, again.scores_differ) == (before["openai_es"][0], False)


@pytest.mark.usefixtures("freeze")
def test_selected_scores_stand_beside_the_scores_of_the_last_policies(tmp_path: Path) -> None:
    trials = write_scores(tmp_path / "a", [1.0, 2.0, 6.0, 7.0])
    write_scores(tmp_path / "b", [3.0], algorithms={"random_search": {}})
    plain = score_table(tmp_path)
    assert "Selected" not in sheet(plain).header
    with pytest.raises(UsageError, match="eval --all --which best"):
        score_table(tmp_path, selected=True)
    best = [9.0, 4.0, 5.0, 90.0]
    for trial, score in zip(trials, best, strict=True):
        keep_selected_score(trial.folder, 7, {"score": score, "returns": [score]})
    rows = score_table(tmp_path, selected=True)
    assert [row.selected for row in rows] == [
        trim_mean(best, 0.25),
        pytest.approx(math.nan, nan_ok=True),
    ]
    assert [row.scores for row in rows] == [row.scores for row in plain]
    table = sheet(rows, terminal=True)
    column = table.header.index("Selected")
    assert [cells[column] for cells in table.body] == ["7.0", "-"]
    # An extended trial has another last policy: what was selected before is void.
    edit(trials[0].folder.path, "result.json", lambda content: content.update(digest="f" * 64))
    with pytest.raises(UsageError):
        score_table(tmp_path, selected=True)


@pytest.mark.usefixtures("freeze")
def test_the_tail_is_the_mean_over_all_seeds_of_the_worst_tenth_of_the_episodes(
    tmp_path: Path,
) -> None:
    episodes = np.random.default_rng(0).permuted(np.arange(80.0).reshape(4, 20), axis=1)
    episodes[0] -= 100.0
    for trial, returns in zip(write_scores(tmp_path, [50.0] * 4), episodes, strict=True):
        edit(trial.folder.path, "result.json", partial(dict.update, returns=list(returns)))
    rows = score_table(tmp_path)
    worst = [np.sort(returns)[:2].mean() for returns in episodes]  # -99.5, 20.5, 40.5, 60.5
    assert rows[0].tail == np.mean(worst) == 5.5
    assert score_frame(rows)["tail"].tolist() == [5.5]
    assert "Tail" not in sheet(rows, terminal=True).header
    for terminal in (False, True):
        table = sheet(rows, terminal=terminal, tail=True)
        assert table.body[0][table.header.index("Tail")] == "5.5"
    assert wide_sheet(rows, tail=True).body[0][1] == "50.0\n(5.5)"
    edit(trial.folder.path, "result.json", lambda content: content.pop("returns"))
    assert math.isnan(score_table(tmp_path)[0].tail)


@pytest.mark.usefixtures("freeze")
def test_trials_of_other_settings_are_never_pooled(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write_scores(tmp_path / name, [1.0, 2.0], environments=[name])
        more = {"env_steps": 2000}
        write_scores(tmp_path / "long" / name, [5.0, 6.0], environments=[name], budget=more)
    rows = score_table(tmp_path)
    assert [(row.score, row.differs) for row in rows] == [
        (5.5, ("budget.env_steps=2000",)),
        (1.5, ("budget.env_steps=1000",)),
    ] * 2
    first, second, *others = (row.algorithm for row in rows)
    assert [first, second] == others  # the same labels in every environment
    assert first.startswith("openai_es #")
    assert first != second
    assert notes_with(rows, f"{first} on CartPole-v1: budget.env_steps=2000")
    assert notes_with(rows, "Acrobot-v1, CartPole-v1: different budgets of steps (1.0 k, 2.0 k)")


@pytest.mark.usefixtures("freeze")
def test_the_same_trial_in_two_folders_counts_once_and_the_done_one_counts(tmp_path: Path) -> None:
    write_trial(make_trials(tmp_path / "a")[0], make_records([1.0]))
    write_scores(tmp_path / "b", [1.0, 2.0])
    (cell,) = read_folder(tmp_path)
    assert [run.folder.path.parts[-4] for run in cell.runs] == ["b", "b"]
    (row,) = score_table(tmp_path)
    assert row.score == 1.5
    assert notes_with([row], str(tmp_path / "a"))
    with pytest.raises(UsageError, match="same trial"):
        compare_sides("openai_es", "openai_es", tmp_path)


def test_csv_and_json_have_every_field_in_full_precision() -> None:
    rows = [make_cell(0.1 + 0.2, commands=("a, b", "c"))]
    header, cells = csv.reader(as_csv(records(COLUMNS, rows)).splitlines())
    values = dict(zip(header, cells, strict=True))
    assert header == [column.key for column in COLUMNS if column.key]
    assert (values["score"], values["commands"]) == (str(0.1 + 0.2), "a, b; c")
    assert values["random_score"] == values["reference_comparable"] == ""
    text = export(Sheet([], [], ["a note"]), records(COLUMNS, rows), "json")
    content = json.loads(text, parse_constant=pytest.fail)
    (stored,) = content["rows"]
    assert list(stored) == header
    assert (stored["score"], stored["commands"]) == (0.1 + 0.2, ["a, b", "c"])
    assert stored["random_score"] is None
    assert content["footnotes"] == ["a note"]
    page = ROOT / "docs" / "how-to" / "tables-and-figures.md"
    assert {*header} <= {*re.findall(r"`(\w+)`", page.read_text(encoding="utf-8"))}


def test_the_best_of_an_environment_and_what_is_tied_with_it_are_marked(tmp_path: Path) -> None:
    for name, shift in (("openai_es", 0.0), ("snes", -2.0), ("ars", -200.0)):
        scores = [480.0 + seed + shift for seed in range(8)]
        write_scores(tmp_path, scores, algorithms={name: {}})
    write_scores(tmp_path, [-90.0] * 8, environments=["Acrobot-v1"])
    rows = score_table(tmp_path)
    assert [(row.algorithm, row.standing) for row in rows] == [
        ("openai_es", ""),  # alone on Acrobot
        ("openai_es", "best"),
        ("snes", "tied"),
        ("ars", ""),
    ]
    texts = [cells[2] for cells in sheet(rows).body]
    assert texts == ["-90.0", "483.5 *", "481.5 =", "283.5"]
    latex = as_latex(sheet(rows))
    assert [line.partition("}")[0] for line in latex.split(r"\textbf{")[1:]] == ["483.5 *"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 9}, "fewer than 10 seeds"),
        ({"seeds": 5}, "too narrow"),
        ({"seeds": 2}, "no interval"),
        ({"unfinished": 1}, "1 trial without a score"),
        ({"scores_differ": True}, "different scores of random policy"),
        ({"twice": (Path("a"), Path("b"))}, "a and b hold the same trial"),
        ({"differs": ("sigma=2",)}, "sigma=2"),
        ({"commands": ("one", "two")}, "Made by: two"),
        ({"tail": 1.0}, "Tail: "),
        ({"selected": 1.0}, "Selected: "),
        ({"random": 0.0, "reference": 1.0}, "Normalized: "),
        ({"reference": 1.0, "note": "longer"}, "[1] HalfCheetah-v5: A, a paper; NOT comparable (l"),
        ({"reference": 1.0, "reference_steps": 5e5}, "a paper, 500 k steps; NOT comparable"),
        ({"statistic": "tail"}, "worst 10 %"),
    ],
)
def test_a_footnote_says_what_weakens_or_explains_a_row(
    changes: dict[str, Any], words: str
) -> None:
    assert not notes_with([make_cell()], words)
    assert notes_with([make_cell(**changes)], words)


def test_a_command_names_few_of_its_rows() -> None:
    cells = [make_cell(algorithm=f"a{number}", commands=("one",)) for number in range(5)]
    for number, names in ((3, "a0, a1, a2"), (4, "a0, a1, and 2 more")):
        other = make_cell(algorithm="b", commands=("two",))
        (note,) = notes_with([*cells[:number], other], ": one")
        assert note.replace(" on HalfCheetah-v5", "") == f"Made by ({names}): one"
    assert notes_with(cells, "Made by: one")


@pytest.mark.parametrize(("seeds", "shown"), [(1, False), (2, True)])
def test_of_one_seed_nothing_is_left_out(seeds: int, shown: bool) -> None:
    assert bool(notes_with([make_cell(seeds=seeds)], "IQM: leaves out")) == shown


@pytest.mark.parametrize(("seeds", "marked"), [(2, False), (3, True)])
def test_with_fewer_than_three_seeds_nothing_is_marked(
    tmp_path: Path, seeds: int, marked: bool
) -> None:
    for name, score in (("openai_es", 500.0), ("snes", 480.0)):
        write_scores(tmp_path, [score] * seeds, algorithms={name: {}})
    rows = score_table(tmp_path)
    sheets = sheet(rows), wide_sheet(rows)
    for shown in sheets:
        assert bool(shown.best) == marked
        assert any(note.startswith("*: ") for note in shown.notes) == marked
        assert (r"\textbf" in as_latex(shown)) == marked
    assert any(row.standing for row in rows) == marked


def test_algorithms_are_summed_up_over_environments(tmp_path: Path) -> None:
    for environment, best in (("CartPole-v1", 500.0), ("Acrobot-v1", -82.884)):
        for name in ("openai_es", "snes"):
            scores = [best] * 4 if name == "openai_es" else [best, best, best, 22.63 - 500]
            write_scores(tmp_path, scores, environments=[environment], algorithms={name: {}})
    write_scores(tmp_path, [1.0] * 4, algorithms={"ars": {}})  # in one environment only
    rows = score_table(tmp_path)
    lines = notes_with(rows, "Over all")
    assert lines[0] == (
        "Over all environments, normalized: openai_es: IQM 1.00 [1.00, 1.00], mean 1.00, "
        "median of the environments' means 1.00, optimality gap 0.00."
    )
    assert lines[1].startswith("Over all environments, normalized: snes: IQM 1.00 [")
    assert len(lines) == 2
    # SNES: of four runs a side one is far below random: -1.05 and 0.05 of the range.
    cart, acro = (22.63 - 500 - 22.63) / (500 - 22.63), (22.63 - 500 + 499.31) / (-82.884 + 499.31)
    mean = ((3 + cart) / 4 + (3 + acro) / 4) / 2
    assert f"mean {mean:.2f}" in lines[1]
    assert f"optimality gap {1 - mean:.2f}" in lines[1]
    assert notes_with(rows, "Not over all environments: ars.")
    one = [row for row in rows if row.environment == "CartPole-v1"]
    assert not notes_with(one, "ver all")


def test_a_table_loads_no_slow_package(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write_scores(tmp_path, [1.0, 2.0, 3.0], environments=[name])
        write_scores(tmp_path, [4.0, 5.0, 6.0], environments=[name], algorithms={"snes": {}})
    code = (
        "import sys; from pathlib import Path; "
        "from esbench.publish.tables import score_table; "
        "import esbench.publish.tables.efficiency_table; "
        "rows = score_table.score_table(Path(sys.argv[1])); "
        "notes = score_table.sheet(rows).notes; "
        "assert any('IQM 0.' in note for note in notes) and rows[0].standing == 'best'; "
        "loaded = {'matplotlib', 'scipy', 'rich', 'pandas'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(loaded)) or 0)"
    )
    assert finished("-c", code, str(tmp_path)) == (0, "", "")
