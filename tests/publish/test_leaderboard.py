"""The files of a leaderboard, how trials become files, and the table of all."""

import csv
import hashlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import LEADERBOARD
from command_line import Run, execute, files, working_in
from fake_entries import fake_suite, write_board
from fake_trials import edit, set_digest
from scipy.stats import trim_mean
from trained_cell import TRAIN, Rewrite, change_policy, every, raise_scores
from typer.main import get_command

from esbench.cli.app import app
from esbench.core.errors import UsageError
from esbench.core.json_text import SEAL, as_text, sealed
from esbench.core.seeding import FIRST_TUNING_SEED
from esbench.core.settings import parse
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import open_grid
from esbench.grids.environment_files import frozen_scores
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.leaderboard import submit as submissions
from esbench.publish.leaderboard.submit import (
    NO_RESULT,
    SubmitAction,
    cautions,
    command_of_results,
    submit,
)
from esbench.publish.leaderboard.suites import read_suite
from esbench.publish.leaderboard.table import (
    COLUMNS,
    best_sheet,
    environment_notes,
    leaderboard_rows,
    leaderboard_sheet,
    policy_words,
    settings_words,
)
from esbench.publish.tables.render_table import records
from esbench.publish.tables.table_notes import TUNED
from esbench.results.cell import Cell
from esbench.results.entries import (
    Entry,
    as_file,
    read_entry,
    read_leaderboard,
    selected,
    spaced_generations,
)
from esbench.store.origin import CODE


@pytest.fixture(scope="module")
def published() -> list[Entry]:
    return read_leaderboard(LEADERBOARD)


# What trials become


def test_a_file_has_the_numbers_of_its_trials(trained: Path, path: Path) -> None:
    entry = read_entry(path)
    assert entry.seeds == (0, 1, 2, 3)
    for seed, (trial, run) in enumerate(zip(entry.cell.trials, entry.runs, strict=True)):
        folder = trained / f"seed-{seed}"
        result = json.loads((folder / "result.json").read_text())
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        returns = result["returns"]
        assert (trial.score, trial.last_digest) == (result["score"], rows[-1]["digest"])
        assert run.digests == {row["generation"]: row["digest"][:12] for row in rows}
        assert run.tail == np.mean(sorted(returns)[:2])  # of twelve
        assert run.quantiles[::4] == (min(returns), np.median(returns), max(returns))
        content = np.array(returns + result["lengths"], dtype="<f8").tobytes()
        assert run.episodes_digest == hashlib.sha256(content).hexdigest()
        center = [row["center_return"] for row in rows]
        windows = np.convolve(center, np.ones(5) / 5, "valid")
        assert run.best_center == pytest.approx(windows.max())
        assert run.best_so_far.returns[-1] == pytest.approx(run.best_center, rel=1e-5)
        best = int(windows.argmax()) + 4  # the last policy of the window
        assert run.best_so_far.env_steps[-1] == rows[best - 1]["env_steps"]
        assert run.best_so_far.steps_to(windows[0] - 0.01) == rows[3]["env_steps"]
        assert run.best_so_far.steps_to(windows.max() + 1) == np.inf
    assert entry.curves is not None
    points = len(entry.curves.env_steps)
    assert points <= 50
    for curves in (entry.curves.returns, entry.curves.ranks):
        assert [len(curve) for curve in curves] == [points] * 4
    assert entry.curves.band().iqm == pytest.approx(trim_mean(entry.curves.returns, 0.25))
    ranks = np.array(entry.curves.ranks, float)
    assert ((ranks >= 0) & (ranks <= 1)).all()


@pytest.mark.parametrize("count", [0, 1, 8, 9, 32, 33, 100, 1000, 54321])
def test_few_digests_are_kept_of_which_many_are_early(count: int) -> None:
    found = spaced_generations(count)
    assert (found[:8], found[-1:]) == ([*range(1, min(8, count) + 1)], [count][: bool(count)])
    assert len(found) <= 32
    assert all(later <= 1.5 * earlier + 1 for earlier, later in pairwise(found))


def test_published_files_are_written_to_the_same_bytes(published: list[Entry]) -> None:
    for entry in published:
        assert as_file(entry) == (LEADERBOARD / entry.file_name).read_bytes()


def test_a_file_has_the_typed_command_and_the_inherited_settings(
    trained: Path, tmp_path: Path
) -> None:
    command = "esbench run --set 'policy.hidden=[ 8,  8 ]' --set 'x=[ 8 ]'"
    edit(trained, "trial.json", lambda c: c.update(command=command, inherited=["sigma"]))
    (path,) = submit(trained, tmp_path / "board")
    entry = read_entry(path)
    assert entry.commands == (command,)
    assert entry.inherited == entry.to_cell().inherited == ("sigma",)
    (row,) = leaderboard_rows([entry])
    assert row.cell.inherited


def test_commands_lose_the_options_that_change_no_result() -> None:
    command = (
        "python -m esbench run mujoco --out /tmp/x --quiet --workers=2 --set 'a.b=[1, 2]' --keep 9"
    )
    assert command_of_results(command) == "esbench run mujoco --set 'a.b=[1, 2]'"
    command = "esbench run mujoco --engine ray --address 10.0.0.5:6379 --track wandb --seeds 0-9"
    assert command_of_results(command) == "esbench run mujoco --seeds 0-9"
    commands: Any = get_command(app)
    options = {name: each for each in commands.commands["run"].params for name in each.opts}
    assert all(takes_value is not options[name].is_flag for name, takes_value in NO_RESULT.items())


def without(trained: Path, copy: Path, *seeds: int) -> Path:
    """A copy of the trials that lacks some seeds."""
    shutil.copytree(trained, copy)
    for seed in seeds:
        shutil.rmtree(copy / f"seed-{seed}")
    return copy


def test_seeds_that_a_file_lacks_are_added(trained: Path, path: Path, tmp_path: Path) -> None:
    whole, parts = read_entry(path), tmp_path / "parts"
    first = without(trained, tmp_path / "a", 1)
    edit(first, "trial.json", lambda c: c.update(inherited=["population_size"]))
    written = submit(first, parts)
    assert list(written.values()) == [SubmitAction.WRITTEN]
    (part,) = written
    later = without(trained, tmp_path / "b", 0, 3)
    edit(later, "trial.json", lambda c: c["versions"].update(numpy="0.1"))  # another machine
    edit(later, "trial.json", lambda c: c.update(inherited=["sigma"]))
    edit(later / "seed-2", "result.json", lambda c: c.update(wall_time_s=1e3))
    assert submit(later, parts) == {part: SubmitAction.EXTENDED}
    found = read_entry(part)
    assert (found.seeds, found.runs, len(found.origins)) == ((0, 1, 2, 3), whole.runs, 2)
    assert [t.last_digest for t in found.cell.trials] == [t.last_digest for t in whole.cell.trials]
    there = [found.origins[trial.origin].versions["numpy"] for trial in found.cell.trials]
    assert [version == "0.1" for version in there] == [False, True, False, False]
    assert found.inherited == ("population_size", "sigma")
    assert found.cell.reference_score == pytest.approx(whole.cell.reference_score)
    assert found.curves is not None
    assert whole.curves is not None
    for shown, expected in zip(found.curves.returns, whole.curves.returns, strict=True):
        np.testing.assert_allclose(
            np.interp(whole.curves.env_steps, found.curves.env_steps, np.array(shown, float)),
            np.array(expected, float),
            rtol=0.2,
        )
    before = files(parts)
    for again in (later, trained):
        assert submit(again, parts) == {part: SubmitAction.UNCHANGED}
    assert files(parts) == before


def test_two_commands_at_once_keep_the_seeds_of_both(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tmp_path / "parts"
    second = without(trained, tmp_path / "b", 0)
    make = submissions.make_entry

    def make_entry(cell: Cell, pool: WorkerPool) -> Any:
        monkeypatch.setattr(submissions, "make_entry", make)
        submit(second, parts)  # while the first command plays its episodes
        return make(cell, pool)

    monkeypatch.setattr(submissions, "make_entry", make_entry)
    (path,) = submit(without(trained, tmp_path / "a", 3), parts)
    assert read_entry(path).seeds == (0, 1, 2, 3)


def raise_returns(trial: Path) -> None:
    """Edit held-out returns and their mean, so that they agree with each other."""

    def change(content: Any) -> None:
        content["returns"] = [value + 1.0 for value in content["returns"]]
        content["score"] = float(np.mean(content["returns"]))

    edit(trial, "result.json", change)


def changed(name: str, change: Callable[[Any], object] | None = None, **values: Any) -> Any:
    """An edit of one file of a trial."""
    return lambda trial: edit(trial, name, change or (lambda content: content.update(values)))


def respecified(**changes: Any) -> Callable[[Path], None]:
    """Edit a specification in all files of a trial, with its hashes."""

    def change(trial: Path) -> None:
        stored = json.loads((trial / "trial.json").read_text())["spec"]
        spec = stored | changes | {"budget": stored["budget"] | changes.get("budget", {})}
        name = parse(TrialSpec, spec, "spec").hash
        edit(trial, "trial.json", lambda c: c.update(spec=spec, hash=name))
        edit(trial, "result.json", lambda c: c.update(hash=name))
        edit(trial, "state.json", lambda c: c.update(spec=spec))

    return change


def in_all(change: Callable[[Path], object]) -> Callable[[Path], object]:
    """The same edit of all trials of a cell."""
    return lambda trial: [change(each) for each in trial.parent.iterdir()]


START = {"trial": "elsewhere", "generation": 1, "digest": "0"}
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "score": (changed("result.json", score=1e6), "1000000"),
    "not finite": (
        changed("result.json", lambda c: c.update(score=None, returns=[None, *c["returns"][1:]])),
        "finite",
    ),
    "returns": (changed("result.json", lambda c: c["returns"].pop()), "11.*12"),
    "other returns": (raise_returns, "final policy scores"),
    "digest of the rows": (lambda trial: set_digest(trial, 0), "ffff"),
    "steps": (changed("result.json", env_steps=10), "10"),
    "code": (
        changed("trial.json", resumed_with=[{"versions": {CODE: "sha256:1"}}]),
        "trained by esbench .* and sha256:1",
    ),
    "another policy": (change_policy, "final policy scores"),
    "no checkpoint": (lambda trial: shutil.rmtree(trial / "checkpoint"), "no checkpoint"),
    "older checkpoint": (
        changed("state.json", lambda c: c["state"]["progress"].update(generation=1)),
        "generation 1",
    ),
    "start": (
        in_all(changed("trial.json", lambda c: c["spec"].update(init_from=START))),
        "elsewhere",
    ),
    "more than the budget": (in_all(respecified(budget={"env_steps": 400})), "goes on after"),
    "less than the budget": (in_all(respecified(budget={"env_steps": 9000})), "ends after .* 9000"),
    "a stop": (changed("result.json", stopped="good enough"), "callback"),
    "a tuning seed": (respecified(seed=1_000_000), "for tuning"),
    "settings": (
        in_all(changed("trial.json", lambda c: c["spec"]["evaluation"].update(center=False))),
        "hash",
    ),
    "unfinished": (lambda trial: (trial / "result.json").unlink(), "not done"),
    "few seeds": (
        lambda trial: [shutil.rmtree(trial.parent / f"seed-{seed}") for seed in (2, 3)],
        "seeds 0, 1; expected 3 or more",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_trials_that_do_not_agree_with_themselves_are_refused(
    trained: Path, tmp_path: Path, name: str
) -> None:
    change, words = REFUSED[name]
    change(trained / "seed-1")
    with pytest.raises(UsageError, match=words):
        submit(trained, tmp_path / "board")
    assert not list(tmp_path.glob("board/*.json"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("trial.json", lambda c: c["labels"].update(algorithm="cma_es")), "another alg"),
        (changed("trial.json", lambda c: c["labels"].update(algorithm="openai|es")), "the labels"),
        (changed("trial.json", own_code={"my.py": "other"}), "the user code is"),
    ],
)
def test_trials_that_do_not_fit_their_file_are_refused(
    trained: Path, board: Path, change: Callable[[Path], object], words: str
) -> None:
    before = files(board)
    change(trained)
    with pytest.raises(UsageError, match=words):
        submit(trained, board)
    assert files(board) == before


def test_files_with_other_results_are_named_and_not_extended(trained: Path, tmp_path: Path) -> None:
    board = tmp_path / "board"
    with working_in(tmp_path):
        second = [word.replace("openai_es", "snes") for word in TRAIN]
        assert execute(*second, "--seeds", "0-2") == 0
    told: list[str] = []
    first, other = submit(tmp_path / "out", board, tell=told.append)
    assert told == ["0 of 2 rows", "1 of 2 rows"]
    for path in (first, other):
        content = json.loads(path.read_bytes())
        content["cell"]["trials"][0]["last_digest"] = "0" * 64
        content.pop(SEAL)
        path.write_bytes(as_file(parse(Entry, content, "file")))
    before = files(board)
    wrong = f"{first}: seed 0 has .* results of the file, .* digest 000.* {other.name}"
    with pytest.raises(UsageError, match=wrong):
        submit(tmp_path / "out", board)
    assert files(board) == before


def test_returns_are_not_compared_on_another_processor(trained: Path, tmp_path: Path) -> None:
    raise_returns(trained / "seed-1")
    edit(trained, "trial.json", lambda c: c["hardware"].update(cpu="Abacus", arithmetic=None))
    assert list(submit(trained, tmp_path / "board").values()) == [SubmitAction.WRITTEN]


def test_rows_that_others_cannot_train_again_have_a_caution(path: Path) -> None:
    entry = read_entry(path)
    origins = {
        commit: tuple(o.model_copy(update={"git_commit": commit}) for o in entry.origins)
        for commit in ("1234", "1234+", None)
    }
    plain = entry.model_copy(update={"own_code": {}, "origins": origins["1234"]})
    assert cautions(plain) == []
    for commit in ("1234+", None):
        assert len(cautions(plain.model_copy(update={"origins": origins[commit]}))) == 1
    trials = tuple(t.model_copy(update={"seed": 9 * t.seed}) for t in plain.cell.trials)
    cell = plain.cell.model_copy(update={"trials": trials})
    (text,) = cautions(plain.model_copy(update={"cell": cell}))
    assert "24 seeds between" in text
    code = {"tiny": "sha256:1", "Box2D": "2.3.10"}  # anyone can install the second
    (text,) = cautions(plain.model_copy(update={"own_code": code}))
    assert "Box2D" not in text
    assert "tiny" in text


# Files that are no entry


def of_spec(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content["cell"]["spec"].update(changes)


def of_places(*places: int) -> Callable[[Any], None]:
    """Keep or repeat some seeds."""

    def change(content: Any) -> None:
        cell = content["cell"]
        cell["trials"] = [cell["trials"][place] for place in places]
        content.update(runs=[content["runs"][place] for place in places], curves=None)

    return change


BAD_FILES: dict[str, tuple[Callable[[Any], object], str]] = {
    "another environment": (lambda c: c["cell"].update(environment="A-v5"), r"A-v5.*Walk-v0"),
    "no specification": (lambda c: c["cell"].update(spec=None), "spec"),
    "no policy": (of_spec(policy={}), "spec"),
    "few curves": (lambda c: c["curves"].update(returns=[[1.0]]), "curves"),
    "short curves": (lambda c: c["curves"].update(ranks=[[0.5]] * 4), "curves"),
    "stopped": (every(stopped="at its best"), "callback"),
    "started": (of_spec(init_from={"trial": "elsewhere"}), "elsewhere"),
    "tuned": (every(seed=lambda t: t["seed"] + FIRST_TUNING_SEED), "for tuning"),
    "labeled": (lambda c: c["cell"].update(algorithm="pepg"), "another algorithm"),
    "one seed four times": (of_places(0, 0, 0, 0), "expected 3 or more, each once"),
    "two seeds": (of_places(0, 1), "expected 3 or more, each once"),
    "high scores": (every(score=lambda t: t["score"] + 9), "seed 0: score .*; expected -"),
    "low scores": (every(score=lambda t: t["score"] - 9), "seed 0: score .*; expected -"),
    "low tails": (every(tail=lambda run: run["quantiles"][0]), "seed 0: tail .*; expected -"),
    "falling quantiles": (every(quantiles=lambda run: run["quantiles"][::-1]), "expected rising"),
    "more episodes": (every(episodes=13), "13 episodes; expected 12"),
    "inherits nothing": (lambda c: c.update(inherited=["sigmas"]), "sigmas.*sigma"),
    "another format": (lambda c: c.update(format=3), "format 3"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_nobody_can_repeat_is_refused(path: Path, board: Path, name: str) -> None:
    change, words = BAD_FILES[name]
    content = json.loads(path.read_text())
    del content[SEAL]
    change(content)
    path.write_text(as_text(sealed(content)))
    with pytest.raises(UsageError, match=f"{re.escape(path.name)}[^\n]*{words}"):
        read_leaderboard(board)


def test_an_edited_or_renamed_file_is_refused(esbench: Run, board: Path, path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace('"cpu_time_s": ', '"cpu_time_s": 1'))
    code, out, err = esbench("leaderboard", str(board))
    assert (code, out, path.name in err) == (2, "", True)
    path.write_text(text)
    assert esbench("leaderboard", str(board))[0] == 0
    path.rename(path.with_name("mine.json"))
    assert esbench("leaderboard", str(board))[0] == 2


# The table


def test_rows_are_sorted_and_filtered(board: Path, path: Path, rewrite: Rewrite) -> None:
    def better(content: Any) -> None:
        content["cell"]["spec"]["budget"]["env_steps"] = 7
        raise_scores(content, 5.0)

    kept = path.read_bytes()
    rewrite(better, keep=True)
    entries = read_leaderboard(board)
    rows = leaderboard_rows(entries)
    assert [row.cell.budget for row in rows] == [7, 600]
    assert [row.cell.algorithm for row in rows] == ["openai_es"] * 2  # budgets tell them apart
    first, second = records(COLUMNS, rows)
    assert first["score"] > second["score"]
    runs = rows[0].entry.runs
    assert first["env_steps"] == np.mean([run.env_steps for run in runs])
    assert first["tail"] == pytest.approx(np.mean([run.tail for run in runs]))
    with pytest.raises(UsageError, match="openai_es"):
        selected(entries, algorithms=["openai_is"])
    assert path.read_bytes() == kept
    other = json.loads(kept)
    del other[SEAL]
    other["cell"]["spec"]["environment"]["reward_shift"] = 1.0
    three = leaderboard_rows([*entries, parse(Entry, other, "same")])
    names = {row.cell.algorithm for row in three if row.cell.budget > 7}
    assert len({name for name in names if name.startswith("openai_es #")}) == 2


def test_the_best_row_of_each_environment_has_its_chance_of_staying_the_best(
    esbench: Run, published: list[Entry], tmp_path: Path
) -> None:
    few = selected(published, ["Acrobot-v1", "Hopper-v5"])
    write_board(tmp_path, few)
    every = records(COLUMNS, leaderboard_rows(few))
    code, out, _ = esbench("leaderboard", str(tmp_path), "--best", "--format", "json")
    best = {row["environment"]: row for row in json.loads(out)["rows"]}
    assert best["Acrobot-v1"]["environment_versions"]["v0"] == "no"
    assert all(row["tuned"] == bool(row["inherited"]) for row in every)
    assert {True, False} == {row["tuned"] for row in every}
    assert best["Acrobot-v1"]["inherited"] == [*every[0]["inherited"]]
    assert (code, {*best}) == (0, {row["environment"] for row in every})
    for environment, one in best.items():
        own = [row for row in every if row["environment"] == environment]
        assert one["score"] == max(row["score"] for row in own)
        assert sum(row["chance_best"] for row in own) == pytest.approx(1)
        if all(row["high"] < one["low"] for row in own[1:]):
            assert one["chance_best"] > 0.95
    # Other rows compete although they are not shown, also those that are better.
    choice = ["leaderboard", str(tmp_path), "--env", "Hopper-v5", "--algorithm", "openai_es"]
    assert "P(best)" in esbench(*choice)[1]
    (row, *_) = json.loads(esbench(*choice, "--best", "--format", "json")[1])["rows"]
    assert row["chance_best"] < 0.3
    (line,) = esbench(*choice, "--best", "--format", "markdown")[1].splitlines()[2:3]
    assert f" {row['chance_best']:.2f} |" in line


def test_the_name_of_an_algorithm_selects_all_of_its_labels() -> None:
    entries = fake_suite("short-episodes") + fake_suite("quick", without=["random_search"])
    assert {e.algorithm for e in entries if e.cell.algorithm == "ars_short"} == {"ars"}
    found = selected(entries, ["HalfCheetah-v5"], ["openai_es", "ars_short"])
    assert {entry.cell.algorithm for entry in found} == {"openai_es_short", "ars_short"}
    found = selected(entries, ["CartPole-v1"])
    assert {entry.cell.algorithm for entry in found} == {"openai_es"}
    with pytest.raises(UsageError, match="no result of cma_es on CartPole-v1"):
        selected(entries, ["CartPole-v1"], ["cma_es"])


def test_an_environment_is_selected_by_all_of_its_names() -> None:
    entries = fake_suite("pong-ram") + fake_suite("quick")
    own = selected(entries, ["esbench/Pong-ram-v5"])
    assert own == selected(entries, ["esbench:esbench/Pong-ram-v5"])
    for name in ("Hopper-v5", "esbench/Boxing-v5", "ALE/Boxing-v5"):
        with pytest.raises(UsageError, match=r"the leaderboard has no row of \S+-v5$"):
            selected(entries, [name])


def test_rows_of_a_changed_environment_are_named() -> None:
    entries = fake_suite("pong-positions") + fake_suite("pong-ram")
    rows = leaderboard_rows(entries)
    (note,) = environment_notes([row for row in rows if row.cell.environment.startswith("esbench")])
    assert {row.cell.title for row in rows if row.cell.title in note} == {
        row.cell.title for row in rows if row.cell.policy == "positions"
    }
    assert "with actions, SelectEntries, AppendDifferences, OrderedActions: " in note


def test_a_row_without_a_published_score_has_no_reference(published: list[Entry]) -> None:
    rows = leaderboard_rows(published)
    without = [row for row in records(COLUMNS, rows) if not row["reference_source"]]
    assert {"Pusher-v5", "Reacher-v5"} <= {row["environment"] for row in without}
    assert np.isnan([(row["reference_score"], row["normalized"]) for row in without]).all()


def test_settings_include_those_of_policy_episodes_and_validation() -> None:
    found = (
        selected(fake_suite(name), algorithms=["cma_es"])
        for name in ("short-episodes", "validated")
    )
    short, checked = (settings_words(entry) for (entry,) in found)
    for words in (short, checked):
        assert {"population_size 18", "sigma 0.084"} <= {*words.split(", ")}
        assert "normalize_observations True" in words
    assert "max_episode_steps [[0, 250], " in short
    assert "validation" not in short
    assert 'validation {"start": 2400000, ' in checked
    assert "max_episode_steps" not in checked


def test_what_is_not_installed_hides_no_row(board: Path, rewrite: Rewrite) -> None:
    rewrite(lambda c: c["cell"]["spec"]["policy"].update(template="theirs"))
    rewrite(lambda c: c["cell"]["spec"]["policy"].update(settings={"hidden": 1.5}), keep=True)
    rows = leaderboard_rows(read_leaderboard(board))
    assert {policy_words(row.entry).split()[0] for row in rows} == {"theirs"}
    assert [settings_words(row.entry) for row in rows] == ["", ""]


def test_every_format_has_every_cell(esbench: Run, published: list[Entry], tmp_path: Path) -> None:
    few = published[::24]
    write_board(tmp_path, few)
    for format_ in ("text", "markdown", "csv", "latex", "html", "json"):
        code, out, _ = esbench("leaderboard", str(tmp_path), "--format", format_)
        assert code == 0
        assert all(entry.cell.algorithm in out.replace(r"\_", "_") for entry in few)
        if format_ == "html":
            assert not re.search(r'(src|href)="(?!#|data:)', out)  # it needs no network
            assert out.count("<select") == 5
        if format_ == "json":
            assert len(json.loads(out)["rows"]) == len(few)
        if format_ == "csv":
            lines = list(csv.DictReader(io.StringIO(out)))
            assert len(lines) == len(few)
            assert all(re.search(r"; numpy \d", line["versions"]) for line in lines)


# The published files


def test_published_commands_train_the_published_seeds_and_settings(published: list[Entry]) -> None:
    commands: Any = get_command(app)

    @cache
    def trained(command: str) -> list[tuple[int, Any]]:
        """The seeds and specifications that a command trains."""
        program, name, *options = shlex.split(command)
        assert (program, name) == ("esbench", "run"), command
        given = commands.commands[name].make_context(name, options).params
        _, trials = open_grid(
            given["grid"],
            environments=given["env"],
            algorithms=given["algorithm"],
            seeds=given["seeds"],
            env_steps=given["env_steps"],
            overrides=given["overrides"] or (),
        )
        excluded = {"seed", "init_from"}
        return [(t.spec.seed, t.spec.model_dump(mode="json", exclude=excluded)) for t in trials]

    for entry in published:
        found = [each for command in entry.commands for each in trained(command)]
        seeds = {seed for seed, spec in found if spec == entry.cell.spec}
        assert seeds >= set(entry.seeds), entry.file_name


def test_published_rows_are_scaled_by_the_scores_of_their_environments(
    published: list[Entry],
) -> None:
    for entry in published:
        scores = frozen_scores(entry.spec["environment"])
        if scores.random is not None:
            assert entry.cell.random_score == scores.random.mean, entry.file_name
        if scores.references:
            best = scores.references[0]
            scale = entry.cell.reference_score, entry.cell.reference_source
            assert scale == (best.score, best.source), entry.file_name


def test_rows_with_the_tuned_settings_of_their_environment_are_marked(
    published: list[Entry],
) -> None:
    rows = leaderboard_rows(selected(published, ["CartPole-v1", "HalfCheetah-v5"]))
    tuned = {row.entry.file_name: bool(row.cell.inherited) for row in rows}
    sheet = leaderboard_sheet(rows)
    names = [cells[sheet.header.index("Algorithm")] for cells in sheet.body]
    assert [TUNED in name for name in names] == [*tuned.values()]
    assert f"openai_es {TUNED}" in str(best_sheet(rows))
    origins = {
        entry.file_name: origin
        for suite in ("control", "mujoco-mlp", "classic")
        for cell in read_suite(suite, [row.entry for row in rows]).cells
        for entry, origin in cell.entries
    }
    assert len(set(origins.values())) > 2
    for file, origin in origins.items():
        if origin in ("file", "defaults"):
            assert tuned[file] == (origin == "file")
