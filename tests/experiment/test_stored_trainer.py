"""``make_trainer(..., out=DIR)``: the folder of a trial that a script trains."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from command_line import Run, files
from fake_trials import outcome

import esbench.experiment.trials
from esbench import Stop, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.store.trial_folder import TrialFolder

OPTIONS = [
    *("--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--seeds", "3"),
    *("--env-steps", "500", "--set", "evaluation.episodes=4", "--set", "policy.hidden=[4]"),
    *("--set", "algorithms.openai_es.population_size=8"),
]
PLACE = "doubles_Walk-v0/openai_es/seed-3"


Make: TypeAlias = Callable[..., SearchTrainer]


@pytest.fixture
def make(single: WorkerPool) -> Make:
    """A maker of stored trainers that share the session's worker, which they do not close."""

    def made(out: Path | None, env_steps: int = 500, **more: Any) -> SearchTrainer:
        lent = contextlib.nullcontext(single)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("esbench.engine.worker_pool.WorkerPool", lambda _: lent)
            trainer = esbench.make_trainer(
                "openai_es",
                env="doubles:Walk-v0",
                seed=3,
                policy={"hidden": [4]},
                budget={"env_steps": env_steps},
                evaluation={"episodes": 4},
                population_size=8,
                out=out,
                **more,
            )
        assert isinstance(trainer, SearchTrainer)
        return trainer

    return made


def at(generation: int) -> Any:
    return lambda record: Stop("enough") if record.generation == generation else None


def test_it_is_the_trial_of_the_command_line(make: Make, tmp_path: Path, esbench: Run) -> None:
    with make(tmp_path / "a") as trainer:
        trainer.train()
        assert trainer.done
        assert trainer.folder == tmp_path / "a" / PLACE
    assert esbench("run", *OPTIONS, "--workers", "1", "--out", "b", "--quiet")[0] == 0
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
    before = files(tmp_path / "a" / PLACE)
    assert esbench("run", *OPTIONS, "--out", "a", "--quiet")[1].startswith("skip")
    assert " 1 " in esbench("status", *OPTIONS, "--out", "a")[1]
    after = files(tmp_path / "a" / PLACE)
    changed = {path.name for path in before if before[path] != after[path]}
    assert (changed, before.keys()) == ({"trial.json"}, after.keys())  # has the random score


def test_it_resumes_with_the_same_bits(make: Make, tmp_path: Path) -> None:
    with make(None) as whole:
        whole.train()
    for steps in (150, 300, 500):
        with make(tmp_path) as trainer:
            assert trainer.progress.env_steps < steps
            trainer.train(env_steps=steps)
    digests = [record.digest for record in whole.history]
    assert [row.digest for row in TrialFolder(tmp_path / PLACE).records()] == digests
    assert np.array_equal(trainer.center, whole.center)
    result = TrialFolder(tmp_path / PLACE).result()
    assert result["returns"] == whole.evaluate().returns.tolist()
    with make(tmp_path) as again:
        before = files(tmp_path)
        assert again.done
        assert again.train() is None
        again.save()
        assert again.history == trainer.history
        assert np.array_equal(again.center, whole.center)
    assert files(tmp_path) == before


def test_what_cannot_be_stored_is_refused(make: Make, tmp_path: Path) -> None:
    with make(tmp_path) as trainer:
        with pytest.raises(UsageError, match="not closed"):
            make(tmp_path)
        with pytest.raises(UsageError, match=r"501: expected at most 500"):
            trainer.train(env_steps=501)
        with pytest.raises(UsageError, match=r"returned True; expected None or"):
            trainer.train(callbacks=[lambda _: True])  # type: ignore[list-item, return-value]
    with make(tmp_path):  # the lock was released
        pass
    with pytest.raises(UsageError, match=r"sigma was .*, is now 0.5"):
        make(tmp_path, sigma=0.5)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        make(tmp_path / "file")
