"""A trial that starts from the policy of another one."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_trials import reseal
from watchers import Watcher, run

from esbench.core.errors import TrainingError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_trial import open_trial, run_trial
from esbench.experiment.stored_trainer import evaluate_trial, make_trainer
from esbench.experiment.trials import Trial
from esbench.publish.reproduce import reproduce, stored_trials
from esbench.publish.verification import RerunOutcome, Verification
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
PICTURES = "doubles:Pictures-v0"
CONV = {"template": "small_conv", "layers": [[3, 4, 2]], "hidden": [4]}
NORMALIZED = {**CONV, "virtual_batch_norm": True, "reference_size": 6}


def trained(make_trial: Make, pool: WorkerPool, *names: str, **table: Any) -> Trial:
    trial = make_trial(*names, seed=5, budget={"env_steps": 200}, **table)
    run(pool, trial)
    return trial


@pytest.mark.parametrize(
    ("names", "table"),
    [
        (("doubles:Walk-v0", "openai_es"), {}),
        (("doubles:Walk-v0", "nsra_es"), {}),
        (("doubles:Walk-v0", "openai_es"), {"settings": {"center_average": 3}}),
        ((PICTURES,), {"policy": {**NORMALIZED, "normalize_observations": True}}),
    ],
)
def test_it_starts_with_the_policy_and_resumes_bit_for_bit(
    make_trial: Make, pool: WorkerPool, names: tuple[str, ...], table: dict[str, Any]
) -> None:
    source = trained(make_trial, pool, names[0], **table)
    warm = {"init_from": str(source.folder.path), "seed": 5, **table}
    trial = make_trial(*names, budget={"env_steps": 400}, **warm)
    assert trial.spec.init_from is not None
    assert trial.spec.init_from.digest == source.folder.records()[-1].digest
    with make_trainer(trial.spec, pool) as trainer:  # the same seed, so the same held-out episodes
        assert trainer.evaluate().returns.tolist() == source.folder.result()["returns"]
        trainer.train()
        history = trainer.history

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    trial = replace(trial, folder=TrialFolder(trial.folder.path.with_name("warm")))
    with pytest.raises(KeyboardInterrupt):
        run_trial(trial, pool, Watcher(), [interrupt])
    assert len(trial.folder.records()) == 1
    run(pool, trial)
    for resumed, record in zip(trial.folder.records(), history, strict=True):
        for name in ("digest", "distance", "update_cosine"):
            np.testing.assert_equal(getattr(resumed, name), getattr(record, name))
    found: list[Verification] = []
    reproduce(stored_trials(trial.folder.path), pool, lambda *_: None, found.append)
    assert [each.outcome for each in found] == [RerunOutcome.IDENTICAL]
    shutil.rmtree(source.folder.path)  # not needed to score what was trained
    stored = evaluate_trial(trial.folder.path, pool)
    assert stored.recorded == stored.score.mean


def test_a_script_and_a_command_can_start_there(
    make_trial: Make, pool: WorkerPool, esbench: Run
) -> None:
    source = trained(make_trial, pool, "CartPole-v1")
    given = ["--env", "CartPole-v1", "--algorithm", "cma_es", "--seeds", "0", "--env-steps", "50"]
    policy = ["--set", "policy.template=mlp", "--set", "policy.hidden=[4]"]
    start = ["--set", f"init_from={source.folder.path}", "--out", "new"]
    assert esbench("run", *given, *policy, *start)[0] == 2
    policy += ["--set", "policy.normalize_observations=true"]
    assert esbench("run", *given, *policy, *start)[0] == 0
    assert "cma_es: training started from the policy of" in " ".join(
        esbench("table", "new")[1].replace(" on CartPole-v1", "").split()
    )


def test_an_own_algorithm_that_needs_its_start_must_store_it(
    make_trial: Make, pool: WorkerPool
) -> None:
    """A resumed trainer does not read the start again."""
    path = str(trained(make_trial, pool).folder.path)
    trial = make_trial("doubles:Walk-v0", "own_search:FromStart", init_from=path)
    with (
        make_trainer(trial.spec, pool) as trainer,
        pytest.raises(TrainingError, match="FromStart.*generation 1 ends in another state"),
    ):
        trainer.train()


def test_the_policy_that_a_refused_start_needs_is_in_the_message(
    make_trial: Make, pool: WorkerPool
) -> None:
    path = str(trained(make_trial, pool).folder.path)
    with pytest.raises(UsageError) as refused:
        make_trainer(make_trial(init_from=path, policy={"template": "linear"}).spec, pool)
    policy = tomllib.loads(str(refused.value).partition("; expected ")[2])["policy"]
    with make_trainer(make_trial(init_from=path, policy=policy).spec, pool) as trainer:
        trainer.train(env_steps=1)


def test_wrong_starts_are_one_sentence(make_trial: Make, pool: WorkerPool, tmp_path: Path) -> None:
    source = trained(make_trial, pool)
    path = str(source.folder.path)
    with pytest.raises(UsageError, match=r"init_from = .*nowhere.* expected the folder"):
        make_trial(init_from=str(tmp_path / "nowhere"))
    for name, change, words in [
        ("CartPole-v1", {}, r"inputs and outputs were \(3, 3\), are now \(4, 2\)"),
        ("doubles:Walk-v0", {"policy": {"template": "linear"}}, "template was"),
        ("doubles:Walk-v0", {"settings": {"center_init": 0.5}}, "center_init"),
    ]:
        wrong = make_trial(name, init_from=path, **change)
        with pytest.raises(UsageError, match=words), open_trial(wrong, pool):
            pass
        assert not wrong.folder.has_begun  # so the right one can be begun there
    trial = make_trial(init_from=path)
    rows = source.folder.path / "metrics.jsonl"
    digest = source.folder.records()[-1].digest
    rows.write_text(rows.read_text().replace(digest, "0" * len(digest)))
    reseal(source.folder.path)
    with pytest.raises(UsageError, match=f"{'0' * len(digest)}; expected the recorded one"):
        make_trainer(trial.spec, pool)
