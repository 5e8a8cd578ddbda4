import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, execute, files, working_in
from fake_trials import edit, make_trials, reseal, set_digest, write_trial
from safetensors.numpy import load_file, save_file

from esbench import Stop, make_trainer
from esbench.algorithms.openai_es import OpenAIES
from esbench.core.errors import DamagedTrialError, TrainingError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.gate.reruns import (
    SCORE_ONLY,
    Rerun,
    RerunOutcome,
    Verification,
    announce_final,
    decide,
    fewest_runs,
    sentences,
    smallest_p,
    train_again,
)
from esbench.publish.gate.verify import verify
from esbench.results.statistics.significance import p_different
from esbench.store.generation_record import GenerationRecord

TRAIN = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--env-steps", "200",
    "--workers", "1", "--quiet", "--out", "out",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=3",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with working_in(folder):
        assert execute(*TRAIN, "--seeds", "0-3") == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)
    return next(tmp_path.rglob("trial.json")).parent.parent


def again(path: Path, pool: WorkerPool) -> Verification:
    found: list[Verification] = []
    verify(path, pool, lambda name, record: None, found.append)
    (verification,) = found
    return verification


def test_what_has_not_changed_is_identical_and_nothing_is_written(
    trained: Path, pool: WorkerPool
) -> None:
    before = files(trained)
    seen: list[GenerationRecord] = []
    reported: list[Verification] = []
    verify(trained, pool, lambda name, record: seen.append(record), reported.append)
    (found,) = reported
    assert (found.outcome, found.p_value, found.changed) == (RerunOutcome.IDENTICAL, None, ())
    assert len(found.reruns) == 4
    assert len(seen) >= 4
    assert sentences(found)[0].endswith("identical: 4 trials, every digest and score")
    assert files(trained) == before


@pytest.mark.parametrize("target", [None, 1e9, -1e9])
def test_a_stop_by_a_callback_or_a_target_is_repeated(
    tmp_path: Path, pool: WorkerPool, target: float | None
) -> None:
    budget = {"env_steps": 2000, "target_window": 2} | (
        {} if target is None else {"target_return": target}
    )
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
    assert again(tmp_path, pool).outcome is RerunOutcome.IDENTICAL


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


def test_scores_that_differ_are_told_apart() -> None:
    rerun = Rerun(0, SCORE_ONLY, 4013.41, 4013.38)
    told = " ".join(sentences(Verification("x", RerunOutcome.DIFFERENT, (rerun,), None, ())))
    assert "4013.41" in told
    assert "4013.38" in told


def test_a_changed_digest_is_found_where_it_is(trained: Path, pool: WorkerPool) -> None:
    set_digest(trained / "seed-2", 2)
    found = again(trained, pool)
    assert [rerun.parts_at for rerun in found.reruns] == [None, None, 2, None]
    assert found.outcome is RerunOutcome.NO_DIFFERENCE  # the scores are the same
    assert found.p_value == 1
    assert "1 of 4 trials differ, seed 2 from generation 2" in sentences(found)[0]
    assert "esbench itself" in sentences(found)[1]
    alone = again(trained / "seed-2", pool)
    assert alone.outcome is RerunOutcome.DIFFERENT
    assert "4 seeds" in sentences(alone)[0]


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
    found = again(trained, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert [rerun.edited for rerun in found.reruns] == [("center_return",), (), (), ()]
    assert "seed 0: center_return" in sentences(found)[0]


def test_another_algorithm_of_the_same_name_is_different(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, path in enumerate(trained.glob("*/result.json")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"score": 1000.0 + number}))
    reseal(trained)
    tell = OpenAIES._tell
    monkeypatch.setattr(OpenAIES, "_tell", lambda self, p, returns, b: tell(self, p, -returns, b))
    found = again(trained, pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert found.p_value == pytest.approx(2 / 70)


def test_a_changed_score_is_found_and_packages_and_processors_are_named(
    trained: Path, pool: WorkerPool
) -> None:
    path = trained / "seed-1"
    edit(path, "trial.json", lambda c: c["versions"].update(numpy="1.0", esbench="0.0"))
    edit(path, "trial.json", lambda c: c["hardware"].update(cpu="Abacus"))
    edit(path, "result.json", lambda c: c.update(score=0.25))
    found = again(path, pool)
    assert found.reruns[0].parts_at == SCORE_ONLY
    assert "score 0.25 " in sentences(found)[0]
    numpy, processor = found.changed
    assert numpy.startswith("numpy 1.0 then, ")
    assert processor.startswith("processor Abacus then, ")
    assert sentences(found)[1] == f"changed: {numpy}; {processor}"


def test_the_command_says_so_and_exits_with_it(esbench: Run, trained: Path) -> None:
    code, out, err = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert (code, err) == (0, "")
    assert "identical: 1 trial, every digest and score" in out
    edit(trained / "seed-0", "result.json", lambda c: c.update(score=0.25))
    code, out, _ = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert code == 1
    assert "different: seed 0 " in out


@pytest.mark.parametrize("key", ["returns", "lengths", "score"])
def test_verify_and_eval_agree_on_what_is_identical(
    trained: Path, pool: WorkerPool, key: str
) -> None:
    """Two changed episodes whose mean is the recorded one differ too."""
    trial = trained / "seed-0"
    assert evaluate_trial(trial, pool).identical

    def change(content: Any) -> None:
        value = content[key]
        content[key] = value + 1 if key == "score" else [value[0] + 1, value[1] - 1, *value[2:]]

    edit(trial, "result.json", change)
    assert evaluate_trial(trial, pool).identical is False
    assert again(trial, pool).outcome is RerunOutcome.DIFFERENT


def test_a_stored_policy_that_scores_otherwise_is_different(
    trained: Path, pool: WorkerPool
) -> None:
    (stored,) = (trained / "seed-0" / "checkpoint").glob("*.safetensors")
    tensors = load_file(stored)
    save_file({name: np.asarray(1.0 - values) for name, values in tensors.items()}, stored)
    with pytest.raises(DamagedTrialError, match=stored.name):
        again(trained / "seed-0", pool)
    reseal(trained)
    assert evaluate_trial(trained / "seed-0", pool).identical is False
    found = again(trained / "seed-0", pool)
    assert found.outcome is RerunOutcome.DIFFERENT
    assert found.reruns[0].parts_at == SCORE_ONLY


def test_a_trial_that_fails_does_not_hide_the_other_cells(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working_in(tmp_path):
        command = [*TRAIN, "--seeds", "0", "--env", "doubles:Slow-v0"]
        assert execute(*command) == 0

    def fails(spec: TrialSpec, *arguments: Any) -> Any:
        if spec.environment.id.endswith("Slow-v0"):
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    monkeypatch.setattr("esbench.publish.gate.verify.train_again", fails)
    code, out, _ = esbench("verify", str(tmp_path / "out"), "--workers", "1")
    assert (code, out.count("identical"), out.count("the simulator fell over")) == (3, 1, 1)


def test_a_seed_that_fails_does_not_hide_a_difference_of_another_one(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_digest(trained / "seed-1", 1)

    def fails(spec: TrialSpec, *arguments: Any) -> Any:
        if spec.seed == 2:
            raise TrainingError("the simulator fell over")
        return train_again(spec, *arguments)

    monkeypatch.setattr("esbench.publish.gate.verify.train_again", fails)
    found = again(trained, pool)
    assert (found.outcome, found.p_value) == (RerunOutcome.DIFFERENT, None)
    assert [rerun.seed for rerun in found.reruns] == [0, 1, 3]
    assert "seed 2: the simulator fell over" in sentences(found)[-1]


def test_damage_is_found_before_anything_is_trained(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(trained.rglob("metrics.jsonl"))
    last.write_bytes(b"{}\n" + last.read_bytes())
    monkeypatch.setattr("esbench.publish.gate.verify.train_again", None)
    with pytest.raises(DamagedTrialError):
        again(trained, pool)


def test_what_is_not_done_is_refused(tmp_path: Path, pool: WorkerPool) -> None:
    (trial,) = make_trials(tmp_path, seeds=[5])
    write_trial(trial, error="Traceback")
    with pytest.raises(UsageError, match=r"seed-5 the first \(failed\)"):
        again(tmp_path, pool)
    with pytest.raises(UsageError, match="no folder"):
        again(tmp_path / "none", pool)
