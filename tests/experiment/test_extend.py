"""An extended trial equals a trial that had the larger budget from the start."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, files
from fake_trials import outcome
from watchers import run

from esbench.core.errors import UsageError
from esbench.core.files import replace as replace_file
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.experiment.trials import Trial
from esbench.store import row_files as metrics
from esbench.store import stored_json
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
# One of each way to keep a state: PyTorch's optimizer, a library's, chains of mutations, lineages
# and an archive.
ALGORITHMS = ("openai_es", "cma_es", "genetic", "nsra_es")


def content(trial: Trial) -> tuple[Any, Any, dict[str, Any]]:
    """Rows, result and tensors of a trial, without times."""
    ((rows, result),) = outcome(trial.folder.path)
    tensors = trial.folder.path.glob("checkpoint/*.safetensors")
    return rows, result, {path.name: path.read_bytes() for path in tensors}


def larger(trial: Trial, env_steps: int, root: Path | None = None) -> Trial:
    """A trial with another budget, in the same folder or below ``root``."""
    budget = trial.spec.budget.model_copy(update={"env_steps": env_steps})
    spec = trial.spec.model_copy(update={"budget": budget})
    folder = trial.folder if root is None else TrialFolder(root / trial.folder.path.name)
    return replace(trial, spec=spec, folder=folder, extend=root is None)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_ends_with_the_bits_of_a_whole_run(
    make_trial: Make, pool: WorkerPool, tmp_path: Path, algorithm: str
) -> None:
    settings = {"population_size": 6, "sigma": 0.1}
    short = make_trial(algorithms={algorithm: settings}, budget={"env_steps": 200})
    run(pool, short)
    generations = len(short.folder.records())
    extended, whole = larger(short, 400), larger(short, 400, tmp_path / "whole")
    run(pool, extended, whole)
    assert content(extended) == content(whole)
    assert len(extended.folder.records()) > generations > 0
    assert extended.folder.description()["hash"] == whole.folder.description()["hash"]


@pytest.fixture
def done(make_trial: Make, pool: WorkerPool) -> Trial:
    trial = make_trial(settings={"optimizer": "clipup", "learning_rate": 0.1})
    run(pool, trial)
    return trial


@pytest.mark.parametrize(
    ("budget", "change"),
    [
        ({"env_steps": 400}, {}),
        ({"env_steps": 900, "generations": 1000}, {}),
        ({"env_steps": 900, "target_return": 3.0}, {}),
        ({"env_steps": 900}, {"seed": 7}),
    ],
    ids=["smaller", "generations-bounded", "target", "seed"],
)
def test_only_a_larger_budget_can_be_extended_to(
    done: Trial, pool: WorkerPool, budget: dict[str, Any], change: dict[str, Any]
) -> None:
    before = files(done.folder.path)
    new = done.spec.budget.model_copy(update=budget)
    wanted = replace(done, spec=done.spec.model_copy(update={"budget": new, **change}), extend=True)
    with pytest.raises(UsageError, match="holds another trial") as raised:
        run(pool, wanted)
    assert "--extend" not in str(raised.value)
    assert files(done.folder.path) == before


def test_the_trial_keeps_what_was_scored_and_which_command_made_it(
    done: Trial, pool: WorkerPool
) -> None:
    scores, command = [done.folder.result()["score"]], done.folder.description()["command"]
    generations = [done.folder.result()["generations"]]
    for env_steps in (900, 1300):
        run(pool, larger(done, env_steps))
        scores.append(done.folder.result()["score"])
        generations.append(done.folder.result()["generations"])
    description = done.folder.description()
    assert [part["budget"]["env_steps"] for part in description["extended"]] == [500, 900]
    assert [part["score"] for part in description["extended"]] == scores[:-1]
    assert [part["generation"] for part in description["extended"]] == generations[:-1]
    assert {part["command"] for part in description["extended"]} == {command}
    assert done.folder.kept == generations[:-1]
    for generation, score in zip(generations, scores, strict=True):
        stored = evaluate_trial(done.folder.path, pool, generation=generation)
        assert stored.recorded == stored.score.mean == score
    assert done.folder.spec().budget.env_steps == 1300


class KilledError(Exception):
    """Stands for a SIGKILL: nothing after it is done."""


@pytest.mark.parametrize(("after", "again"), [(1, False), (1, True), (2, False), (3, False)])
def test_killed_while_it_is_extended_it_is_whole(
    done: Trial, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, after: int, again: bool
) -> None:
    expected = content(done)
    writes: Iterator[int] = iter(range(100))

    def write(path: Path, text: str | bytes) -> None:
        if next(writes) == after:
            raise KilledError
        replace_file(path, text)

    with monkeypatch.context() as patch:
        for module in (stored_json, metrics):
            patch.setattr(module, "replace", write)
        with done.folder.locked(), pytest.raises(KilledError):
            done.folder.begin(larger(done, 900).spec, {"labels": done.labels}, extend=True)
    assert done.folder.status == "partial"
    if again:  # as it was, and only then with the larger budget
        run(pool, done)
        assert content(done) == expected
    run(pool, larger(done, 900))
    assert done.folder.result()["env_steps"] >= 900
    (before,) = done.folder.description()["extended"]
    assert before["score"] == expected[1]["score"]


def test_the_command(esbench: Run) -> None:
    trial = ["--env", "doubles:Walk-v0", "--algorithm", "snes", "--seeds", "0", "--out", "out",
             "--set", "evaluation.episodes=2", "--set", "policy.hidden=[4]"]  # fmt: skip
    run = ["run", *trial, "--workers", "0", "--quiet"]
    assert esbench(*run, "--env-steps", "300")[0] == 0
    more = ["--env-steps", "900"]
    code, _, complaint = esbench(*run, *more)
    assert (code, "continue it with --extend" in complaint) == (2, True)
    code, printed, _ = esbench("status", *trial, *more, "--extend")
    assert (code, "1 partial" in printed) == (0, True)
    assert esbench(*run, *more, "--extend")[0] == 0
    (stored,) = Path("out").rglob("trial.json")
    assert json.loads(stored.read_text())["command"].endswith("--env-steps 900 --extend")
    code, printed, _ = esbench("status", *trial, *more)
    assert (code, "1 done" in printed) == (0, True)
    before = stored.read_bytes()
    assert esbench(*run, *more, "--extend")[0] == 0  # there is nothing left to do
    assert stored.read_bytes() == before
