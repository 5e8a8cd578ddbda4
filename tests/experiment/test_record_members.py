"""What ``--record members`` stores, and that nothing else depends on it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from watchers import Watcher, run

import esbench
import esbench.experiment.trainer as trainer_module
from esbench.core.errors import UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial
from esbench.store.stored_json import MEMBERS
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
NEVER = 1000.0
BAD = "doubles:BadReward-v0"  # NaN in half of its episodes


@pytest.fixture
def recorded(make_trial: Make) -> Trial:
    """A trial of novelty search, two episodes per member, not run yet."""
    table: dict[str, Any] = {
        "environment": {BAD: {"episodes_per_member": 2}},
        "budget": {"env_steps": 10**6, "generations": 5},
    }
    return replace(make_trial(BAD, "nsra_es", **table), record_members=True)


def beside(trial: Trial, name: str, members: bool = True) -> Trial:
    """The same trial in another folder."""
    folder = TrialFolder(trial.folder.path.parent / name)
    return replace(trial, folder=folder, record_members=members)


def stored(trial: Trial) -> bytes:
    return (trial.folder.path / MEMBERS).read_bytes()


def test_the_frame_is_what_the_trainer_played(recorded: Trial, pool: WorkerPool) -> None:
    run(pool, recorded)
    frame = esbench.load_members(recorded.folder.path)
    records = recorded.folder.records()
    assert list(frame["generation"].unique()) == [record.generation for record in records]
    for record, (_, rows) in zip(records, frame.groupby("generation"), strict=True):
        assert list(rows["member"]) == [m for m in range(record.population_size) for _ in range(2)]
        assert set(rows["episode"]) == {0, 1}
        returns = rows["return"].to_numpy().reshape(-1, 2).mean(axis=1)  # NaN if one of them is
        assert np.isnan(returns).sum() == record.non_finite > 0
        assert np.nanmax(returns) == record.population_return_max
        assert np.nanmean(returns) == pytest.approx(record.population_return_mean)
        assert rows["length"].mean() == pytest.approx(record.episode_length_mean)


def test_the_frame_has_what_novelty_search_computed(recorded: Trial, pool: WorkerPool) -> None:
    run(pool, recorded)
    frame = esbench.load_members(recorded.folder.path)
    states: list[dict[str, Any]] = []
    with SearchTrainer(recorded.spec, pool) as trainer:
        before = [trainer.algorithm.state_dict()["centers"]]
        trainer.train(callbacks=[lambda _: states.append(trainer.algorithm.state_dict())])
    for state, (_, rows) in zip(states, frame.groupby("generation"), strict=True):
        changed = (state["centers"] != before[-1]).any(axis=1)
        assert list(np.flatnonzero(changed)) == list(rows["parent"].unique())
        before.append(state["centers"])
        assert set(rows["novelty_weight"]) == {state["novelty_weight"]}
        once = rows[rows["episode"] == 0]
        behaviors = once.filter(regex=r"behavior_\d").to_numpy()
        apart = np.sqrt(((behaviors[:, None] - state["archive"][None]) ** 2).sum(axis=2))
        expected = np.sort(apart, axis=1)[:, :10].mean(axis=1)
        np.testing.assert_allclose(once["novelty"], expected, rtol=1e-12)


def test_nothing_else_depends_on_it(recorded: Trial, pool: WorkerPool) -> None:
    plain = beside(recorded, "plain", members=False)
    run(pool, recorded, plain)
    digests = [[row.digest for row in each.folder.records()] for each in (plain, recorded)]
    assert digests[0] == digests[1]
    names = {path.name for path in recorded.folder.path.iterdir()}
    assert names - {path.name for path in plain.folder.path.iterdir()} == {MEMBERS}
    assert plain.folder.description()["hash"] == recorded.folder.description()["hash"]
    with pytest.raises(UsageError, match=r"plain .*--record members"):
        esbench.load_members(plain.folder.path)
    with pytest.raises(UsageError, match="nowhere"):
        esbench.load_members("nowhere")


@pytest.mark.parametrize("torn", [b"", b"\x1f\x8b", b"no gzip"])
def test_an_interrupted_trial_has_the_same_file_for_any_number_of_workers(
    recorded: Trial,
    pool: WorkerPool,
    single: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    torn: bytes,
) -> None:
    whole, done = beside(recorded, "whole"), 0
    run(single, whole)

    def interrupt() -> None:
        nonlocal done
        done += 1
        monkeypatch.setattr(trainer_module, "CHECKPOINT_SECONDS", 0.0 if done < 2 else NEVER)
        if done == 4:
            raise RuntimeError("killed")

    assert run_grid([recorded], pool, Watcher(interrupt)) == ["failed"]
    state = recorded.folder.load_checkpoint()
    assert state is not None
    assert 0 < state["progress"]["generation"] < len(recorded.folder.members())
    with (recorded.folder.path / MEMBERS).open("ab") as file:
        file.write(torn)  # what a killed process may leave
    run(pool, replace(recorded, record_members=False))  # once begun, it goes on
    assert stored(recorded) == stored(whole)


def test_it_can_begin_later(make_trial: Make, pool: WorkerPool) -> None:
    first = make_trial(budget={"env_steps": 10**6, "generations": 2})
    run(pool, first)
    wanted = replace(first, record_members=True)
    ((outcome, detail),) = run(pool, wanted)
    assert (outcome, "--record members" in detail) == ("skipped", True)
    longer = make_trial(budget={"env_steps": 10**6, "generations": 4})
    ((_, detail),) = run(pool, replace(longer, record_members=True, extend=True))
    assert "from generation 3" in detail
    assert set(esbench.load_members(first.folder.path)["generation"]) == {3, 4}
