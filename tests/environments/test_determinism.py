"""Environments whose episodes do not depend on their seed are found, and their scores marked."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command_line import Run
from doubles import Walk
from fake_entries import fake_suite
from fake_trials import edit, write_scores
from results_tables import environment_table, suite_results

from esbench.engine.worker_pool import WorkerPool
from esbench.environments.episode_check import is_deterministic
from esbench.experiment.stored_trainer import make_trainer
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.diagnosis import diagnose
from esbench.publish.leaderboard.suites import read_suite
from esbench.publish.leaderboard.table import leaderboard_rows, leaderboard_sheet
from esbench.publish.tables.score_table import score_table, sheet
from esbench.publish.tables.table_notes import EQUAL_EPISODES, ONE_EPISODE
from esbench.results.entries import Entry, read_leaderboard
from esbench.store.find_trials import find_trials

FIXED_LAKE = 'environment."FrozenLake-v1".kwargs.is_slippery=false'
TRAIN = [
    "--algorithm", "openai_es", "--env-steps", "3000", "--seeds", "0-2",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=4",
]  # fmt: skip
LAKE = ["--env", "FrozenLake-v1", "--set", FIXED_LAKE, *TRAIN]
WALK = ["--env", "doubles:Walk-v0", *TRAIN]


class Same(Walk):
    """Begins every episode in the same place and moves without noise, but for one ``effect``."""

    def __init__(self, effect: str) -> None:
        super().__init__()
        self.effect = effect

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        gymnasium.Env.reset(self, seed=seed)
        self.position, self.left = np.ones(self.observation_space.shape or ()), 7
        return self.position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        if self.effect == "late":
            time.sleep(0.02)
        if self.effect == "raises" and self.left < 7:
            raise RuntimeError("the simulator fell over")
        noise = float(self.np_random.normal())
        self.position = self.position + action
        self.left -= 1
        ended = self.left == 0 or (self.effect == "end" and self.left == 1 and noise > 0)
        reward = noise if self.effect == "reward" or (self.effect == "late" and ended) else -1.0
        return self.position.astype(np.float32), reward, ended, False, {}


gymnasium.register("Same-v0", entry_point=Same, max_episode_steps=50)


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("Same-v0", {"effect": ""}, True),
        ("Same-v0", {"effect": "reward"}, False),
        ("Same-v0", {"effect": "end"}, False),
        ("Same-v0", {"effect": "raises"}, None),
        ("FrozenLake-v1", {"is_slippery": False}, True),
        ("FrozenLake-v1", {}, False),  # one start; its short episodes are often equal by chance
        ("CartPole-v1", {}, False),
        ("Acrobot-v1", {}, False),
        ("HalfCheetah-v5", {}, False),
        ("HalfCheetah-v5", {"reset_noise_scale": 0.0}, True),
        ("esbench/Sphere-v0", {}, False),  # an episode of one step has no trajectory
        ("esbench/NoisySphere-v0", {}, False),
        ("ale_py:PongNoFrameskip-v4", {"obs_type": "ram"}, True),
        ("esbench/Pong-v5", {}, False),  # sticky actions
    ],
)
def test_an_environment_is_deterministic_if_its_seed_makes_no_difference(
    name: str, kwargs: dict[str, Any], expected: bool | None
) -> None:
    assert is_deterministic(name, kwargs) is expected


def test_equal_steps_of_a_slow_environment_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esbench.environments.episode_check.PATIENCE", 0.05)
    assert is_deterministic("Same-v0", {"effect": "late"}) is None


def test_a_deterministic_environment_is_noted_from_plan_to_leaderboard(esbench: Run) -> None:
    for words, folder in ((LAKE, "lake"), (WALK, "walk")):
        code, out, _ = esbench("plan", *words, "--out", folder, "--workers", "0")
        assert (code, "two seeds" in out) == (0, folder == "lake")
        assert esbench("run", *words, "--out", folder, "--workers", "0", "--quiet")[0] == 0
    assert {trial.result()["deterministic"] for trial in find_trials(Path("lake"))} == {True}
    assert not any("deterministic" in trial.result() for trial in find_trials(Path("walk")))
    for table in (["table", "lake"], ["table", "lake", "--wide"]):
        code, out, _ = esbench(*table)
        assert " ".join(out.split()).count(f"openai_es on FrozenLake-v1: {ONE_EPISODE}") == 1
    findings = [finding.name for item in diagnose(Path("lake")) for finding in item.findings]
    assert findings.count("equal_episodes") == 3
    assert esbench("report", "lake")[0] == 0
    assert ONE_EPISODE in Path("lake/report.html").read_text()
    for board, known in (("board", True), ("again", False)):  # not known by an earlier version
        assert esbench("submit", "lake", "--out", board)[0] == 0
        (entry,) = read_leaderboard(Path(board))
        assert [run.one_episode for run in entry.runs] == [known] * 3
        edit(Path("lake"), "result.json", lambda content: content.pop("deterministic", None))


@pytest.mark.parametrize("way", ["os_exit", "kill", "raise"])
def test_an_environment_that_dies_while_it_is_checked_ends_a_worker_only(
    way: str, make_spec: Callable[..., TrialSpec]
) -> None:
    spec = make_spec("FrozenLake-v1")
    lake = spec.environment.model_copy(update={"kwargs": {"is_slippery": False}})
    hostile = spec.environment.model_copy(update={"id": f"hostile_code:Reset-{way}-v0"})
    with WorkerPool(1) as pool, make_trainer(spec, pool) as trainer:
        trainer.train(env_steps=1)
        assert pool.is_deterministic(hostile) is None
        assert pool.is_deterministic(lake) is True
        assert trainer.is_deterministic() is False
        trainer.train(env_steps=200)


@pytest.mark.parametrize(
    ("returns", "lengths", "recorded", "note"),
    [
        ([10.0] * 4, [1523.0] * 4, {"deterministic": True}, ONE_EPISODE),
        ([500.0] * 4, [500.0] * 4, {"deterministic": True}, ONE_EPISODE),
        ([500.0] * 4, [500.0] * 4, {"deterministic": False}, None),  # the best return
        ([285.0] * 4, [726.0] * 4, {"deterministic": False}, EQUAL_EPISODES),  # one action
        # Of an earlier version:
        ([500.0] * 4, [500.0] * 4, {}, None),
        ([0.0] * 4, [100.0] * 4, {}, None),
        ([10.0] * 4, [1523.0] * 4, {}, EQUAL_EPISODES),
        ([10.0, 10.0, 10.0, 11.0], [1523.0] * 4, {}, None),
        ([10.0] * 4, [1523.0, 1523.0, 1523.0, 1524.0], {}, None),
        ([10.5], [1523.0], {}, None),
        ([-3.5] * 4, [1.0] * 4, {}, None),  # a test function
        ([None] * 4, [100.0] * 4, {}, None),
    ],
)
def test_a_table_marks_equal_episodes(
    tmp_path: Path,
    returns: list[float | None],
    lengths: list[float],
    recorded: dict[str, bool],
    note: str | None,
) -> None:
    write_scores(tmp_path, [10.0, 10.0, 10.0])
    told = {"returns": returns, "lengths": lengths, **recorded}
    edit(tmp_path, "result.json", lambda content: content.update(told))
    rows = score_table(tmp_path)
    notes = [text for text in sheet(rows).notes if text.endswith((ONE_EPISODE, EQUAL_EPISODES))]
    assert notes == ([f"openai_es on CartPole-v1: {note}"] if note else [])
    (first, *_) = diagnose(tmp_path)
    found = [finding for finding in first.findings if finding.name == "equal_episodes"]
    assert len(found) == (note is not None)
    assert all("1,523 steps" in finding.sentence or lengths[0] != 1523 for finding in found)


def test_a_leaderboard_and_its_pages_mark_the_rows_of_one_episode() -> None:
    entries = fake_suite("mujoco-mlp")
    marked = [
        marked_entry(entry) if entry.cell.environment == "Hopper-v5" else entry for entry in entries
    ]
    suite = read_suite("mujoco-mlp", marked)
    hopper, cheetah = (
        environment_table(suite_results(suite, name)) for name in ("Hopper-v5", "HalfCheetah-v5")
    )
    assert hopper.count(ONE_EPISODE) == 1
    assert ONE_EPISODE not in cheetah
    (note,) = [n for n in leaderboard_sheet(leaderboard_rows(marked)).notes if ONE_EPISODE in n]
    assert "HalfCheetah-v5" not in note
    assert all(ONE_EPISODE not in n for n in leaderboard_sheet(leaderboard_rows(entries)).notes)


def marked_entry(entry: Entry) -> Entry:
    runs = tuple(run.model_copy(update={"one_episode": True}) for run in entry.runs)
    return entry.model_copy(update={"runs": runs})
