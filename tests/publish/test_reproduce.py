"""Recorded trials that are trained again: folders of trials and the files of a leaderboard."""

import contextlib
import itertools
import json
import math
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import LEADERBOARD
from command_line import Run, execute, files, working_in
from fake_trials import edit, reseal, set_digest, write_one
from trained_cell import TRAIN, Rewrite, change_policy, every, raise_scores

from esbench import Stop, make_trainer
from esbench.algorithms.openai_es import OpenAIES
from esbench.core.errors import DamagedTrialError, TrainingError, UsageError
from esbench.core.units import format_steps
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.publish.reproduce import (
    LONGER,
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
    decide,
    fewest_runs,
    sentences,
    smallest_p,
)
from esbench.results.entries import read_leaderboard
from esbench.results.statistics.quantile_bounds import mean_bounds
from esbench.results.statistics.significance import p_different
from esbench.store import provenance
from esbench.store.origin import CODE

TRAINS_AGAIN = "esbench.publish.reproduce.train_again"
WRONG = "0" * 64  # a digest
IDENTICAL, NO_DIFFERENCE, DIFFERENT, FAILED = RerunOutcome
Change = Callable[[Any], object]


def again(cells: list[RecordedCell], pool: WorkerPool) -> Verification:
    found: list[Verification] = []
    reproduce(cells, pool, lambda name, record: None, found.append)
    (verification,) = found
    return verification


def rerun(path: Path, pool: WorkerPool) -> Verification:
    """All trials below a folder."""
    return again(stored_trials(path), pool)


def sampled(board: Path, pool: WorkerPool, count: int | None = 1, seed: int = 0) -> Verification:
    """Some or all trials of a leaderboard."""
    return again(draw_sample(read_leaderboard(board), count, seed), pool)


def failing(seed: int, environment: str = "Walk-v0") -> Callable[..., Any]:
    def fails(spec: Any, *arguments: Any) -> Any:
        if spec.seed == seed and spec.environment.id.endswith(environment):
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    return fails


# A folder of trials


def test_what_has_not_changed_is_identical_and_nothing_is_written(
    trained: Path, pool: WorkerPool
) -> None:
    before = files(trained)
    found = rerun(trained, pool)
    assert (found.outcome, found.p_value, found.changed) == (IDENTICAL, None, ())
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
        workers=0,
    ) as trainer:
        trainer.train(callbacks=[lambda record: Stop("enough") if record.generation == 4 else None])
        assert trainer.progress.generation == (2 if target == -1e9 else 4)
    assert rerun(tmp_path, pool).outcome is IDENTICAL


def change_returns(content: Any) -> None:
    """Two episodes change, and their mean does not."""
    content["returns"][:2] = [content["returns"][0] + 1, content["returns"][1] - 1]


def change_rows(trial: Path) -> None:
    rows = trial / "metrics.jsonl"
    first, *others = rows.read_text().splitlines()
    first = json.dumps(json.loads(first) | {"center_return": 499.0})
    rows.write_text("\n".join([first, *others, ""]))
    reseal(trial)


def changed(change: Change) -> Callable[[Path], None]:
    return lambda trial: edit(trial, "result.json", change)


SCORE_DIFFERS = (DIFFERENT, SCORE_ONLY, ())
STORED: dict[str, tuple[Callable[[Path], object], Any, str]] = {
    "digest": (lambda trial: set_digest(trial, 2), (NO_DIFFERENCE, 2, ()), "from generation 2"),
    "returns": (changed(change_returns), SCORE_DIFFERS, "held-out episodes only"),
    "lengths": (changed(lambda c: c["lengths"].reverse()), SCORE_DIFFERS, "held-out"),
    "score": (changed(lambda c: c.update(score=0.25)), SCORE_DIFFERS, "score 0.25 before"),
    "policy": (change_policy, SCORE_DIFFERS, "held-out episodes only"),
    "rows": (change_rows, (DIFFERENT, None, ("center_return",)), "seed 2: center_return"),
}


@pytest.mark.parametrize("name", STORED)
def test_a_change_of_one_stored_trial_is_found(trained: Path, pool: WorkerPool, name: str) -> None:
    change, expected, words = STORED[name]
    trial = trained / "seed-2"
    change(trial)
    found = rerun(trained, pool)
    own = found.reruns[2]
    assert (found.outcome, own.parts_at, own.edited) == expected
    assert all(not each.edited and each.parts_at is None for each in found.reruns if each != own)
    assert words in sentences(found)[0]
    assert evaluate_trial(trial, pool).identical is (own.parts_at != SCORE_ONLY)


def test_packages_and_processors_that_have_changed_are_named(
    trained: Path, pool: WorkerPool
) -> None:
    path = trained / "seed-1"
    edit(path, "trial.json", lambda c: c["versions"].update(numpy="1.0", esbench="0.0"))
    edit(path, "trial.json", lambda c: c["hardware"].update(cpu="Abacus", arithmetic=None))
    set_digest(path, 2)
    found = rerun(path, pool)
    assert "4 seeds" in sentences(found)[0]  # a single one cannot be tested
    numpy, processor = found.changed
    assert numpy.startswith("numpy 1.0 then, ")
    assert processor.startswith("processor Abacus then, ")
    assert sentences(found)[1] == f"changed: {numpy}; {processor}"


SOMETHING_ELSE: dict[str, Change] = {
    "nothing": lambda content: None,
    "processor": lambda content: content["hardware"].update(cpu="Abacus", arithmetic=None),
    "package": lambda content: content["versions"].update(numpy="1.0"),
    "esbench": lambda content: content["versions"].update({CODE: "sha256:0"}),
    "user code": lambda content: content["own_code"].update(doubles="sha256:0"),
    "unknown code": lambda content: content["versions"].pop(CODE),
    "a part": lambda content: content.update(
        resumed_with=[{**content, "versions": {**content["versions"], "numpy": "1.0"}}]
    ),
}


@pytest.mark.parametrize("scores", ["equal", "near", "far"])
@pytest.mark.parametrize("what", SOMETHING_ELSE)
def test_other_bits_are_no_success_unless_something_else_has_changed(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, what: str, scores: str
) -> None:
    """Equal scores: the digests of training differ, and no held-out episode."""
    code = provenance.provenance()["versions"][CODE]
    edit(trained, "trial.json", lambda content: content["versions"].update({CODE: code}))
    edit(trained, "trial.json", SOMETHING_ELSE[what])

    def other(spec: Any, *arguments: Any) -> Any:
        records, score = remembered(spec, *arguments)
        by = {"equal": 0.0, "near": 1e-9, "far": 1e6}[scores]
        rows = [replace(row, digest=WRONG) for row in records]
        return rows, replace(score, returns=score.returns + by)

    monkeypatch.setattr(TRAINS_AGAIN, other)
    succeeds = what != "nothing" and scores != "far"
    found = rerun(trained, pool)
    assert found.outcome is (NO_DIFFERENCE if succeeds else DIFFERENT)
    assert "4 of 4 trials differ" in sentences(found)[0]
    assert ("changed: " in sentences(found)[1]) is (what != "nothing")
    monkeypatch.setattr(TRAINS_AGAIN, remembered)
    assert rerun(trained, pool).outcome is IDENTICAL  # equal bits need no excuse


def test_another_algorithm_of_the_same_name_is_different(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, path in enumerate(trained.iterdir()):
        edit(path, "result.json", partial(dict.update, score=1000.0 + number))
    tell = OpenAIES._tell
    monkeypatch.setattr(OpenAIES, "_tell", lambda self, p, returns, b: tell(self, p, -returns, b))
    found = rerun(trained, pool)
    assert (found.outcome, found.p_value) == (DIFFERENT, pytest.approx(2 / 70))


def test_a_failure_hides_no_other_cell_and_no_difference_of_another_seed(
    esbench: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working_in(tmp_path):
        assert execute(*TRAIN, "--seeds", "0", "--env", "doubles:Slow-v0") == 0
    monkeypatch.setattr(TRAINS_AGAIN, failing(0, "Slow-v0"))
    code, out, _ = esbench("verify", str(tmp_path / "out"), "--workers", "0")
    assert (code, out.count("identical"), out.count("the simulator fell over")) == (3, 1, 1)
    set_digest(trained / "seed-1", 1)
    monkeypatch.setattr(TRAINS_AGAIN, failing(2))
    code, out, _ = esbench("verify", str(trained), "--workers", "0")
    assert (code, "different: 1 of 3 trials" in out) == (1, True)
    assert "seed 2: the simulator fell over" in out


@pytest.mark.parametrize("swallows", [False, True])
def test_a_trial_whose_episodes_never_end_fails_within_its_limit(
    esbench: Run, trained: Path, monkeypatch: pytest.MonkeyPatch, swallows: bool
) -> None:
    def endless(spec: Any, pool: Any, watch: Any, *arguments: Any) -> Any:
        with contextlib.suppress(*[TrainingError] * swallows):
            for done in range(10**9 if spec.seed == 1 else 4):
                time.sleep(0.01)
                if spec.seed != 1 or done < 2:
                    pool.progress(done, 4)  # an episode has ended
        return remembered(spec, pool, watch, *arguments)

    monkeypatch.setattr(TRAINS_AGAIN, endless)
    words = "verify", str(trained), "--workers", "0", "--episode-timeout"
    code, out, _ = esbench(*words, "2")
    assert (code, out.count("no episode ended within the episode timeout of 2 s")) == (3, 1)
    assert "seed 1: no episode ended" in out
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 60  # of the test
    assert esbench(*words, "0")[0] == 2


def test_damage_and_unfinished_trials_are_found_before_anything_is_trained(
    trained: Path, tmp_path: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(trained.rglob("metrics.jsonl"))
    last.write_bytes(b"{}\n" + last.read_bytes())
    monkeypatch.setattr(TRAINS_AGAIN, None)
    with pytest.raises(DamagedTrialError):
        rerun(trained, pool)
    write_one(tmp_path / "failed", 9, "Traceback")
    for folder, words in (("failed", r"seed-9 the first \(failed\)"), ("none", "no folder")):
        with pytest.raises(UsageError, match=words):
            rerun(tmp_path / folder, pool)


# The files of a leaderboard


def test_a_sample_depends_on_its_seed_alone(board: Path, pool: WorkerPool) -> None:
    before = files(board)
    found = [sampled(board, pool, seed=seed) for seed in (0, 0, 1)]
    assert all(item.outcome is IDENTICAL for item in found)
    seeds = [[each.seed for each in item.reruns] for item in found]
    assert seeds[0] == seeds[1] != seeds[2]
    assert files(board) == before
    for count in (0, 5):
        with pytest.raises(UsageError, match="1 to 4"):
            sampled(board, pool, count)


def test_a_published_trial_can_be_trained_again(tmp_path: Path, pool: WorkerPool) -> None:
    """Any trial of the cell with the smallest budget."""
    contents = {path: json.loads(path.read_text()) for path in LEADERBOARD.glob("*.json")}
    cheapest = min(contents, key=lambda path: contents[path]["runs"][0]["env_steps"])
    (tmp_path / cheapest.name).write_bytes(cheapest.read_bytes())
    found = sampled(tmp_path, pool)
    assert found.outcome is not DIFFERENT
    if not found.changed:
        assert found.outcome is IDENTICAL


def raised(errors: float, **changes: Any) -> Change:
    """Scores with quantiles and tails that fit, and further changes of every run."""
    return lambda content: (raise_scores(content, errors), every(**changes)(content))


def raise_score_alone(content: Any) -> None:
    """As much as the quantiles allow."""
    for run, trial in zip(content["runs"], content["cell"]["trials"], strict=True):
        trial["score"] = mean_bounds(run["quantiles"], *[run["episodes"]] * 2)[1]  # type: ignore[index]


def elsewhere(content: Any) -> None:
    content["origins"][0]["hardware"].update(cpu="Abacus", arithmetic=None)


def exchange_seeds(content: Any) -> None:
    first, second, *_ = content["cell"]["trials"]
    first["seed"], second["seed"] = second["seed"], first["seed"]


def exchange_episodes(content: Any) -> None:
    """The better episodes of another seed, with all that follows from them."""
    (first, *_, last), trials = content["runs"], content["cell"]["trials"]
    for key in ("episodes_digest", "quantiles", "tail"):
        first[key], last[key] = last[key], first[key]
    trials[0]["score"], trials[-1]["score"] = trials[-1]["score"], trials[0]["score"]


def drop_seed(content: Any) -> None:
    del content["cell"]["trials"][1], content["runs"][1]
    content["curves"] = None


UNTRAINED = {
    "digests": lambda run: dict.fromkeys(run["digests"], WRONG[:12]),
    "last_digest": WRONG,
    "episodes_digest": WRONG,
}
BEST = {"env_steps": [1.0], "returns": [2e3]}
# What verify says where nothing has changed, where the file names another processor but bits are
# equal, and where they are not.
PROVED = DIFFERENT, DIFFERENT, NO_DIFFERENCE
UNKNOWN = DIFFERENT, NO_DIFFERENCE, NO_DIFFERENCE
CLAIM = IDENTICAL, IDENTICAL, NO_DIFFERENCE  # which training again does not check
FAR = DIFFERENT, DIFFERENT, DIFFERENT
FORGED: dict[str, tuple[Change, tuple[RerunOutcome, RerunOutcome, RerunOutcome]]] = {
    "nothing": (lambda content: None, CLAIM),
    "score": (raise_score_alone, PROVED),
    "half an error": (raised(0.5), PROVED),
    "two errors": (raised(2.0), PROVED),
    "3.5 errors": (raised(3.5), FAR),
    "score and episodes": (raised(0.5, episodes_digest=WRONG), PROVED),
    "score and training": (raised(0.5, last_digest=WRONG), PROVED),  # the episodes are known
    "score and every digest": (raised(0.5, **UNTRAINED), UNKNOWN),
    "high score and every digest": (raised(3.5, **UNTRAINED), FAR),
    "episodes of another seed": (exchange_episodes, PROVED),
    "seeds": (exchange_seeds, UNKNOWN),
    "steps": (every(env_steps=900), PROVED),
    "best center": (every(best_center=9999.0), PROVED),
    "best so far": (every(best_so_far=BEST), PROVED),
    "a bad seed left out": (drop_seed, CLAIM),
    "time": (every(wall_time_s=1.0), CLAIM),
    "command": (lambda content: content.update(commands=["esbench run quick"]), CLAIM),
}
REMEMBERED: dict[str, Any] = {}


def remembered(spec: Any, *arguments: Any) -> Any:
    """Train every trial once."""
    if spec.hash not in REMEMBERED:
        REMEMBERED[spec.hash] = train_again(spec, *arguments)
    return REMEMBERED[spec.hash]


def on_another_processor(spec: Any, *arguments: Any) -> Any:
    """The last bit of all returns differs, and digests from the third generation on."""
    records, score = remembered(spec, *arguments)
    rows = [*records[:2], *(replace(row, digest="e" * 64) for row in records[2:])]
    return rows, replace(score, returns=np.nextafter(score.returns, np.inf))


@pytest.mark.parametrize("place", range(3), ids=["here", "same bits", "other bits"])
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_found_where_bits_prove_it(
    board: Path,
    pool: WorkerPool,
    rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    place: int,
) -> None:
    def forge(content: Any) -> None:
        FORGED[name][0](content)
        if place:
            elsewhere(content)

    rewrite(forge)
    monkeypatch.setattr(provenance, "_git_commit", lambda: "0" * 40)
    monkeypatch.setattr(TRAINS_AGAIN, on_another_processor if place == 2 else remembered)
    found = sampled(board, pool, None)
    assert found.outcome is FORGED[name][1][place], sentences(found)
    assert ("not proved" in sentences(found)[-1]) is (found.outcome is NO_DIFFERENCE)


@pytest.mark.parametrize(
    ("first_digests", "kept", "place", "words"),
    [
        (0, (1, 2, 3, 10, 16), 12, "from a generation after 10 and until 16"),
        (0, (1, 2, 3, 10, 16), 3, "from generation 3"),
        (0, (1, 2, 3, 10, 16), 1, "from generation 1"),
        (0, (1, 2, 3, 11, 12, 16), 12, "from generation 12"),
        (3, (), 12, "from a generation after 3 and until 16"),  # an older file
    ],
)
def test_the_generation_from_which_bits_differ_is_named(
    board: Path,
    pool: WorkerPool,
    rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
    first_digests: int,
    kept: tuple[int, ...],
    place: int,
    words: str,
) -> None:
    (entry,) = read_leaderboard(board)

    def change(content: Any) -> None:
        for run, trial in zip(content["runs"], content["cell"]["trials"], strict=True):
            spec, digests = entry.to_cell().trial_spec(trial["seed"]), run["digests"]
            records, _ = remembered(spec, pool, lambda record: None, math.inf)
            trial["first_digests"] = [row.digest for row in records[:first_digests]]
            run["digests"] = {str(n): digests[str(n)] for n in kept if str(n) in digests}

    def other(spec: Any, *arguments: Any) -> Any:
        records, score = remembered(spec, *arguments)
        return [replace(r, digest="e" * 64) if r.generation >= place else r for r in records], score

    rewrite(change)
    monkeypatch.setattr(TRAINS_AGAIN, other)
    assert f"seed 0 {words} (" in sentences(sampled(board, pool, None))[0]


def respecified(**changes: Any) -> Change:
    """Changes of parts of the specification."""

    def change(content: Any) -> None:
        for part, values in changes.items():
            content["cell"]["spec"][part].update(values)

    return change


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (every(env_steps=10), "10 steps"),
        (respecified(budget={"env_steps": 10**15}), "budget.env_steps = 1000000000000000"),
        (respecified(budget={"env_steps": 10**9}), "expected at least 1000000000"),
        (respecified(policy={"settings": {"hidden": [65536, 65536]}}), "4,295,[0-9,]* parameters"),
        (respecified(environment={"episodes_per_member": 9999}), "expected at least"),
        (respecified(environment={"kwargs": {"max_episode_steps": 10**15}}), "max_episode_steps"),
    ],
)
def test_sizes_are_checked_before_anything_is_announced_or_trained(
    esbench: Run, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch, forge: Change, words: str
) -> None:
    monkeypatch.setattr(TRAINS_AGAIN, None)
    code, out, err = esbench("verify", str(rewrite(forge)), "--workers", "0")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert re.search(words, err)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_the_steps_and_episodes_to_be_played_are_announced(
    esbench: Run, path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(TRAINS_AGAIN, failing(0))
    steps = sum(json.loads(file.read_text())["env_steps"] for file in trained.rglob("result.json"))
    _, out, _ = esbench("verify", str(path if what == "file" else trained), "--workers", "0")
    assert out.startswith(f"{format_steps(steps)} steps of training and 48 held-out episodes: ")


def test_training_ends_at_twice_the_recorded_steps(pool: WorkerPool, rewrite: Rewrite) -> None:
    """A target that is never reached was said to be."""
    reached = "the center's return reached 1e+06 (mean 1)"

    def forge(content: Any) -> None:
        respecified(budget={"env_steps": 20_000, "target_return": 1e6})(content)
        every(stopped=reached)(content)

    (entry,) = read_leaderboard(rewrite(forge).parent)
    (cell,) = draw_sample([entry], 1, 0)
    spec = cell.cell.trial_spec(cell.chosen[0])
    most = LONGER * max(run.env_steps for run in entry.runs)
    records, _ = train_again(spec, pool, lambda record: None, most)
    assert records[-2].env_steps <= most < records[-1].env_steps


def three(content: Any) -> None:
    """With three recorded scores, the smallest p of a test with four new ones is 2 / 35."""
    del content["cell"]["trials"][3], content["runs"][3]
    content["curves"] = None
    every(last_digest=WRONG)(content)


def test_new_seeds_are_trained_where_recorded_ones_are_too_few(
    pool: WorkerPool, rewrite: Rewrite
) -> None:
    found = sampled(rewrite(three).parent, pool)
    assert (found.outcome, found.p_value is None) == (NO_DIFFERENCE, False)
    assert sorted(each.seed for each in found.reruns) == [0, 1, 2, 3, 4]
    assert {each.seed for each in found.reruns if each.is_new} == {3, 4}


@pytest.mark.parametrize("commit", ["1234" * 10 + "+", None])
def test_other_bits_are_compared_by_their_scores_where_the_commit_is_not_known(
    board: Path,
    pool: WorkerPool,
    rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
    commit: str | None,
) -> None:
    def other(content: Any) -> None:
        every(last_digest=WRONG)(content)
        content["origins"][0]["git_commit"] = commit

    rewrite(other)
    monkeypatch.setattr(provenance, "_git_commit", lambda: commit)
    found = sampled(board, pool)
    assert (found.outcome, found.p_value, len(found.reruns)) == (NO_DIFFERENCE, 1.0, 4)


def test_a_policy_that_diverges_when_it_is_trained_again_is_different(
    board: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverged(*arguments: Any) -> Any:
        records, score = train_again(*arguments)
        return records, replace(score, returns=np.append(score.returns[:-1], np.nan))

    monkeypatch.setattr(TRAINS_AGAIN, diverged)
    found = sampled(board, pool)
    assert found.outcome is DIFFERENT
    assert (found.reruns[0].parts_at, found.reruns[0].score) == (SCORE_ONLY, None)


def test_a_file_or_a_part_of_a_leaderboard_is_trained_again(
    esbench: Run, board: Path, path: Path, rewrite: Rewrite
) -> None:
    kept = path.read_bytes()
    rewrite(lambda content: (raise_scores(content, 0.5), elsewhere(content)))
    code, out, _ = esbench("verify", str(path), "--workers", "0")
    assert (code, "seed 3: score" in out) == (1, True)
    path.write_bytes(kept)
    code, out, _ = esbench("verify", str(path), "--workers", "0")
    assert (code, "4 trials" in out) == (0, True)
    sample = ["verify", "--leaderboard", str(board), "--workers", "0", "--sample", "2"]
    code, out, _ = esbench(*sample, "--env", "doubles:Walk-v0", "--algorithm", "openai_es")
    assert (code, "2 trials" in out) == (0, True)
    for words, message in {
        ("verify",): "",
        ("verify", str(board)): "--sample K",  # may be days of training
        ("verify", str(board.parent), "--sample", "1"): "",  # not a leaderboard
        ("verify", str(path), "--env", "doubles:Walk-v0"): "--sample",
        (*sample, "--env", "Walk-v1"): "unknown environment",
        (*sample, "--algorithm", "openai"): "unknown algorithm",
        ("verify", path.name, "--leaderboard", str(board)): str(path),  # the nearest one
        ("verify", "nothing like it", "--leaderboard", str(board)): "",
    }.items():
        code, _, err = esbench(*words)
        assert (code, message in err) == (2, True), words


# The decision


def test_a_difference_is_announced_after_all_trials_are_run(
    trained: Path, pool: WorkerPool
) -> None:
    """Its p-value depends on how many others differ."""
    set_digest(trained / "seed-0", 1)
    (cell,) = stored_trials(trained)
    events: list[str] = []
    reproduce(
        [replace(cell, chosen=(0,)), replace(cell, chosen=(1,))],
        pool,
        lambda name, record: events.append("run"),
        lambda found: events.append(found.outcome.name),
    )
    assert events[-2:] == ["IDENTICAL", "DIFFERENT"]


def differing(scores: list[float], new: list[float]) -> Verification:
    """A cell whose bits all differ, before the correction."""
    pairs = enumerate(zip(scores, new, strict=True))
    reruns = tuple(Rerun(seed, 1, then, now) for seed, (then, now) in pairs)
    return Verification("cell", DIFFERENT, reruns, tuple(scores))


def test_too_few_seeds_for_a_significant_difference_are_no_test() -> None:
    apart = differing([100.0, 101.0, 102.0, 103.0], [1.0, 2.0, 3.0, 4.0])
    near = differing([100.0, 101.0, 102.0, 103.0], [100.5, 101.0, 102.5, 103.5])
    (alone,) = decide([apart])
    assert (alone.outcome, alone.p_value) == (DIFFERENT, pytest.approx(2 / 70))
    (alone,) = decide([near])
    assert alone.outcome is NO_DIFFERENCE
    for found in decide([apart, near]), decide([near, near]):
        assert [(item.outcome, item.p_value) for item in found] == [(DIFFERENT, None)] * 2
        assert "5 seeds" in sentences(found[1])[0]
    five = differing([*range(100, 105)], [*range(1, 6)]), differing([1.0] * 5, [1.0] * 5)
    assert [item.outcome for item in decide(five)] == [DIFFERENT, NO_DIFFERENCE]


def test_a_test_has_the_seeds_that_it_needs() -> None:
    assert [fewest_runs(None, tests) for tests in (1, 2, 6, 7)] == [4, 5, 5, 6]
    for recorded, tests in itertools.product((2, 3, 4, 10), (1, 3, 7, 20)):
        runs = fewest_runs(recorded, tests)
        p_value = p_different([0.0] * recorded, [1.0] * runs)
        assert tests * p_value <= 0.05
        assert runs == 4 or tests * smallest_p(recorded, runs - 1) > 0.05
    for new in (8, 12):  # of all splits, and of random ones
        assert smallest_p(10, new) == p_different([0.0] * 10, [1.0] * new)
    assert fewest_runs(10, 600) == 8  # no number of seeds is enough
