import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from watchers import Watcher, run

from esbench.bench.grid_cost import standing
from esbench.core import process
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.behaviors.behavior import Behavior, SlotView
from esbench.experiment.run_grid import run_grid
from esbench.experiment.stored_trainer import evaluate_trial
from esbench.experiment.trials import Trial, grid_trials
from esbench.experiment.watchers import Stop
from esbench.grids.grid_file import parse_grid
from esbench.policies.kernels.torch_modules import VirtualBatchNorm
from esbench.results.data_frames import scores_of
from esbench.store.generation_record import GenerationRecord

Make = Callable[..., Trial]


def test_a_score_that_is_not_finite_is_done_and_says_so(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial("doubles:BadReward-v0")
    ((outcome, detail),) = run(pool, trial)
    bad = [value is None for value in trial.folder.result()["returns"]].count(True)
    assert outcome == "done"
    assert detail == f"score - ({bad} of 4 held-out episodes not finite)"
    assert trial.folder.result()["score"] is None
    assert not (trial.folder.path / "error.txt").exists()
    assert run(pool, trial) == [("skipped", detail)]
    assert evaluate_trial(trial.folder.path, pool).recorded is None  # nothing to compare with


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trial.json", b"{}"),
        ("checkpoint/*.safetensors", b"\0"),
        ("result.json", b'{"format": 2}'),
        ("metrics.jsonl", b'{"generation": 1'),
    ],
)
def test_a_damaged_trial_does_not_stop_the_others(
    make_trial: Make, pool: WorkerPool, name: str, content: bytes
) -> None:
    trial, other = make_trial(seed=0), make_trial(seed=1)
    run(pool, trial)
    folder = trial.folder.path
    if name == "checkpoint/*.safetensors":
        (folder / "result.json").unlink()
    (path,) = folder.glob(name)
    path.write_bytes(content)
    (outcome, detail), (second, _) = run(pool, trial, other)
    assert (outcome, second) == ("failed", "done")
    assert detail.startswith(f"{path} is damaged (")
    assert "; remove " in detail
    assert path.read_bytes() == content
    assert trial.folder.status == ("done" if trial.folder.is_done else "failed")
    assert standing(trial).detail.startswith(f"{path} is damaged (")
    labels = trial.labels | {"seed": 0}
    (status,) = scores_of([(labels, trial.folder)], damaged_failed=True)["status"]
    assert status == "failed"


def test_user_code_may_change_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool
) -> None:
    monkeypatch.chdir(tmp_path)
    table = {
        "name": "test",
        "environments": ["CartPole-v1"],
        "policy": {"template": "linear"},
        "seeds": [0, 1],
        "algorithms": {"moves": {"algorithm": "own_agents:Moves"}, "snes": {}},
        "budget": {"env_steps": 300},
        "evaluation": {"episodes": 1},
    }
    trials = grid_trials(parse_grid(table, "test"), Path("out"), "test")
    outcomes = run_grid(trials, pool, Watcher(), callbacks=[lambda _: os.chdir("/")])
    assert outcomes == ["done"] * 4
    assert Path.cwd() == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


class FewRows(torch.nn.Module):
    """Takes the nine rows with which it is tried, and no reference batch of another size."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.norm = VirtualBatchNorm(num_inputs)
        self.out = torch.nn.Linear(num_inputs, num_outputs)

    def forward(self, observations: torch.Tensor) -> Any:
        assert len(observations) <= 9
        return self.out(self.norm(observations))


class Words(Behavior):
    """A behavior that is no vector of numbers."""

    def begin(self, view: SlotView) -> None: ...

    def step(self, view: SlotView) -> None: ...

    def end(self, view: SlotView) -> Any:
        return "far away"


def test_user_code_that_fails_in_a_worker_fails_its_trial_alone(
    make_trial: Make, pool: WorkerPool
) -> None:
    behavior = {"doubles:Walk-v0": {"behavior": f"{__name__}:Words"}}
    lost = make_trial("doubles:Walk-v0", "nsra_es", environment=behavior)
    bad = make_trial(policy={"template": f"{__name__}:FewRows"})
    trials = [bad, lost, make_trial(seed=1)]
    assert run_grid(trials, pool, Watcher()) == ["failed", "failed", "done"]
    assert "the behavior of an episode is a str" in lost.folder.error()
    assert "assert len(observations) <= 9" in bad.folder.error()


def test_a_stopped_trial_killed_while_it_was_scored_is_not_trained_further(
    make_trial: Make, pool: WorkerPool
) -> None:
    def stop_at_two(record: GenerationRecord) -> Stop | None:
        return Stop("enough") if record.generation == 2 else None

    trial = make_trial()
    run_grid([trial], pool, Watcher(), callbacks=[stop_at_two])
    result = trial.folder.path / "result.json"
    whole = json.loads(result.read_text())
    result.unlink()
    assert run(pool, trial) == [("done", f"score {whole['score']:.1f}")]
    again = json.loads(result.read_text())
    assert (again["generations"], again["stopped"]) == (2, "enough")
    assert again["returns"] == whole["returns"]


def test_a_trial_that_fails_because_of_an_interrupt_is_not_stored_as_failed(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial()

    def interrupted(_: object) -> None:  # user code that catches everything
        monkeypatch.setattr(process, "_interrupts", [2])
        raise RuntimeError("hostile")

    with pytest.raises(KeyboardInterrupt):
        run_grid([trial], pool, Watcher(), callbacks=[interrupted])
    assert trial.folder.status == "partial"
