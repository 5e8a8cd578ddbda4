import csv
import dataclasses
import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import finished
from fake_trials import COMMAND, edit, make_records, make_trials, write_scores, write_trial
from rich.console import Console
from scipy.stats import trim_mean

from esbench.cli.console import sheet_table
from esbench.core.errors import UsageError
from esbench.publish.tables.comparison import compare_sides
from esbench.publish.tables.frames import score_frame
from esbench.publish.tables.render_table import as_csv, as_json, as_latex, as_markdown
from esbench.publish.tables.score_sheet import TAIL, cautions, footnotes, sheet
from esbench.publish.tables.score_table import ScoreRow, score_table
from esbench.publish.tables.wide_table import wide_sheet
from esbench.results.cells import cells
from esbench.store.selected_score import keep_selected_score

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


def make_row(**changes: Any) -> ScoreRow:
    row = ScoreRow(
        environment="HalfCheetah-v5",
        algorithm="openai_es",
        policy="default",
        score=-1234.56,
        low=-2000.0,
        high=-500.0,
        seeds=10,
        unfinished=0,
        env_steps=3_000_000.0,
        wall_time_s=185.0,
        random_score=math.nan,
        reference_score=math.nan,
        reference_method="",
        reference_source="",
        reference_comparable=None,
        reference_note="",
        normalized=math.nan,
        commands=("esbench run a",),
        hardware=(),
        differs=(),
    )
    return dataclasses.replace(row, **changes)


def printed(rows: list[ScoreRow], width: int = 80) -> list[str]:
    console, table = Console(width=width), sheet(rows, terminal=True)
    with console.capture() as capture:
        console.print(sheet_table(table, range(len(table.header)), width))
    return capture.get().splitlines()


def markdown(*rows: ScoreRow) -> str:
    """The Markdown of some rows, with one space around each cell."""
    return re.sub(" +", " ", as_markdown(sheet(rows)))


def test_folders_and_scores_are_of_the_same_seeds(tmp_path: Path) -> None:
    trials = make_trials(tmp_path, seeds=[0, 1, 2])
    for trial, score in zip(trials, [100.0, None, 300.0], strict=True):
        write_trial(trial, make_records([1.0, 2.0]), score)
    (row,) = score_table(tmp_path)
    seeds = [Path(folder).name for folder in row.trials]
    assert list(zip(seeds, row.scores, strict=True)) == [("seed-0", 100.0), ("seed-2", 300.0)]


def test_trials_with_other_scores_of_random_actions_have_a_note(tmp_path: Path) -> None:
    write_scores(tmp_path, [10.0, 20.0, 90.0])
    assert not score_table(tmp_path)[0].scores_differ
    random = {"mean": 1.0, "std": 1.0, "episodes": 100, "command": "none"}
    place = tmp_path / "CartPole-v1/openai_es/seed-2"
    edit(place, "trial.json", lambda content: content.update(scores={"random": random}))
    (row,) = score_table(tmp_path)
    assert row.scores_differ
    alike = dataclasses.replace(row, scores_differ=False)
    assert len(cautions([row])) == len(cautions([alike])) + 1


@pytest.mark.usefixtures("_scores_of_cartpole")
def test_a_row_has_scores_cost_reference_and_command(tmp_path: Path) -> None:
    trials = make_trials(tmp_path / "run", seeds=[0, 1, 2])
    for trial, score, cost in zip(trials, (10.0, 20.0, 90.0), (1, 1, 4), strict=True):
        write_trial(trial, make_records([score] * cost), score, wall_time_s=float(cost))
    (row,) = score_table(tmp_path / "run")
    assert row == ScoreRow(
        environment="CartPole-v1",
        algorithm="openai_es",
        policy="default",
        score=40.0,
        low=row.low,
        high=row.high,
        seeds=3,
        unfinished=0,
        env_steps=200.0,
        wall_time_s=2.0,
        random_score=20.0,
        reference_score=120.0,
        reference_method="OpenAI-ES",
        reference_source="table 1 of a_paper",
        reference_comparable=False,
        reference_note="50 % longer episodes",
        normalized=0.2,
        commands=(COMMAND,),
        hardware=("Test CPU, 2 cores",),
        differs=(),
        budget=1000,
        trials=tuple(str(tmp_path / f"run/CartPole-v1/openai_es/seed-{n}") for n in range(3)),
        scores=(10.0, 20.0, 90.0),
    )
    assert 10 <= row.low < 40 < row.high <= 90


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
    assert math.isnan(row.normalized)
    assert row.reference_method == ""


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


@pytest.mark.usefixtures("freeze")
def test_trials_that_are_not_done_are_counted_and_left_out(tmp_path: Path) -> None:
    done, failed, partial, untouched = make_trials(tmp_path, seeds=[0, 1, 2, 3])
    write_trial(done, make_records([1.0, 2.0]), 8.0, wall_time_s=4.0)
    write_trial(failed, make_records([1.0]), error="Traceback")
    write_trial(partial, make_records([1.0]))
    assert untouched.folder.status == "missing"
    (row,) = score_table(tmp_path)
    assert (row.score, row.seeds, row.unfinished) == (8.0, 1, 2)
    assert (row.env_steps, row.wall_time_s) == (200.0, 4.0)
    assert "| 1 of 3 |" in markdown(row)
    assert any("2 trials" in note for note in footnotes([row]))


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
    assert (second.algorithm, second.seeds, second.unfinished, second.diverged) == ("snes", 6, 0, 3)
    assert sorted(second.scores) == [20.0, 20.0, 20.0, 490.0, 495.0, 500.0]  # 20: random actions
    assert second.score == trim_mean(second.scores, 0.25)
    assert (last.algorithm, last.scores, last.diverged) == ("ars", (), 3)
    assert all(math.isnan(row.score) == (row is last) for row in (first, second, last))
    assert sum("diverged" in note for note in footnotes([first, second, last])) == 2
    sides = compare_sides(str(tmp_path / "a"), str(tmp_path / "b"))
    assert sides.pairs[0].comparison.second == second.score
    with pytest.raises(UsageError, match="finite"):
        compare_sides(str(tmp_path / "a"), str(tmp_path / "c"))
    write_scores(tmp_path / "d", [-900.0] * 3, algorithms={"pgpe": {}})
    again = {row.algorithm: (row.score, row.standing) for row in score_table(tmp_path)}
    assert again["openai_es"] == (first.score, "best")
    assert again["snes"] == (second.score, second.standing)  # a worse row changes no other one


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
    assert sum(note.startswith("Selected: ") for note in table.notes) == 1
    # An extended trial has another last policy: what was selected before is void.
    edit(trials[0].folder.path, "result.json", lambda content: content.update(digest="f" * 64))
    with pytest.raises(UsageError):
        score_table(tmp_path, selected=True)


def _replace(key: str, value: Any, content: dict[str, Any]) -> None:
    content[key] = value


@pytest.mark.usefixtures("freeze")
def test_the_tail_is_the_mean_over_all_seeds_of_the_worst_tenth_of_the_episodes(
    tmp_path: Path,
) -> None:
    episodes = np.random.default_rng(0).permuted(np.arange(80.0).reshape(4, 20), axis=1)
    episodes[0] -= 100.0
    for trial, returns in zip(write_scores(tmp_path, [50.0] * 4), episodes, strict=True):
        edit(trial.folder.path, "result.json", partial(_replace, "returns", list(returns)))
    rows = score_table(tmp_path)
    worst = [np.sort(returns)[:2].mean() for returns in episodes]  # -99.5, 20.5, 40.5, 60.5
    assert rows[0].tail == np.mean(worst) == 5.5
    assert score_frame(rows)["tail"].tolist() == [5.5]
    for table, shown in (
        (sheet(rows), True),
        (sheet(rows, terminal=True), False),
        (sheet(rows, terminal=True, tail=True), True),
    ):
        assert ("Tail" in table.header) == (TAIL in table.notes) == shown
        costs = [note for note in table.notes if "time: of" in note or note.startswith("Time")]
        assert ("Time" in table.header) == bool(costs)
    assert sheet(rows).body[0][sheet(rows).header.index("Tail")] == "5.5"
    assert [cells[1] for cells in wide_sheet(rows, tail=True).body[:1]] == ["50.0\n(5.5)"]
    edit(trial.folder.path, "result.json", lambda content: content.pop("returns"))
    assert math.isnan(score_table(tmp_path)[0].tail)


@pytest.mark.usefixtures("freeze")
def test_nothing_done_still_gives_a_row(tmp_path: Path) -> None:
    write_trial(make_trials(tmp_path)[0], make_records([1.0]))
    (row,) = score_table(tmp_path)
    assert math.isnan(row.score)
    cell = "| CartPole-v1 | openai_es | - | - | 0 of 1 | - | - |"
    assert markdown(row).splitlines()[2] == cell


@pytest.mark.usefixtures("freeze")
def test_trials_of_other_settings_are_never_pooled(tmp_path: Path) -> None:
    write_scores(tmp_path / "short", [1.0, 2.0])
    write_scores(tmp_path / "long", [5.0, 6.0], budget={"env_steps": 2000})
    rows = score_table(tmp_path)
    assert [(row.score, row.seeds) for row in rows] == [(5.5, 2), (1.5, 2)]
    assert [row.differs for row in rows] == [
        ("budget.env_steps=2000",),
        ("budget.env_steps=1000",),
    ]
    assert len({row.algorithm for row in rows}) == 2
    assert all(row.algorithm.startswith("openai_es #") for row in rows)
    assert f"{rows[0].algorithm} on CartPole-v1: budget.env_steps=2000" in footnotes(rows)


@pytest.mark.usefixtures("freeze")
def test_settings_have_the_same_label_in_every_environment(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        for sigma in (0.1, 0.2):
            write_scores(
                tmp_path / name / str(sigma),
                [1.0, 2.0],
                environments=[name],
                algorithms={"openai_es": {"sigma": sigma}},
            )
    labels = {(row.algorithm, row.differs) for row in score_table(tmp_path)}
    assert len(labels) == 2


@pytest.mark.usefixtures("freeze")
def test_the_same_trial_in_two_folders_counts_once_and_the_done_one_counts(tmp_path: Path) -> None:
    write_trial(make_trials(tmp_path / "a")[0], make_records([1.0]))
    write_scores(tmp_path / "b", [1.0, 2.0])
    (cell,) = cells(tmp_path)
    assert [trial.path.parts[-4] for trial in cell.trials] == ["b", "b"]
    (row,) = score_table(tmp_path)
    assert row.score == 1.5
    assert any(str(tmp_path / "a") in note for note in footnotes([row]))
    with pytest.raises(UsageError, match="same trial"):
        compare_sides("openai_es", "openai_es", tmp_path)


@pytest.mark.usefixtures("_scores_of_cartpole")
def test_markdown(tmp_path: Path) -> None:
    write_scores(tmp_path / "run", [40.0, 40.0, 40.0])
    rows = score_table(tmp_path / "run")
    table, notes = markdown(*rows).split("\n\n")
    header, rule, body = table.splitlines()
    names = "Environment | Algorithm | Score | 95 % interval | Seeds | Steps | Time | Random"
    assert header == f"| {names} | Reference | Normalized |"
    assert [cell.strip("-") for cell in rule.split("|")[1:-1]] == [":"] * 10
    assert [cell[0] for cell in rule.split("|")[1:-1]] == [*"::", *"-" * 8]
    cells = (
        "CartPole-v1 | openai_es | 40.0 | [40.0, 40.0] | 3 | 200 | 1.5 s | 20.0 | 120.0 [1] | 0.20"
    )
    assert body == f"| {cells} |"
    assert notes.splitlines() == [f"- {note}" for note in footnotes(rows)]
    assert [note.partition(":")[0] for note in footnotes(rows)][:2] == ["Score", "Normalized"]
    assert "fewer than 10 seeds" in notes
    assert footnotes(rows)[-3:] == [
        "[1] CartPole-v1: OpenAI-ES, table 1 of a_paper; NOT comparable (50 % longer episodes)",
        "Time measured on: Test CPU, 2 cores.",
        f"Made by: {COMMAND}",
    ]
    terminal = sheet(rows, terminal=True)  # has no column of normalized scores
    assert "Normalized" not in terminal.header
    assert terminal.notes == [n for n in footnotes(rows) if not n.startswith("Normalized")]


def test_markdown_escapes_what_would_break_the_table() -> None:
    text = markdown(make_row(algorithm="a|b*_~c~", commands=("run <x> `y`\nz",)))
    assert r"| a\|b\*\_\~c\~ |" in text
    assert r"- Made by: run \<x> \`y\` z" in text


def test_policies_have_a_column_once_one_has_a_name() -> None:
    rows = [make_row(policy="mlp"), make_row()]
    assert "| openai_es | mlp |" in markdown(*rows)
    assert "| openai_es | default |" in markdown(*rows)
    assert rows[0].name == "openai_es mlp"
    assert "Policy" not in markdown(rows[1])


def test_footnotes_warn_of_few_seeds_and_name_who_made_which_row() -> None:
    few = make_row(seeds=2, low=math.nan, high=math.nan, commands=("first",))
    many = make_row(algorithm="pgpe", commands=("second",))
    ten, three, *made = footnotes([few, many])[1:]
    assert "fewer than 10 seeds" in ten
    assert "fewer than 3 seeds" in three
    assert made == [
        "Made by (openai_es on HalfCheetah-v5): first",
        "Made by (pgpe on HalfCheetah-v5): second",
    ]
    assert footnotes([many])[1:] == ["Made by: second"]


def test_what_only_one_algorithm_has_from_the_environments_file_is_said(tmp_path: Path) -> None:
    algorithms = {"openai_es": {"sigma": 0.3}, "pgpe": {}, "snes": {"sigma": 0.1}}
    names = ["CartPole-v1", "Acrobot-v1", "doubles:Walk-v0"]
    trials = make_trials(tmp_path, seeds=[0], environments=names, algorithms=algorithms)
    for trial in trials:
        write_trial(trial, make_records([1.0, 2.0]), 2.0)
    (said,) = [line for line in cautions(score_table(tmp_path)) if "environment's file" in line]
    assert said == (
        "Acrobot-v1, CartPole-v1: settings from the environment's file: openai_es "
        "(population_size, learning_rate, weight_decay); none: pgpe, snes."
    )


def test_csv_has_every_field_in_full_precision() -> None:
    header, cells = csv.reader(as_csv([make_row(commands=("a, b", "c"))]).splitlines())
    values = dict(zip(header, cells, strict=True))
    assert header == [field.name for field in dataclasses.fields(ScoreRow)]
    assert values["score"] == "-1234.56"
    assert values["random_score"] == values["reference_comparable"] == ""
    assert values["commands"] == "a, b; c"


def test_json_has_every_field_and_null_for_nan() -> None:
    row = make_row(score=0.1 + 0.2)
    content = json.loads(as_json([row], footnotes([row])), parse_constant=pytest.fail)
    (stored,) = content["rows"]
    assert stored["score"] == 0.1 + 0.2
    assert stored["random_score"] is None
    assert stored["commands"] == ["esbench run a"]
    assert content["footnotes"] == footnotes([row])


def test_the_terminal_table_fits_80_columns_and_breaks_intervals_only() -> None:
    long = {"algorithm": "nsra_es_with_a_long_label", "low": -10000.0, "high": -10000.0}
    long |= {"score": -10000.0, "reference_score": -10000.0, "reference_method": "A"}
    lines = printed([make_row(**long, seeds=9, unfinished=1, wall_time_s=3000.0)])
    assert max(map(len, lines)) <= 80
    names = ["Algorithm", "Score", "95 %", "interval", "Seeds", "Steps", "Time", "Reference"]
    cells = ["-10000", "[-10000,", "-10000]", "9 of 10", "3.0 M", "50 min 0 s"]
    for text in [*names, *cells, "-10000 [1]"]:
        assert any(text in line for line in lines), text
    row = make_row(algorithm="random_search", reference_score=4000.0, reference_method="A")
    assert [" ".join(line.split()) for line in printed([row]) if "─" not in line] == [
        "95 %",
        "Environment Algorithm Score interval Seeds Steps Time Reference",
        "HalfCheetah-v5 random_search -1235 [-2000, 10 3.0 M 3 min 5 s 4000 [1]",
        "-500.0]",
    ]


def test_the_terminal_table_is_one_line_a_row_if_it_fits() -> None:
    known = make_row(environment="Swimmer", score=36.0, low=30.0, high=40.0)
    lines = printed([dataclasses.replace(known, reference_method="A", reference_score=9.0)])
    assert [" ".join(line.split()) for line in lines if "─" not in line] == [
        "Environment Algorithm Score 95 % interval Seeds Steps Time Reference",
        "Swimmer openai_es 36.0 [30.0, 40.0] 10 3.0 M 3 min 5 s 9.0 [1]",
    ]
    assert not any("Reference" in line for line in printed([known]))  # none has one


def test_small_scores_are_legible_everywhere() -> None:
    row = make_row(score=-3.2e-9, low=-0.0041, high=-0.0, random_score=-3_172_801.0)
    numbers = "| -3.2e-09 | [-0.0041, 0.0] | 10 | 3.0 M | 3 min 5 s | -3.173e+06 |"
    assert numbers in markdown(row)
    text = " ".join(" ".join(printed([row])).split())
    assert "-3.2e-09 [-0.0041, 0.0] 10 3.0 M" in text
    assert "-3.2e-09" in as_csv([row])


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
    text = markdown(*rows)
    for mark in (r"483.5 \*", "481.5 =", "283.5 |"):
        assert mark in text
    latex = as_latex(sheet(rows))
    assert [line.partition("}")[0] for line in latex.split(r"\textbf{")[1:]] == ["483.5 *"]
    (note,) = [note for note in footnotes(rows) if note.startswith("*: ")]
    assert "=: not significantly worse" in note


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
        texts = [text for cells in shown.body for text in cells]
        assert any("*" in text or "=" in text for text in texts) == marked
        assert (r"\textbf" in as_latex(shown)) == marked
    assert any(row.standing for row in rows) == marked


def test_algorithms_are_summed_up_over_environments(tmp_path: Path) -> None:
    for environment, best in (("CartPole-v1", 500.0), ("Acrobot-v1", -82.884)):
        for name in ("openai_es", "snes"):
            scores = [best] * 4 if name == "openai_es" else [best, best, best, 22.63 - 500]
            write_scores(tmp_path, scores, environments=[environment], algorithms={name: {}})
    write_scores(tmp_path, [1.0] * 4, algorithms={"ars": {}})  # in one environment only
    rows = score_table(tmp_path)
    lines = [note for note in footnotes(rows) if note.startswith("Over all")]
    assert lines[0] == (
        "Over all environments, normalized: openai_es: IQM 1.00 [1.00, 1.00], mean 1.00, "
        "median 1.00, optimality gap 0.00."
    )
    assert lines[1].startswith("Over all environments, normalized: snes: IQM 1.00 [")
    assert len(lines) == 2
    # SNES: of four runs a side one is far below random: -1.05 and 0.05 of the range.
    cart, acro = (22.63 - 500 - 22.63) / (500 - 22.63), (22.63 - 500 + 499.31) / (-82.884 + 499.31)
    mean = ((3 + cart) / 4 + (3 + acro) / 4) / 2
    assert f"mean {mean:.2f}" in lines[1]
    assert f"optimality gap {1 - mean:.2f}" in lines[1]
    (missing,) = [note for note in footnotes(rows) if note.startswith("Not in the statistics")]
    assert missing.endswith(": ars.")
    one = [row for row in rows if row.environment == "CartPole-v1"]
    assert not any("ver all" in note for note in footnotes(one))


def test_a_table_without_statistics_over_environments_says_why(tmp_path: Path) -> None:
    for environment in ("CartPole-v1", "Acrobot-v1", "esbench/Sphere-v0"):
        write_scores(tmp_path, [1.0] * 4, environments=[environment])
    rows = score_table(tmp_path)
    bare = [row for row in rows if math.isnan(row.normalized)]
    for table, expected in (
        (rows, "Not in the statistics over all environments, .*: esbench/Sphere-v0."),
        ([*bare, rows[0]], "No statistics over all environments.*: Acrobot-v1."),
        ([*bare, dataclasses.replace(bare[0], environment="B")], "No statistics .*: none."),
    ):
        assert any(re.match(expected, note) for note in footnotes(table))


def test_an_environment_without_a_score_has_still_its_reference(tmp_path: Path) -> None:
    for environment in ("CartPole-v1", "Acrobot-v1"):
        write_scores(tmp_path, [1.0] * 4, environments=[environment])
    for trial in make_trials(tmp_path, environments=["Pendulum-v1"], algorithms={"snes": {}}):
        write_trial(trial, make_records([1.0]), error="Traceback")
    notes = [note for note in footnotes(score_table(tmp_path)) if note.startswith("Not in")]
    assert [note.rpartition(", without ")[2] for note in notes] == [
        "a score: Pendulum-v1.",
        "a score in some of them: snes.",
    ]


def test_rows_of_different_budgets_are_named(tmp_path: Path) -> None:
    for name, steps in (("openai_es", 1000), ("snes", 3000)):
        write_scores(tmp_path, [1.0] * 4, algorithms={name: {}}, budget={"env_steps": steps})
    write_scores(tmp_path, [1.0] * 4, environments=["Acrobot-v1"])
    (note,) = [note for note in footnotes(score_table(tmp_path)) if "budgets" in note]
    assert note.startswith("CartPole-v1: ")
    assert "1.0 k (openai_es); 3.0 k (snes)" in note


def test_a_table_of_tails_says_that_it_is_normalized_by_means() -> None:
    rows = [make_row(normalized=0.5, statistic=statistic) for statistic in ("mean", "tail")]
    says = ["not tails" in " ".join(footnotes([row])) for row in rows]
    assert says == [False, True]


def test_a_table_loads_no_slow_package(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Acrobot-v1"):
        write_scores(tmp_path, [1.0, 2.0, 3.0], environments=[name])
        write_scores(tmp_path, [4.0, 5.0, 6.0], environments=[name], algorithms={"snes": {}})
    code = (
        "import sys; from pathlib import Path; "
        "from esbench.publish.tables import score_sheet, score_table; "
        "import esbench.publish.figures.all_figures, esbench.publish.tables.efficiency; "
        "rows = score_table.score_table(Path(sys.argv[1])); "
        "notes = score_sheet.sheet(rows).notes; "
        "assert any('IQM 0.' in note for note in notes) and rows[0].standing == 'best'; "
        "loaded = {'matplotlib', 'scipy', 'rich', 'pandas'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(loaded)) or 0)"
    )
    assert finished("-c", code, str(tmp_path)) == (0, "", "")


def test_every_column_of_csv_is_explained() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "tables-and-figures.md"
    explained = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    assert {field.name for field in dataclasses.fields(ScoreRow)} <= explained
