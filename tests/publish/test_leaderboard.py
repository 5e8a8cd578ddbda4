import csv
import hashlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, execute, files, working_in
from fake_entries import fake_suite
from fake_trials import edit, reseal, set_digest
from safetensors.numpy import load_file, save_file
from scipy.stats import trim_mean
from typer.main import get_command

from esbench.cli.app import app
from esbench.core.errors import TrainingError, UsageError
from esbench.core.json_text import SEAL, as_text, sealed
from esbench.core.seeding import FIRST_TUNING_SEED
from esbench.core.settings import parse
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import open_grid
from esbench.grids.environment_files import frozen_scores
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.gate.reruns import (
    SCORE_ONLY,
    RerunOutcome,
    Verification,
    sentences,
    train_again,
)
from esbench.publish.leaderboard import sample, table
from esbench.publish.leaderboard import submit as submissions
from esbench.publish.leaderboard.entries import (
    Entry,
    as_file,
    read_entry,
    read_leaderboard,
    selected,
)
from esbench.publish.leaderboard.sample import draw_sample, verify_drawn
from esbench.publish.leaderboard.submit import (
    NO_RESULT,
    SubmitAction,
    cautions,
    command_of_results,
    submit,
)
from esbench.publish.leaderboard.table import (
    best_rows,
    best_sheet,
    leaderboard_rows,
    settings_words,
)
from esbench.results.cell import Cell
from esbench.store import provenance as record

PUBLISHED = Path(__file__).parents[2] / "results" / "leaderboard"
TRAIN = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--env-steps", "600",
    "--workers", "1", "--quiet", "--out", "out", "--seeds", "0-3",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=12",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with working_in(folder):
        assert execute(*TRAIN) == 0
    edit(folder, "trial.json", lambda c: c.update(git_commit="0"))  # not that of a clean checkout
    return folder / "out"


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """The folder of four trials of one cell."""
    shutil.copytree(trained_once, tmp_path / "out")
    return next(tmp_path.rglob("trial.json")).parent.parent


@pytest.fixture(scope="module")
def board_once(trained_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    submit(trained_once, folder)
    return folder


@pytest.fixture(scope="module")
def published() -> list[Entry]:
    return read_leaderboard(PUBLISHED)


@pytest.fixture
def board(board_once: Path, tmp_path: Path) -> Path:
    """A leaderboard of that cell."""
    return Path(shutil.copytree(board_once, tmp_path / "board"))


def only(board: Path) -> Path:
    (path,) = board.iterdir()
    return path


def verified(board: Path, count: int, pool: WorkerPool, seed: int = 0) -> Verification:
    drawn = draw_sample(read_leaderboard(board), count, seed)
    found: list[Verification] = []
    verify_drawn(drawn, pool, lambda name, record: None, found.append)
    (verification,) = found
    return verification


def write(board: Path, entry: Entry) -> Path:
    path = board / entry.file_name
    path.write_bytes(as_file(entry))
    return path


def test_a_file_has_the_numbers_of_its_trials(trained: Path, board: Path) -> None:
    entry = read_entry(only(board))
    assert entry.seeds == (0, 1, 2, 3)
    for seed, (trial, run) in enumerate(zip(entry.cell.trials, entry.runs, strict=True)):
        folder = trained / f"seed-{seed}"
        result = json.loads((folder / "result.json").read_text())
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert (trial.score, trial.last_digest) == (result["score"], rows[-1]["digest"])
        assert run.tail == np.mean(sorted(result["returns"])[:2])  # of twelve
        assert (run.quantiles[0], run.quantiles[-1]) == (
            min(result["returns"]),
            max(result["returns"]),
        )
        assert run.quantiles[4] == np.median(result["returns"])
        content = np.array(result["returns"] + result["lengths"], dtype="<f8").tobytes()
        assert run.episodes_digest == hashlib.sha256(content).hexdigest()
        center = [row["center_return"] for row in rows]
        assert run.best_center == pytest.approx(np.convolve(center, np.ones(5) / 5, "valid").max())
        windows = np.convolve(center, np.ones(5) / 5, "valid")
        assert run.best_so_far.returns[-1] == pytest.approx(run.best_center, rel=1e-5)
        best = int(windows.argmax()) + 4  # the last policy of the window
        assert run.best_so_far.env_steps[-1] == rows[best - 1]["env_steps"]
        assert run.best_so_far.steps_to(windows[0] - 0.01) == rows[3]["env_steps"]
        assert run.best_so_far.steps_to(windows.max() + 1) == np.inf
    assert entry.curves is not None
    points = len(entry.curves.env_steps)
    assert points <= 50
    for rows in (entry.curves.returns, entry.curves.ranks):
        assert [len(row) for row in rows] == [points] * 4
    returns, ranks = entry.curves.bands()
    assert returns.iqm == pytest.approx(trim_mean(entry.curves.returns, 0.25))
    assert ((ranks.low >= 0) & (ranks.high <= 1)).all()


def test_a_list_of_numbers_is_one_line(board: Path) -> None:
    lines = only(board).read_text().splitlines()
    assert sum('"quantiles": [' in line and line.endswith("],") for line in lines) == 4
    assert not any(re.fullmatch(r"\s*[-.e\d]+,?", line) for line in lines)


def test_submitting_again_changes_nothing(trained: Path, board: Path) -> None:
    before = files(board)
    assert submit(trained, board) == {only(board): SubmitAction.UNCHANGED}
    assert files(board) == before


def test_a_list_in_a_command_is_kept_as_it_was_typed(trained: Path, tmp_path: Path) -> None:
    command = "esbench run --set 'policy.hidden=[ 8,  8 ]' --set 'x=[ 8 ]'"
    for path in trained.rglob("trial.json"):
        edit(path.parent, "trial.json", lambda c: c.update(command=command))
    (path,) = submit(trained, tmp_path / "board")
    assert read_entry(path).commands == (command,)


def test_a_label_that_is_another_algorithm_is_refused(trained: Path, board: Path) -> None:
    before = files(board)
    for path in trained.rglob("trial.json"):
        edit(path.parent, "trial.json", lambda c: c["labels"].update(algorithm="cma_es"))
    with pytest.raises(UsageError, match="'cma_es', which is another algorithm"):
        submit(trained, board)
    assert files(board) == before


def test_two_commands_at_once_keep_the_seeds_of_both(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tmp_path / "parts"
    second = without(trained, tmp_path / "b", 0)
    make = submissions.make_entry

    def make_entry(cell: Cell, pool: WorkerPool) -> Entry:
        monkeypatch.setattr(submissions, "make_entry", make)
        submit(second, parts)  # while the first command plays its episodes
        return make(cell, pool)

    monkeypatch.setattr(submissions, "make_entry", make_entry)
    submit(without(trained, tmp_path / "a", 3), parts)
    assert read_entry(only(parts)).seeds == (0, 1, 2, 3)


def test_a_target_that_is_a_file_is_refused_before_anything_is_played(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(submissions, "make_entry", None)
    for out in (tmp_path / "file", tmp_path / "file" / "board"):
        with pytest.raises(UsageError, match="is a file; expected a folder"):
            submit(trained, out)


def without(trained: Path, copy: Path, *seeds: int) -> Path:
    """A copy of the trials that lacks some seeds."""
    shutil.copytree(trained, copy)
    for seed in seeds:
        shutil.rmtree(copy / f"seed-{seed}")
    return copy


def test_seeds_that_a_file_lacks_are_added(trained: Path, board: Path, tmp_path: Path) -> None:
    whole = read_entry(only(board))
    parts = tmp_path / "parts"
    assert list(submit(without(trained, tmp_path / "a", 1), parts).values()) == [
        SubmitAction.WRITTEN
    ]
    later = without(trained, tmp_path / "b", 0, 3)
    for path in later.rglob("trial.json"):  # another machine
        edit(path.parent, "trial.json", lambda c: c["versions"].update(numpy="0.1"))
    edit(later / "seed-2", "result.json", lambda c: c.update(wall_time_s=1e3))
    assert submit(later, parts) == {only(parts): SubmitAction.EXTENDED}
    found = read_entry(only(parts))
    assert found.seeds == whole.seeds == (0, 1, 2, 3)
    assert found.runs == whole.runs
    assert [t.last_digest for t in found.cell.trials] == [t.last_digest for t in whole.cell.trials]
    assert [found.origins[t.origin].versions["numpy"] for t in found.cell.trials] == [
        whole.origins[0].versions["numpy"] if seed != 1 else "0.1" for seed in range(4)
    ]
    assert len(found.origins) == 2
    assert found.cell.reference_score == pytest.approx(whole.cell.reference_score)
    assert found.curves is not None
    assert whole.curves is not None
    assert found.curves.env_steps[-1] == pytest.approx(whole.curves.env_steps[-1], rel=0.1)
    for shown, expected in zip(found.curves.returns, whole.curves.returns, strict=True):
        np.testing.assert_allclose(
            np.interp(whole.curves.env_steps, found.curves.env_steps, np.array(shown, float)),
            np.array(expected, float),
            rtol=0.2,
        )
    before = files(parts)
    for again in (later, trained):
        assert submit(again, parts) == {only(parts): SubmitAction.UNCHANGED}
    assert files(parts) == before


def test_a_label_with_the_file_of_another_one_is_refused(trained: Path, board: Path) -> None:
    before = files(board)
    for path in trained.rglob("trial.json"):
        edit(path.parent, "trial.json", lambda c: c["labels"].update(algorithm="openai|es"))
    with pytest.raises(UsageError, match=r"holds openai_es on .* name of openai\|es on"):
        submit(trained, board)
    assert files(board) == before


@pytest.mark.parametrize("name", ["result.json", "trial.json"])
def test_other_results_of_a_known_seed_are_refused(
    trained: Path, tmp_path: Path, name: str
) -> None:
    board = tmp_path / "board"
    submit(without(trained, tmp_path / "a", 3), board)
    before = files(board)
    if name == "result.json":
        edit(trained / "seed-1", name, lambda c: c.update(returns=[1.0] * 12, score=1.0))
    else:
        for seed in range(4):
            edit(trained / f"seed-{seed}", name, lambda c: c.update(own_code={"my.py": "other"}))
    words = {"result.json": "the final policy scores", "trial.json": "the user code is"}
    with pytest.raises(UsageError, match=words[name]):
        submit(trained, board)
    assert files(board) == before


def test_a_file_with_other_results_of_a_seed_is_not_extended(trained: Path, board: Path) -> None:
    entry = read_entry(only(board))
    first, second, *rest = entry.cell.trials
    other = second.model_copy(update={"last_digest": "0" * 64})
    cell = entry.cell.model_copy(update={"trials": (first, other, *rest)})
    write(board, entry.model_copy(update={"cell": cell}))
    before = files(board)
    with pytest.raises(UsageError, match="seed 1 has the last digest .* that of the file, 000"):
        submit(trained, board)
    assert files(board) == before


def change_center(trial: Path) -> None:
    (path,) = (trial / "checkpoint").glob("*.safetensors")
    tensors = load_file(path)
    save_file(tensors | {"algorithm.center": tensors["algorithm.center"] * 1.001}, path)
    reseal(trial)


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda trial: edit(trial, name, lambda content: content.update(values))


def raise_returns(trial: Path) -> None:
    """Edit held-out returns and their mean, so that they agree with each other."""

    def change(content: Any) -> None:
        content["returns"] = [value + 1.0 for value in content["returns"]]
        content["score"] = float(np.mean(content["returns"]))

    edit(trial, "result.json", change)


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


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "score": (changed("result.json", score=1e6), "1000000"),
    "not finite": (
        lambda trial: edit(
            trial,
            "result.json",
            lambda c: c.update(score=None, returns=[None, *c["returns"][1:]]),
        ),
        "finite",
    ),
    "returns": (
        lambda trial: edit(trial, "result.json", lambda c: c["returns"].pop()),
        "11.*12",
    ),
    "other returns": (raise_returns, "final policy scores"),
    "digest of the rows": (lambda trial: set_digest(trial, 0), "ffff"),
    "steps": (changed("result.json", env_steps=10), "10"),
    "center": (change_center, "center"),
    "no checkpoint": (lambda trial: shutil.rmtree(trial / "checkpoint"), "no checkpoint"),
    "older checkpoint": (
        lambda trial: edit(
            trial, "state.json", lambda c: c["state"]["progress"].update(generation=1)
        ),
        "generation 1",
    ),
    "start": (
        lambda trial: edit(
            trial.parent,
            "trial.json",
            lambda c: c["spec"].update(
                init_from={"trial": "elsewhere", "generation": 1, "digest": "0"}
            ),
        ),
        "elsewhere",
    ),
    "more than the budget": (
        in_all(respecified(budget={"env_steps": 200})),
        "goes on after .* 200",
    ),
    "less than the budget": (in_all(respecified(budget={"env_steps": 9000})), "ends after .* 9000"),
    "a stop": (changed("result.json", stopped="good enough"), "callback"),
    "a stop by another target": (
        lambda trial: [
            in_all(respecified(budget={"target_return": 5.0}))(trial),
            edit(trial, "result.json", lambda c: c.update(stopped="enough: 5")),
        ],
        "callback",
    ),
    "a tuning seed": (respecified(seed=1_000_000), "for tuning"),
    "settings": (
        lambda trial: edit(
            trial.parent, "trial.json", lambda c: c["spec"]["evaluation"].update(center=False)
        ),
        "hash",
    ),
    "unfinished": (lambda trial: (trial / "result.json").unlink(), "not done"),
    "few seeds": (
        lambda trial: [shutil.rmtree(trial.parent / f"seed-{seed}") for seed in (2, 3)],
        "2 seeds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_trials_that_do_not_add_up_are_refused(trained: Path, tmp_path: Path, name: str) -> None:
    change, words = REFUSED[name]
    change(trained / "seed-1")
    with pytest.raises(UsageError, match=words):
        submit(trained, tmp_path / "board")
    assert not (tmp_path / "board").exists()


def test_returns_are_not_compared_on_another_processor(trained: Path, tmp_path: Path) -> None:
    raise_returns(trained / "seed-1")
    edit(trained, "trial.json", lambda c: c["hardware"].update(cpu="Abacus"))
    assert list(submit(trained, tmp_path / "board").values()) == [SubmitAction.WRITTEN]


def test_the_specification_is_of_this_version(trained: Path, tmp_path: Path) -> None:
    for seed in range(4):
        path = trained / f"seed-{seed}"
        edit(path, "trial.json", lambda c: c["spec"]["budget"].update(future=1))
    with pytest.raises(UsageError, match="future"):
        submit(trained, tmp_path / "board")


def test_a_file_names_the_environment_that_it_trains(board: Path) -> None:
    entry = read_entry(only(board))
    cell = entry.cell.model_copy(update={"environment": "Humanoid-v5"})
    (board / entry.file_name).unlink()
    write(board, entry.model_copy(update={"cell": cell}))
    with pytest.raises(UsageError, match=r"Humanoid-v5.*Walk-v0"):
        read_leaderboard(board)


def test_a_specification_and_curves_are_complete(board: Path) -> None:
    path = only(board)
    content = json.loads(path.read_text())
    del content[SEAL]
    cell, curves = content["cell"], content["curves"]
    specs = {}, {**cell["spec"], "policy": {}}, {**cell["spec"], "budget": {}}, None
    bad = [{"cell": cell | {"spec": spec}} for spec in specs]
    lists = {"returns": curves["returns"][1:]}, {"ranks": [[0.5]] * 4}, {"env_steps": []}
    for changed in [*bad, *({"curves": curves | some} for some in lists)]:
        path.write_text(as_text(sealed({**content, **changed})))
        with pytest.raises(UsageError, match=f"{path.name}[^\n]*(spec|curves)"):
            read_leaderboard(board)


def test_a_file_of_a_trial_is_told_from_an_entry(trained: Path) -> None:
    with pytest.raises(UsageError, match="is a file of a trial; expected its folder"):
        read_entry(trained / "seed-0" / "trial.json")


def test_an_edited_or_renamed_file_is_refused(esbench: Run, board: Path) -> None:
    path = only(board)
    text = path.read_text()
    path.write_text(text.replace('"cpu_time_s": ', '"cpu_time_s": 1'))
    code, out, err = esbench("leaderboard", str(board))
    assert (code, out) == (2, "")
    assert path.name in err
    path.write_text(text.replace('"format": 2', '"format": 3'))
    assert esbench("leaderboard", str(board))[0] == 2
    path.write_text(text)
    assert esbench("leaderboard", str(board))[0] == 0
    path.rename(path.with_name("mine.json"))
    assert esbench("leaderboard", str(board))[0] == 2


@pytest.mark.parametrize("made", ["stopped", "started", "tuned", "labeled"])
def test_an_entry_that_nobody_can_repeat_is_refused(board: Path, made: str) -> None:
    entry = read_entry(only(board))
    runs, cell = entry.runs, entry.cell
    spec: Any = cell.spec
    if made == "stopped":
        runs = tuple(run.model_copy(update={"stopped": "at its best"}) for run in runs)
    elif made == "started":
        spec = {**spec, "init_from": {"trial": "elsewhere"}}
    elif made == "tuned":
        trials = [
            trial.model_copy(update={"seed": FIRST_TUNING_SEED + trial.seed})
            for trial in cell.trials
        ]
        cell = cell.model_copy(update={"trials": tuple(trials)})
    else:
        cell = cell.model_copy(update={"algorithm": "pepg"})
    cell = cell.model_copy(update={"spec": spec})
    write(board, entry.model_copy(update={"runs": runs, "cell": cell}))
    with pytest.raises(UsageError):
        read_leaderboard(board)


def test_rows_are_sorted_and_filtered(board: Path) -> None:
    entry = read_entry(only(board))
    own: Any = entry.cell.spec
    spec = {**own, "budget": {**own["budget"], "env_steps": 7}}
    better = tuple(
        trial.model_copy(update={"score": (trial.score or 0.0) + 5}) for trial in entry.cell.trials
    )
    other = entry.cell.model_copy(update={"spec": spec, "trials": better})
    write(board, entry.model_copy(update={"cell": other}))
    entries = read_leaderboard(board)
    rows = leaderboard_rows(entries)
    assert [row.budget for row in rows] == [7, 600]
    assert [row.algorithm for row in rows] == ["openai_es"] * 2  # budgets tell them apart
    assert rows[0].score == pytest.approx(rows[1].score + 5)
    with pytest.raises(UsageError, match="openai_es"):
        selected(entries, algorithms=["openai_is"])
    settings = {**own, "environment": {**own["environment"], "reward_shift": 1.0}}
    same = entry.cell.model_copy(update={"spec": settings})
    write(board, entry.model_copy(update={"cell": same}))
    names = [row.algorithm for row in leaderboard_rows(read_leaderboard(board)) if row.budget > 7]
    assert len({name for name in names if name.startswith("openai_es #")}) == 2


def test_of_each_environment_the_best_row_and_how_many_overlap_it(
    esbench: Run, published: list[Entry]
) -> None:
    rows = leaderboard_rows(published)
    code, out, _ = esbench("leaderboard", str(PUBLISHED), "--best", "--format", "json")
    best = json.loads(out)["rows"]
    assert (code, len(best)) == (0, len({row.environment for row in rows}))
    sheet = best_sheet(best_rows(rows), rows)
    for one, cells in zip(best, sheet.body, strict=True):
        own = [row for row in rows if row.environment == one["environment"]]
        assert one["score"] == max(row.score for row in own)
        alike = [row for row in own if row.budget == one["budget"]]
        pairs = [(row.low, row.high) for row in alike]
        overlapping = sum(low <= one["high"] and high >= one["low"] for low, high in pairs) - 1
        named = dict(zip(sheet.header, cells, strict=True))
        assert named["Environment"] == one["environment"]
        assert named["Overlap"] == f"{overlapping} of {len(alike) - 1}"
    # Rows of other algorithms count although they are not shown, also those that are better.
    (hopper,) = (row for row in rows if row.title == "random_search on Hopper-v5")
    alone = best_sheet([hopper], rows)
    overlap = dict(zip(alone.header, alone.body[0], strict=True))["Overlap"]
    alike = [row for row in rows if row.environment == "Hopper-v5" and row.budget == hopper.budget]
    better = [row for row in alike if row.low > hopper.high]
    assert len(better) > 10
    overlapping, others = map(int, overlap.split(" of "))
    assert overlapping <= others - len(better)
    only = ("--env", "Hopper-v5", "--algorithm", "csa_es", "--format", "markdown")
    code, out, _ = esbench("leaderboard", str(PUBLISHED), "--best", *only)
    budget = hopper.budget
    others = sum((row.environment, row.budget) == ("Hopper-v5", budget) for row in rows) - 1
    assert (code, f" of {others} |" in out) == (0, True)


def test_the_name_of_an_algorithm_selects_all_of_its_labels(esbench: Run) -> None:
    entries = fake_suite("short-episodes") + fake_suite("quick", without=["random_search"])
    assert {e.algorithm for e in entries if e.cell.algorithm == "ars_short"} == {"ars"}
    found = selected(entries, ["HalfCheetah-v5"], ["openai_es", "ars_short"])
    assert {entry.cell.algorithm for entry in found} == {"openai_es_short", "ars_short"}
    found = selected(entries, ["CartPole-v1"])
    assert {entry.cell.algorithm for entry in found} == {"openai_es"}
    with pytest.raises(UsageError, match=r"cma_es on CartPole-v1 .*it has HalfCheetah-v5$"):
        selected(entries, ["CartPole-v1"], ["cma_es"])


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


def test_rows_of_an_agent_without_its_library_have_no_settings_of_it(
    monkeypatch: pytest.MonkeyPatch, published: list[Entry]
) -> None:
    def missing(name: str) -> Any:
        raise UsageError(f"agent {name!r}: its package is not installed")

    entries = [e for e in published if e.cell.algorithm == "ppo"]
    known = [settings_words(entry) for entry in entries]
    monkeypatch.setattr(table, "trainer_settings", missing)
    assert len(leaderboard_rows(entries)) == len(entries) == len(known)
    assert all(len(settings_words(e)) < len(k) for e, k in zip(entries, known, strict=True))


def test_a_policy_that_is_not_installed_hides_no_row(board: Path) -> None:
    entry = read_entry(only(board))
    spec: Any = entry.cell.spec
    other = {**spec, "policy": {**spec["policy"], "template": "theirs"}}
    write(board, entry.model_copy(update={"cell": entry.cell.model_copy(update={"spec": other})}))
    rows = leaderboard_rows(read_leaderboard(board))
    assert {row.policy_text.split()[0] for row in rows} == {"theirs", spec["policy"]["template"]}


def test_layers_that_are_no_list_hide_no_row(board: Path) -> None:
    entry = read_entry(only(board))
    spec: Any = entry.cell.spec
    odd = {**spec, "policy": {**spec["policy"], "settings": {"hidden": 1.5}}}
    write(board, entry.model_copy(update={"cell": entry.cell.model_copy(update={"spec": odd})}))
    texts = {row.policy_text for row in leaderboard_rows(read_leaderboard(board))}
    assert spec["policy"]["template"] in texts


def test_every_format_has_every_cell(esbench: Run, published: list[Entry], tmp_path: Path) -> None:
    few = published[::8]
    for entry in few:
        write(tmp_path, entry)
    for format_ in ("text", "markdown", "csv", "latex", "html", "json"):
        code, out, _ = esbench("leaderboard", str(tmp_path), "--format", format_)
        assert code == 0
        assert all(entry.cell.algorithm in out.replace(r"\_", "_") for entry in few)
        if format_ == "html":
            assert not re.search(r'(src|href)="(?!#|data:)', out)  # it needs no network
            assert out.count("<select") == 4
        if format_ == "json":
            assert len(json.loads(out)["rows"]) == len(few)
        if format_ == "csv":
            lines = list(csv.DictReader(io.StringIO(out)))
            assert len(lines) == len(few)
            assert all(re.search(r"; numpy \d", line["versions"]) for line in lines)


def test_published_commands_train_the_published_seeds_and_settings(
    published: list[Entry],
) -> None:
    commands: Any = get_command(app)
    for entry in published:
        seeds: set[int] = set()
        for command in entry.commands:
            program, name, *options = shlex.split(command)
            assert (program, name) == ("esbench", "run"), entry.file_name
            given = commands.commands[name].make_context(name, options).params
            _, trials = open_grid(
                given["grid"],
                environments=given["env"],
                algorithms=given["algorithm"],
                seeds=given["seeds"],
                env_steps=given["env_steps"],
                overrides=given["set_"] or (),
            )
            for trial in trials:
                spec = trial.spec.model_dump(mode="json", exclude={"seed", "init_from"})
                if spec == entry.cell.spec:
                    seeds.add(trial.spec.seed)
        assert seeds >= set(entry.seeds), entry.file_name


def test_published_rows_are_scaled_by_the_scores_of_their_environments(
    published: list[Entry],
) -> None:
    for entry in published:
        assert entry.cell.spec is not None
        scores = frozen_scores(entry.cell.spec["environment"])
        if scores.random is not None:
            assert entry.cell.random_score == scores.random.mean, entry.file_name
        if scores.references:
            best = scores.references[0]
            assert (entry.cell.reference_score, entry.cell.reference_source) == (
                best.score,
                best.source,
            ), entry.file_name


def test_a_published_trial_can_be_trained_again(tmp_path: Path, pool: WorkerPool) -> None:
    """Any trial of the cell with the smallest budget."""
    contents = {path: json.loads(path.read_text()) for path in PUBLISHED.glob("*.json")}
    cheapest = min(contents, key=lambda path: contents[path]["runs"][0]["env_steps"])
    (tmp_path / cheapest.name).write_bytes(cheapest.read_bytes())
    found = verified(tmp_path, 1, pool)
    assert found.outcome is not RerunOutcome.DIFFERENT
    if not found.changed:
        assert found.outcome is RerunOutcome.IDENTICAL


def test_a_sample_depends_on_its_seed_alone(board: Path, pool: WorkerPool) -> None:
    before = files(board)
    found = [verified(board, 1, pool, seed) for seed in (0, 0, 1)]
    assert all(item.outcome is RerunOutcome.IDENTICAL for item in found)
    seeds = [[rerun.seed for rerun in item.reruns] for item in found]
    assert seeds[0] == seeds[1] != seeds[2]
    assert files(board) == before
    for count in (0, 5):
        with pytest.raises(UsageError, match="1 to 4"):
            verified(board, count, pool)


def test_new_seeds_are_trained_where_recorded_ones_are_too_few(
    trained: Path, tmp_path: Path, pool: WorkerPool
) -> None:
    """With three recorded scores, the smallest p of a test with four new ones is 2 / 35."""
    few = tmp_path / "few"
    submit(without(trained, tmp_path / "a", 3), few)
    entry = read_entry(only(few))
    trials = tuple(t.model_copy(update={"last_digest": "0" * 64}) for t in entry.cell.trials)
    changed = entry.cell.model_copy(update={"trials": trials})
    write(few, entry.model_copy(update={"cell": changed}))
    found = verified(few, 1, pool)
    assert found.outcome is RerunOutcome.NO_DIFFERENCE
    assert found.p_value is not None
    assert sorted(rerun.seed for rerun in found.reruns) == [0, 1, 2, 3, 4]
    assert {rerun.seed for rerun in found.reruns if rerun.is_new} == {3, 4}


def test_a_missing_file_is_an_error_that_names_the_nearest_one(esbench: Run, board: Path) -> None:
    path = only(board)
    for wrong in (path.name, str(path)[:-6] + "x.json"):
        code, _, message = esbench("verify", wrong, "--leaderboard", str(board))
        assert code == 2
        assert wrong in message
        assert str(path) in message
    assert esbench("verify", "nothing like it", "--leaderboard", str(board))[0] == 2


def test_a_score_that_nobody_reaches_is_found(esbench: Run, board: Path, pool: WorkerPool) -> None:
    """A forger can write a valid file, but not the trials that it promises."""
    entry = read_entry(only(board))
    forged = tuple(
        trial.model_copy(update={"score": 1000.0 + trial.seed}) for trial in entry.cell.trials
    )
    cell = entry.cell.model_copy(update={"trials": forged})
    write(board, entry.model_copy(update={"cell": cell}))
    with pytest.raises(UsageError, match="seed 0 has .* 1000"):
        read_leaderboard(board)  # its quantiles are lower
    runs = tuple(
        run.model_copy(update={"quantiles": (trial.score,) * 9, "tail": trial.score})
        for run, trial in zip(entry.runs, forged, strict=True)
    )
    write(board, entry.model_copy(update={"cell": cell, "runs": runs}))
    found = verified(board, 1, pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert found.reruns[0].parts_at == SCORE_ONLY
    assert (len(found.reruns), found.p_value) == (1, None)  # it needs no test
    command = "verify", "--sample", "1", "--leaderboard", str(board), "--workers", "1"
    assert esbench(*command)[0] == 1
    assert esbench("verify", str(only(board)), "--sample", "1", "--workers", "1")[0] == 1
    assert esbench("verify", str(board), "--sample", "1", "--workers", "1")[0] == 1
    assert esbench("verify")[0] == 2


def test_a_file_or_a_part_of_a_leaderboard_is_trained_again(esbench: Run, board: Path) -> None:
    path, entry = only(board), read_entry(only(board))
    code, out, _ = esbench("verify", str(path), "--workers", "1")
    assert code == 0
    assert "4 trials" in out
    code, _, err = esbench("verify", str(board))  # may be days of training
    assert code == 2
    assert "--sample K" in err
    assert esbench("verify", str(board.parent), "--sample", "1")[0] == 2  # not a leaderboard
    sample = "verify", "--leaderboard", str(board), "--workers", "1", "--sample", "2"
    code, out, _ = esbench(*sample, "--env", entry.cell.environment, "--algorithm", "openai_es")
    assert code == 0
    assert "2 trials" in out
    for wrong in (["--env", "Walk-v1"], ["--algorithm", "openai"]):
        code, _, err = esbench(*sample, *wrong)
        assert code == 2
        assert "no " in err
    assert esbench("verify", str(path), "--env", entry.cell.environment)[0] == 2  # without --sample


@pytest.mark.parametrize(
    "edit",
    [{"best_center": 9999.0}, {"env_steps": 10}, {"tail": None}, {"best_so_far": None}],
    ids=str,
)
def test_numbers_that_the_trial_does_not_have_are_found(
    board: Path, pool: WorkerPool, edit: dict[str, Any]
) -> None:
    entry = read_entry(only(board))
    made_up = {
        "tail": lambda run: run.quantiles[0],
        "best_so_far": lambda run: run.best_so_far.model_copy(
            update={"returns": tuple(2 * value for value in run.best_so_far.returns)}
        ),
    }
    runs = tuple(
        run.model_copy(update={k: made_up[k](run) if v is None else v for k, v in edit.items()})
        for run in entry.runs
    )
    write(board, entry.model_copy(update={"runs": runs}))
    found = verified(board, 1, pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert found.reruns[0].edited == tuple(edit)
    assert next(iter(edit)) in sentences(found)[0]


def test_seeds_are_different_and_at_least_three(board: Path) -> None:
    entry = read_entry(only(board))
    for places in ([0, 0, 0, 0], [0, 1]):
        cell = entry.cell.model_copy(
            update={"trials": tuple(entry.cell.trials[place] for place in places)}
        )
        runs = tuple(entry.runs[place] for place in places)
        write(board, entry.model_copy(update={"cell": cell, "runs": runs, "curves": None}))
        with pytest.raises(UsageError, match="expected 3 or more, each once"):
            read_leaderboard(board)


def test_rows_that_others_cannot_train_again_have_a_caution(board: Path) -> None:
    entry = read_entry(only(board))
    origins = {
        commit: tuple(o.model_copy(update={"git_commit": commit}) for o in entry.origins)
        for commit in ("1234", "1234+", None)
    }
    plain = entry.model_copy(update={"own_code": {}, "origins": origins["1234"]})
    assert cautions(plain) == []
    for commit in ("1234+", None):
        assert len(cautions(plain.model_copy(update={"origins": origins[commit]}))) == 1
    code = {"tiny": "sha256:1", "Box2D": "2.3.10"}  # anyone can install the second
    (text,) = cautions(plain.model_copy(update={"own_code": code}))
    assert "Box2D" not in text
    assert "tiny" in text


def test_other_bits_with_the_same_scores_are_equal(board: Path, pool: WorkerPool) -> None:
    entry = read_entry(only(board))
    other = tuple(each.model_copy(update={"last_digest": "0" * 64}) for each in entry.cell.trials)
    write(board, entry.model_copy(update={"cell": entry.cell.model_copy(update={"trials": other})}))
    found = verified(board, 1, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.NO_DIFFERENCE, 1.0)


@pytest.mark.parametrize("commit", ["1234", "1234+", None])
def test_other_bits_of_the_same_commit_are_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, commit: str | None
) -> None:
    entry = read_entry(only(board))
    trials = tuple(t.model_copy(update={"last_digest": "0" * 64}) for t in entry.cell.trials)
    cell = entry.cell.model_copy(update={"trials": trials})
    origins = tuple(each.model_copy(update={"git_commit": commit}) for each in entry.origins)
    write(board, entry.model_copy(update={"cell": cell, "origins": origins}))
    monkeypatch.setattr(record, "_git_commit", lambda: commit)
    found = verified(board, 1, pool)
    assert (found.outcome is RerunOutcome.DIFFERENT) is (commit == "1234")
    assert len(found.reruns) == (1 if commit == "1234" else 4)
    monkeypatch.setattr(record, "_git_commit", lambda: "5678")
    assert verified(board, 1, pool).outcome is RerunOutcome.NO_DIFFERENCE


def test_a_policy_that_diverges_when_it_is_trained_again_is_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverged(*arguments: Any) -> Any:
        records, score = train_again(*arguments)
        return records, replace(score, returns=np.append(score.returns[:-1], np.nan))

    monkeypatch.setattr(sample, "train_again", diverged)
    found = verified(board, 1, pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert (found.reruns[0].parts_at, found.reruns[0].score) == (SCORE_ONLY, None)


def test_a_trial_that_fails_when_it_is_trained_again_is_not_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = read_entry(only(board))

    def fails(spec: Any, *arguments: Any) -> Any:
        if spec.seed == entry.seeds[0]:
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    monkeypatch.setattr(sample, "train_again", fails)
    found = verified(board, len(entry.seeds), pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.FAILED, None)
    assert [rerun.seed for rerun in found.reruns] == list(entry.seeds[1:])
    assert "the simulator fell over" in sentences(found)[0]


def test_other_episodes_of_the_same_policy_are_different_on_the_same_machine(
    board: Path, pool: WorkerPool
) -> None:
    entry = read_entry(only(board))
    runs = tuple(run.model_copy(update={"episodes_digest": "0" * 64}) for run in entry.runs)
    write(board, entry.model_copy(update={"runs": runs}))
    found = verified(board, 1, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert found.reruns[0].parts_at == SCORE_ONLY
    origins = tuple(each.model_copy(update={"versions": {"numpy": "1"}}) for each in entry.origins)
    write(board, entry.model_copy(update={"runs": runs, "origins": origins}))
    assert verified(board, 1, pool).outcome is RerunOutcome.NO_DIFFERENCE


def test_other_packages_explain_small_differences_of_scores_only(
    board: Path, pool: WorkerPool
) -> None:
    """A forger may name any versions, but the digests are those of the policy."""
    entry = read_entry(only(board))
    origins = tuple(each.model_copy(update={"versions": {"numpy": "1"}}) for each in entry.origins)
    for share, outcome in (0.1, RerunOutcome.NO_DIFFERENCE), (2.0, RerunOutcome.DIFFERENT):
        first, *trials = entry.cell.trials  # one forged score of four is not significant
        run, *runs = entry.runs
        raised = share * (run.quantiles[-1] - run.quantiles[0])
        trials.insert(0, first.model_copy(update={"score": (first.score or 0.0) + raised}))
        quantiles = (*run.quantiles[:-1], run.quantiles[-1] + raised)
        runs.insert(0, run.model_copy(update={"quantiles": quantiles}))
        cell = entry.cell.model_copy(update={"trials": tuple(trials)})
        changes = {"cell": cell, "runs": tuple(runs), "origins": origins}
        write(board, entry.model_copy(update=changes))
        assert verified(board, 4, pool).outcome is outcome


def test_commands_lose_the_options_that_change_no_result() -> None:
    command = (
        "python -m esbench run mujoco --out /tmp/x --quiet --workers=2 --set 'a.b=[1, 2]' --keep 9"
    )
    assert command_of_results(command) == "esbench run mujoco --set 'a.b=[1, 2]'"
    command = "esbench run mujoco --engine ray --address 10.0.0.5:6379 --track wandb --seeds 0-9"
    assert command_of_results(command) == "esbench run mujoco --seeds 0-9"


def test_options_that_change_no_result_are_those_of_run() -> None:
    commands: Any = get_command(app)
    options = {name: each for each in commands.commands["run"].params for name in each.opts}
    assert all(takes_value is not options[name].is_flag for name, takes_value in NO_RESULT.items())
