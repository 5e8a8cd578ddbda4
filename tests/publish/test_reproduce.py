"""Recorded trials that are trained again: folders of trials and the files of a leaderboard."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, execute, files, working_in
from fake_trials import edit, make_trials, reseal, set_digest, write_trial
from safetensors.numpy import load_file, save_file
from trained_cell import TRAIN, Rewrite, every_run

from esbench import Stop, make_trainer
from esbench.algorithms.openai_es import OpenAIES
from esbench.core.errors import DamagedTrialError, TrainingError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.publish.leaderboard.entries import read_leaderboard
from esbench.publish.reproduce import (
    RecordedCell,
    draw_sample,
    reproduce,
    stored_trials,
    train_again,
)
from esbench.publish.verification import (
    SCORE_ONLY,
    Rerun,
    RerunOutcome,
    Verification,
    announce_final,
    decide,
    fewest_runs,
    sentences,
    smallest_p,
)
from esbench.results.statistics.significance import p_different
from esbench.store import provenance

PUBLISHED = Path(__file__).parents[2] / "results" / "leaderboard"
TRAINS_AGAIN = "esbench.publish.reproduce.train_again"
WRONG = "0" * 64  # a digest


def again(cells: list[RecordedCell], pool: WorkerPool) -> Verification:
    found: list[Verification] = []
    reproduce(cells, pool, lambda name, record: None, found.append)
    (verification,) = found
    return verification


def rerun(path: Path, pool: WorkerPool) -> Verification:
    """All trials below a folder."""
    return again(stored_trials(path), pool)


def sampled(board: Path, pool: WorkerPool, count: int = 1, seed: int = 0) -> Verification:
    """Some trials of a leaderboard."""
    return again(draw_sample(read_leaderboard(board), count, seed), pool)


# A folder of trials


def test_what_has_not_changed_is_identical_and_nothing_is_written(
    trained: Path, pool: WorkerPool
) -> None:
    before, seen = files(trained), []
    reported: list[Verification] = []
    reproduce(stored_trials(trained), pool, lambda name, row: seen.append(row), reported.append)
    (found,) = reported
    assert (found.outcome, found.p_value, found.changed) == (RerunOutcome.IDENTICAL, None, ())
    assert len(found.reruns) == 4 <= len(seen)
    assert sentences(found)[0].endswith("identical: 4 trials, every digest and score")
    assert files(trained) == before


@pytest.mark.parametrize("target", [None, 1e9, -1e9])
def test_a_stop_by_a_callback_or_a_target_is_repeated(
    tmp_path: Path, pool: WorkerPool, target: float | None
) -> None:
    budget = {"env_steps": 2000, "target_window": 2} | ({"target_return": target} if target else {})
    with make_trainer(
        "openai_es",
        env="doubles:Walk-v0",
        population_size=4,
        budget=budget,
        evaluation={"episodes": 3},
        out=tmp_path,
        workers=1,
    ) as trainer:
        trainer.train(callbacks=[lambda record: Stop("enough") if record.generation == 4 else None])
        assert trainer.progress.generation == (2 if target == -1e9 else 4)
    assert rerun(tmp_path, pool).outcome is RerunOutcome.IDENTICAL


def test_a_changed_digest_is_found_in_its_generation(trained: Path, pool: WorkerPool) -> None:
    set_digest(trained / "seed-2", 2)
    found = rerun(trained, pool)
    assert [each.parts_at for each in found.reruns] == [None, None, 2, None]
    assert (found.outcome, found.p_value) == (RerunOutcome.NO_DIFFERENCE, 1)  # equal scores
    assert "1 of 4 trials differ, seed 2 from generation 2" in sentences(found)[0]
    alone = rerun(trained / "seed-2", pool)
    assert alone.outcome is RerunOutcome.DIFFERENT
    assert "4 seeds" in sentences(alone)[0]


def test_edited_rows_with_the_digests_of_the_trial_are_different(
    trained: Path, pool: WorkerPool
) -> None:
    rows = trained / "seed-0" / "metrics.jsonl"
    first, *others = rows.read_text().splitlines(keepends=True)
    edited = json.dumps(json.loads(first) | {"center_return": 499.0}, separators=(",", ":")) + "\n"
    before = hashlib.sha256((first + "".join(others)).encode()).hexdigest()
    rows.write_text(edited + "".join(others))
    now = hashlib.sha256(rows.read_bytes()).hexdigest()
    for name in "result.json", "state.json":
        (path,) = (trained / "seed-0").rglob(name)
        path.write_text(path.read_text().replace(before, now))
        edit(trained / "seed-0", name, lambda content: None)
    found = rerun(trained, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert [each.edited for each in found.reruns] == [("center_return",), (), (), ()]
    assert "seed 0: center_return" in sentences(found)[0]


def test_another_algorithm_of_the_same_name_is_different(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, path in enumerate(trained.glob("*/result.json")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"score": 1000.0 + number}))
    reseal(trained)
    tell = OpenAIES._tell
    monkeypatch.setattr(OpenAIES, "_tell", lambda self, p, returns, b: tell(self, p, -returns, b))
    found = rerun(trained, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, pytest.approx(2 / 70))


def test_a_changed_score_is_found_and_packages_and_processors_are_named(
    trained: Path, pool: WorkerPool
) -> None:
    path = trained / "seed-1"
    edit(path, "trial.json", lambda c: c["versions"].update(numpy="1.0", esbench="0.0"))
    edit(path, "trial.json", lambda c: c["hardware"].update(cpu="Abacus"))
    edit(path, "result.json", lambda c: c.update(score=0.25))
    found = rerun(path, pool)
    assert found.reruns[0].parts_at == SCORE_ONLY
    assert "score 0.25 " in sentences(found)[0]
    numpy, processor = found.changed
    assert numpy.startswith("numpy 1.0 then, ")
    assert processor.startswith("processor Abacus then, ")
    assert sentences(found)[1] == f"changed: {numpy}; {processor}"


@pytest.mark.parametrize("key", ["returns", "lengths", "score"])
def test_reproduction_and_evaluation_agree_on_what_is_identical(
    trained: Path, pool: WorkerPool, key: str
) -> None:
    """Two changed episodes whose mean is the recorded one differ too."""
    trial = trained / "seed-0"

    def change(content: Any) -> None:
        value = content[key]
        content[key] = value + 1 if key == "score" else [value[0] + 1, value[1] - 1, *value[2:]]

    edit(trial, "result.json", change)
    assert evaluate_trial(trial, pool).identical is False
    assert rerun(trial, pool).outcome is RerunOutcome.DIFFERENT


def test_a_stored_policy_that_scores_otherwise_is_different(
    trained: Path, pool: WorkerPool
) -> None:
    (stored,) = (trained / "seed-0" / "checkpoint").glob("*.safetensors")
    tensors = load_file(stored)
    save_file({name: np.asarray(1.0 - values) for name, values in tensors.items()}, stored)
    with pytest.raises(DamagedTrialError, match=stored.name):
        rerun(trained / "seed-0", pool)
    reseal(trained)
    found = rerun(trained / "seed-0", pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert found.reruns[0].parts_at == SCORE_ONLY


def test_the_command_exits_with_the_outcome_and_a_failure_hides_no_other_cell(
    esbench: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working_in(tmp_path):
        assert execute(*TRAIN, "--seeds", "0", "--env", "doubles:Slow-v0") == 0

    def fails(spec: Any, *arguments: Any) -> Any:
        if spec.environment.id.endswith("Slow-v0"):
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    monkeypatch.setattr(TRAINS_AGAIN, fails)
    code, out, err = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert (code, err) == (0, "")
    assert "identical: 1 trial, every digest and score" in out
    code, out, _ = esbench("verify", str(tmp_path / "out"), "--workers", "1")
    assert (code, out.count("identical"), out.count("the simulator fell over")) == (3, 1, 1)
    edit(trained / "seed-0", "result.json", lambda c: c.update(score=0.25))
    code, out, _ = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert code == 1
    assert "different: seed 0 " in out


def test_a_seed_that_fails_does_not_hide_a_difference_of_another_one(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_digest(trained / "seed-1", 1)
    monkeypatch.setattr(TRAINS_AGAIN, failing(2))
    found = rerun(trained, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert [each.seed for each in found.reruns] == [0, 1, 3]
    assert "seed 2: the simulator fell over" in sentences(found)[-1]


def failing(seed: int) -> Callable[..., Any]:
    def fails(spec: Any, *arguments: Any) -> Any:
        if spec.seed == seed:
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    return fails


def test_damage_and_unfinished_trials_are_found_before_anything_is_trained(
    trained: Path, tmp_path: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(trained.rglob("metrics.jsonl"))
    last.write_bytes(b"{}\n" + last.read_bytes())
    monkeypatch.setattr(TRAINS_AGAIN, None)
    with pytest.raises(DamagedTrialError):
        rerun(trained, pool)
    (trial,) = make_trials(tmp_path / "failed", seeds=[5])
    write_trial(trial, error="Traceback")
    for folder, words in (("failed", r"seed-5 the first \(failed\)"), ("none", "no folder")):
        with pytest.raises(UsageError, match=words):
            rerun(tmp_path / folder, pool)


# The files of a leaderboard


def test_a_sample_depends_on_its_seed_alone(board: Path, pool: WorkerPool) -> None:
    before = files(board)
    found = [sampled(board, pool, seed=seed) for seed in (0, 0, 1)]
    assert all(item.outcome is RerunOutcome.IDENTICAL for item in found)
    seeds = [[each.seed for each in item.reruns] for item in found]
    assert seeds[0] == seeds[1] != seeds[2]
    assert files(board) == before
    for count in (0, 5):
        with pytest.raises(UsageError, match="1 to 4"):
            sampled(board, pool, count)


def test_a_published_trial_can_be_trained_again(tmp_path: Path, pool: WorkerPool) -> None:
    """Any trial of the cell with the smallest budget."""
    contents = {path: json.loads(path.read_text()) for path in PUBLISHED.glob("*.json")}
    cheapest = min(contents, key=lambda path: contents[path]["runs"][0]["env_steps"])
    (tmp_path / cheapest.name).write_bytes(cheapest.read_bytes())
    found = sampled(tmp_path, pool)
    assert found.outcome is not RerunOutcome.DIFFERENT
    if not found.changed:
        assert found.outcome is RerunOutcome.IDENTICAL


def test_new_seeds_are_trained_where_recorded_ones_are_too_few(
    trained: Path, tmp_path: Path, pool: WorkerPool, rewrite: Rewrite
) -> None:
    """With three recorded scores, the smallest p of a test with four new ones is 2 / 35."""

    def three(content: Any) -> None:
        del content["cell"]["trials"][3], content["runs"][3]
        content["curves"] = None
        every_run(content, last_digest=WRONG)

    found = sampled(rewrite(three).parent, pool)
    assert found.outcome is RerunOutcome.NO_DIFFERENCE
    assert found.p_value is not None
    assert sorted(each.seed for each in found.reruns) == [0, 1, 2, 3, 4]
    assert {each.seed for each in found.reruns if each.is_new} == {3, 4}


def test_a_score_that_nobody_reaches_is_found(
    esbench: Run, board: Path, pool: WorkerPool, rewrite: Rewrite
) -> None:
    """A forger can write a valid file, but not the trials that it promises."""
    every = {"score": lambda trial: 1000.0 + trial["seed"]}
    path = rewrite(lambda content: every_run(content, **every))
    with pytest.raises(UsageError, match="seed 0 has .* 1000"):
        read_leaderboard(board)  # its quantiles are lower

    def forge(content: Any) -> None:
        every_run(content, **every)
        for run, trial in zip(content["runs"], content["cell"]["trials"], strict=True):
            run.update(quantiles=[trial["score"]] * 9, tail=trial["score"])

    rewrite(forge)
    found = sampled(board, pool)
    assert (found.outcome, found.reruns[0].parts_at) == (RerunOutcome.DIFFERENT, SCORE_ONLY)
    assert (len(found.reruns), found.p_value) == (1, None)  # it needs no test
    for words in (["--leaderboard", str(board)], [str(path)], [str(board)]):
        assert esbench("verify", *words, "--sample", "1", "--workers", "1")[0] == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_center", 9999.0),
        ("env_steps", 10),
        ("tail", lambda run: run["quantiles"][0]),
        ("best_so_far", lambda run: {"env_steps": [1.0], "returns": [2e3]}),
    ],
)
def test_numbers_that_the_trial_does_not_have_are_found(
    board: Path, pool: WorkerPool, rewrite: Rewrite, name: str, value: Any
) -> None:
    rewrite(lambda content: every_run(content, **{name: value}))
    found = sampled(board, pool)
    assert (found.outcome, found.reruns[0].edited) == (RerunOutcome.DIFFERENT, (name,))
    assert name in sentences(found)[0]


@pytest.mark.parametrize("commit", ["1234", "1234+", None])
def test_other_bits_are_different_on_the_same_commit_and_equal_by_their_scores_elsewhere(
    board: Path,
    pool: WorkerPool,
    rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
    commit: str | None,
) -> None:
    def other(content: Any) -> None:
        every_run(content, last_digest=WRONG)
        content["origins"][0]["git_commit"] = commit

    rewrite(other)
    monkeypatch.setattr(provenance, "_git_commit", lambda: commit)
    found = sampled(board, pool)
    assert (found.outcome is RerunOutcome.DIFFERENT) is (commit == "1234")
    assert len(found.reruns) == (1 if commit == "1234" else 4)
    if commit == "1234":
        monkeypatch.setattr(provenance, "_git_commit", lambda: "5678")
        found = sampled(board, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.NO_DIFFERENCE, 1.0)


def test_a_policy_that_diverges_when_it_is_trained_again_is_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverged(*arguments: Any) -> Any:
        records, score = train_again(*arguments)
        return records, replace(score, returns=np.append(score.returns[:-1], np.nan))

    monkeypatch.setattr(TRAINS_AGAIN, diverged)
    found = sampled(board, pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert (found.reruns[0].parts_at, found.reruns[0].score) == (SCORE_ONLY, None)


def test_a_trial_that_fails_when_it_is_trained_again_is_not_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TRAINS_AGAIN, failing(0))
    found = sampled(board, pool, 4)
    assert (found.outcome, found.p_value) == (RerunOutcome.FAILED, None)
    assert [each.seed for each in found.reruns] == [1, 2, 3]
    assert "the simulator fell over" in sentences(found)[0]


def other_versions(content: Any) -> None:
    content["origins"][0]["versions"] = {"numpy": "1"}


def test_other_episodes_of_the_same_policy_are_different_on_the_same_machine(
    board: Path, pool: WorkerPool, rewrite: Rewrite
) -> None:
    rewrite(lambda content: every_run(content, episodes_digest=WRONG))
    found = sampled(board, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert found.reruns[0].parts_at == SCORE_ONLY
    rewrite(other_versions)
    assert sampled(board, pool).outcome is RerunOutcome.NO_DIFFERENCE


@pytest.mark.parametrize(
    ("share", "outcome"), [(0.1, RerunOutcome.NO_DIFFERENCE), (2.0, RerunOutcome.DIFFERENT)]
)
def test_other_packages_explain_small_differences_of_scores_only(
    board: Path, pool: WorkerPool, rewrite: Rewrite, share: float, outcome: RerunOutcome
) -> None:
    """A forger may name any versions, but the digests are those of the policy."""

    def raise_first(content: Any) -> None:  # one forged score of four is not significant
        other_versions(content)
        quantiles = content["runs"][0]["quantiles"]
        raised = share * (quantiles[-1] - quantiles[0])
        quantiles[-1] += raised
        content["cell"]["trials"][0]["score"] += raised

    rewrite(raise_first)
    assert sampled(board, pool, 4).outcome is outcome


def test_a_file_or_a_part_of_a_leaderboard_is_trained_again(
    esbench: Run, board: Path, path: Path
) -> None:
    code, out, _ = esbench("verify", str(path), "--workers", "1")
    assert (code, "4 trials" in out) == (0, True)
    sample = ["verify", "--leaderboard", str(board), "--workers", "1", "--sample", "2"]
    part = ["--env", "doubles:Walk-v0", "--algorithm", "openai_es"]
    code, out, _ = esbench(*sample, *part)
    assert (code, "2 trials" in out) == (0, True)
    for words, message in {
        ("verify",): "",
        ("verify", str(board)): "--sample K",  # may be days of training
        ("verify", str(board.parent), "--sample", "1"): "",  # not a leaderboard
        ("verify", str(path), "--env", "doubles:Walk-v0"): "--sample",
        (*sample, "--env", "Walk-v1"): "no ",
        (*sample, "--algorithm", "openai"): "no ",
        ("verify", path.name, "--leaderboard", str(board)): str(path),  # the nearest one
        ("verify", f"{str(path)[:-6]}x.json"): str(path),
        ("verify", "nothing like it", "--leaderboard", str(board)): "",
    }.items():
        code, _, err = esbench(*words)
        assert (code, message in err) == (2, True), words


# The decision


def test_a_final_result_is_reported_before_the_next_trial_is_run() -> None:
    events = []

    def found() -> Iterator[Verification]:
        for outcome in RerunOutcome.DIFFERENT, RerunOutcome.IDENTICAL, RerunOutcome.FAILED:
            events.append(f"run {outcome.name}")
            yield Verification("cell", outcome, (), None, ())

    announce_final(found(), lambda verification: events.append(verification.outcome.name))
    assert events == [
        *("run DIFFERENT", "run IDENTICAL", "IDENTICAL", "run FAILED", "FAILED"),
        "DIFFERENT",  # its p-value depends on how many others differ
    ]


def differing(scores: list[float], again: list[float]) -> Verification:
    """A cell whose bits all differ, before the correction."""
    pairs = enumerate(zip(scores, again, strict=True))
    reruns = tuple(Rerun(seed, 1, then, now) for seed, (then, now) in pairs)
    least = smallest_p(len(scores), len(scores))
    p_value = p_different(scores, again)
    return Verification("cell", RerunOutcome.DIFFERENT, reruns, p_value, (), least)


def test_too_few_seeds_for_a_significant_difference_are_no_test() -> None:
    apart = differing([100.0, 101.0, 102.0, 103.0], [1.0, 2.0, 3.0, 4.0])
    near = differing([100.0, 101.0, 102.0, 103.0], [100.5, 101.0, 102.5, 103.5])
    (alone,) = decide([apart])
    assert (alone.outcome, alone.p_value) == (RerunOutcome.DIFFERENT, pytest.approx(2 / 70))
    (alone,) = decide([near])
    assert alone.outcome is RerunOutcome.NO_DIFFERENCE
    for found in decide([apart, near]), decide([near, near]):
        assert [item.outcome for item in found] == [RerunOutcome.DIFFERENT] * 2
        assert [item.p_value for item in found] == [None] * 2
        assert "5 seeds" in sentences(found[1])[0]
    five = differing([*range(100, 105)], [*range(1, 6)]), differing([1.0] * 5, [1.0] * 5)
    found = decide(five)
    assert [item.outcome for item in found] == [RerunOutcome.DIFFERENT, RerunOutcome.NO_DIFFERENCE]


def test_a_test_has_the_seeds_that_it_needs() -> None:
    assert [fewest_runs(None, tests) for tests in (1, 2, 6, 7)] == [4, 5, 5, 6]
    for recorded, tests in itertools.product((2, 3, 4, 10), (1, 3, 7, 20)):
        runs = fewest_runs(recorded, tests)
        p_value = p_different([0.0] * recorded, [1.0] * runs)
        assert tests * p_value <= 0.05
        assert runs == 4 or tests * smallest_p(recorded, runs - 1) > 0.05
    assert smallest_p(10, 8) == p_different([0.0] * 10, [1.0] * 8)  # of random splits
    assert fewest_runs(10, 600) == 8  # no number of seeds is enough
