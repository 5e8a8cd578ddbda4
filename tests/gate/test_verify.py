from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, execute, working_in
from fake_trials import make_trials, write_scores, write_trial

from esbench.algorithms.openai_es import OpenAIES
from esbench.errors import UsageError
from esbench.gate.verify import Outcome, Verification, sentences, verify
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord

TRAIN = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--env-steps", "200",
    "--workers", "1", "--quiet", "--out", "out",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=3",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which four seeds were trained."""
    folder = tmp_path_factory.mktemp("trained")
    with working_in(folder):
        assert execute(*TRAIN, "--seeds", "0-3") == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """Return the folder of four trained seeds, as ``tmp_path`` holds it."""
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)
    return next(tmp_path.rglob("trial.json")).parent.parent


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def again(path: Path, pool: WorkerPool) -> Verification:
    (found,) = verify(path, pool, lambda name, record: None)
    return found


def test_what_has_not_changed_is_identical_and_nothing_is_written(
    trained: Path, pool: WorkerPool
) -> None:
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    seen: list[GenerationRecord] = []
    (found,) = verify(trained, pool, lambda name, record: seen.append(record))
    assert (found.outcome, found.p_value, found.changed) == (Outcome.IDENTICAL, None, ())
    assert len(found.reruns) == 4
    assert len(seen) >= 4
    assert sentences(found)[0].endswith("identical: 4 trials, every digest and score")
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_a_changed_digest_is_found_where_it_is(trained: Path, pool: WorkerPool) -> None:
    path = trained / "seed-2" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["digest"] = "f" * 64
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = again(trained, pool)
    assert [rerun.parts_at for rerun in found.reruns] == [None, None, 2, None]
    assert found.outcome is Outcome.EQUAL  # the scores are the same
    assert found.p_value == 1
    assert "1 of 4 trials differ, seed 2 from generation 2" in sentences(found)[0]
    assert "esbench itself" in sentences(found)[1]
    alone = again(trained / "seed-2", pool)
    assert alone.outcome is Outcome.DIFFERENT
    assert "4 seeds" in sentences(alone)[0]


def test_a_changed_score_of_the_same_training_is_found(trained: Path, pool: WorkerPool) -> None:
    edit(trained / "seed-0" / "result.json", lambda content: content.update(score=0.25))
    found = again(trained / "seed-0", pool)
    rows = (trained / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert found.reruns[0].parts_at == len(rows) + 1
    assert "score 0.25 " in sentences(found)[0]


def test_another_algorithm_of_the_same_name_is_different(
    trained: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        edit(
            trained / f"seed-{number}" / "result.json",
            lambda content, number=number: content.update(score=1000.0 + number),
        )
    tell = OpenAIES._tell
    monkeypatch.setattr(OpenAIES, "_tell", lambda self, p, returns, b: tell(self, p, -returns, b))
    found = again(trained, pool)
    assert found.outcome is Outcome.DIFFERENT
    assert found.p_value == pytest.approx(2 / 70)


def test_changed_packages_and_processors_are_named(trained: Path, pool: WorkerPool) -> None:
    path = trained / "seed-1" / "trial.json"
    edit(path, lambda content: content["versions"].update(numpy="1.0", esbench="0.0"))
    edit(path, lambda content: content["hardware"].update(cpu="Abacus"))
    edit(trained / "seed-1" / "result.json", lambda content: content.update(score=0.25))
    found = again(trained / "seed-1", pool)
    numpy, processor = found.changed
    assert numpy.startswith("numpy 1.0 then, ")
    assert processor.startswith("processor Abacus then, ")
    assert sentences(found)[1] == f"changed: {numpy}; {processor}"


def test_the_command_says_so_and_exits_with_it(esbench: Run, trained: Path) -> None:
    code, out, err = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert (code, err) == (0, "")
    assert "identical: 1 trial, every digest and score" in out
    edit(trained / "seed-0" / "result.json", lambda content: content.update(score=0.25))
    code, out, _ = esbench("verify", str(trained / "seed-0"), "--workers", "1")
    assert code == 1
    assert "different: seed 0 differs from generation" in out


def test_what_is_not_done_is_refused(tmp_path: Path, pool: WorkerPool) -> None:
    write_scores(tmp_path, [1.0])
    (trial,) = make_trials(tmp_path, seeds=[5])
    write_trial(trial, error="Traceback")
    with pytest.raises(UsageError, match=r"seed-5 is failed; expected trials that are done"):
        again(tmp_path, pool)
    with pytest.raises(UsageError, match="no folder"):
        again(tmp_path / "none", pool)
