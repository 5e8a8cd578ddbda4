"""State that survives an episode and episodes that do not end are found before training."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from command_line import Run
from doubles import Walk
from gymnasium import spaces

import esbench
from esbench import check_environment
from esbench.core import clock
from esbench.core.errors import UsageError, UserCodeError
from esbench.engine import player, worker_pool
from esbench.engine.jobs import CENTER, Task
from esbench.engine.random_policy import random_policy_returns
from esbench.engine.this_process import ThisProcess
from esbench.engine.worker_pool import WorkerPool
from esbench.environments import episode_check
from esbench.environments.episode_check import _content, bounds_without_zero, check_episodes
from esbench.environments.make_environment import make_environment
from esbench.environments.specifications import has_time_limit
from esbench.experiment.agent_trainer import _CountedEnvironment
from esbench.experiment.run_trial import check_trials
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trained_policy import episode
from esbench.grids.environment_files import load_environment
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.store.trial_folder import TrialFolder
from esbench.video import render_trial


class Outdated(Walk):
    """Has the interface of Gym before 0.26."""

    def step(self, action: np.ndarray) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class Adapter(gymnasium.Wrapper):
    """Gives an old environment the interface of today."""

    def step(self, action: Any) -> Any:
        answer: Any = self.env.step(action)
        observation, reward, terminated, info = answer
        return observation, reward, terminated, False, info


gymnasium.register("Adapted-v0", entry_point=lambda: Adapter(Outdated()))
# Those of the ALE are slow, and theirs are compared with the emulator elsewhere.
GYMNASIUM = [
    name
    for name, spec in gymnasium.registry.items()
    if str(spec.entry_point).startswith(
        ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.", "gymnasium.envs.mujoco.")
    )
    and "Cliff" not in name
    and "-v4" not in name
]
CLIFF = "CliffWalking-v1"
RUN = ["--env", CLIFF, "--algorithm", "openai_es", "--env-steps", "500", "--workers", "0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere:Env-v0",), "cannot import 'nowhere'"),
        (("CartPole-v1", {}, [{"wraper": "x:y"}]), "wrapper"),
        (("doubles:Spaces-v0", {"observation": "text"}), "observation space has a Text space"),
        (("doubles:Spaces-v0", {"action": "text"}), "action space has a Text space"),
        (("doubles:Answers-v0", {"kind": "text"}), r"an observation is 'abc' \(str\)"),
        (("doubles:Answers-v0", {"kind": "reward none"}), r"a reward is None \(NoneType\)"),
        (("doubles:Loose-v0",), r"has the number -0\.651\d+; expected -0\.01 to 0\.01"),
        (("doubles:BadObservation-v0", {"share": 1}), "has the number nan; expected -inf to inf"),
        (
            ("doubles:BadReward-v0", {"always": True, "length": 10}),
            "reward of step 10 is nan; expected",
        ),
        (("hostile_code:Reset-raise-v0",), r"failed: .*, line \d+\)"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, words: str
) -> None:
    monkeypatch.setattr(worker_pool, "WorkerPool", lambda _: ThisProcess())
    with pytest.raises(UsageError, match=words):
        check_environment(*arguments)


@pytest.mark.parametrize(
    "name",
    [
        "Adapted-v0",
        "doubles:Walk-v0",
        "doubles:BadObservation-v0",  # a NaN equals itself
        "doubles:Raises-v0",  # training reports it
        "ALE/Pong-v5",
        *dict.fromkeys([*GYMNASIUM, *(e for e in esbench.list_environments() if "-v5" not in e)]),
    ],
)
def test_healthy_environments_pass(name: str) -> None:
    known = name in esbench.list_environments()
    wrappers = load_environment(name).wrappers if known else ()
    with warnings.catch_warnings(action="ignore"):
        check_episodes(name, {}, wrappers)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Discrete(2), spaces.Graph(spaces.Box(-1.0, 1.0, (2,)), None)]),
        spaces.OneOf([spaces.Sequence(spaces.Text(4)), spaces.MultiBinary(3)]),
    ],
)
def test_observations_of_any_space_are_compared_by_content(space: spaces.Space[Any]) -> None:
    space.seed(0)
    one, other = space.sample(), space.sample()
    assert _content(one) == _content(copy.deepcopy(one)) != _content(other)


@pytest.mark.parametrize("look", [15, 60, 100])
def test_a_machine_that_stops_for_a_minute_hides_no_state(
    monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    times = chain([0.0] * look, repeat(60.0))
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(UsageError, match="BipedalWalker keeps state"):
        check_episodes("BipedalWalker-v3", {})


def test_an_environment_is_checked_once_and_not_after_a_resume(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    check = WorkerPool.check
    first, second = make_trial(seed=0), make_trial(seed=1, budget={"env_steps": 600})
    exact = make_trial("CartPole-v1")
    with WorkerPool(1) as pool:
        monkeypatch.setattr(WorkerPool, "check", lambda pool, e: sent.append(e.id))
        check_trials([first, second, exact], pool)
        assert sent == [first.spec.environment.id] * 2
        with first.folder.locked():
            first.folder.begin(first.spec, {"labels": first.labels})
        check_trials([first], pool)
        assert len(sent) == 2
        check(pool, first.spec.environment)
        monkeypatch.setattr(pool._workers[0].child, "send", sent.append)
        check(pool, second.spec.environment)
        assert len(sent) == 2


def test_an_environment_without_a_time_limit_needs_one(esbench: Run, tmp_path: Path) -> None:
    for command in ("run", "plan"):
        code, _, err = esbench(command, *RUN, "--out", "out")
        assert code == 2
        assert f'environment."{CLIFF}".max_episode_steps' in " ".join(err.split())
    assert not list(tmp_path.rglob("trial.json"))
    limited = ["--set", f'environment."{CLIFF}".max_episode_steps=20', "--out", "out"]
    settings = ["--set", "evaluation.episodes=3", "--seeds", "0", "--quiet"]
    assert esbench("plan", *RUN, *limited)[0] == 0
    assert esbench("run", *RUN, *limited, *settings)[0] == 0
    (path,) = tmp_path.rglob("trial.json")
    trial = TrialFolder(path.parent)
    assert trial.result()["lengths"] == [20, 20, 20]
    environment = trial.spec().environment
    assert environment.max_episode_steps is None
    plain = gymnasium.make(environment.id, **environment.kwargs)
    assert plain.get_wrapper_attr("_max_episode_steps") == 20


@pytest.mark.parametrize(
    ("name", "kwargs", "limited"),
    [
        (CLIFF, {}, False),
        (CLIFF, {"max_episode_steps": 5}, True),
        ("CartPole-v1", {}, True),
        ("CartPole-v1", {"max_episode_steps": -1}, False),
        ("ALE/Breakout-v5", {}, True),
        ("esbench/Pong-v5", {}, True),
        ("esbench/Sphere-v0", {}, True),
        ("nowhere:Env-v0", {}, True),
    ],
)
def test_a_limit_is_passed_to_the_environment_only_if_it_has_none(
    name: str, kwargs: dict[str, Any], limited: bool
) -> None:
    assert has_time_limit(name, kwargs) is limited
    if name.startswith("nowhere"):
        return
    for cap in (7, "adaptive"):
        spec = load_environment(name, {"max_episode_steps": cap, "kwargs": kwargs}).spec()
        moved = cap == 7 and not limited
        assert spec.max_episode_steps == (None if moved else cap)
        key = "max_episode_steps"
        assert spec.kwargs.get(key) == (7 if moved else kwargs.get(key))


def test_an_episode_that_goes_on_in_training_is_refused(
    make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an environment in which only some policies go on for ever."""
    monkeypatch.setattr(player, "LONGEST", 50)
    spec = make_spec(CLIFF, policy={"template": "linear"})
    with SearchTrainer(spec, WorkerPool(1)) as trainer:
        job = trainer.held_out_job()
        playing = player.Player(trainer.gathered_setup(), 1)
    playing.begin(job)
    playing.add([Task(CENTER, 0)])
    with pytest.raises(UserCodeError, match=r"not ended after 50 steps; .*max_episode_steps"):
        [playing.step() for _ in range(60)]


@pytest.mark.parametrize(
    ("action_space", "named"),
    [
        (spaces.Box(-3.0, -1.0, (2,)), "-3 to -1, "),
        (spaces.Box(np.float32([-1, 0.5]), np.float32([1, 2])), "0.5 to 2, "),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(1.0, np.inf, ())), "1 to inf, "),
        (spaces.Box(0.0, 10.0, (2,)), ""),
        (spaces.Discrete(2), ""),
    ],
)
def test_a_bound_that_excludes_zero_is_named(
    monkeypatch: pytest.MonkeyPatch, action_space: Any, named: str
) -> None:
    env = gymnasium.make("CartPole-v1")
    env.action_space = action_space
    monkeypatch.setattr(episode_check, "make_environment", lambda *given: env)
    warning = bounds_without_zero("Mine-v0", {}) or ""
    assert bool(warning) == bool(named)
    assert named in warning


def test_the_warning_about_bounds_arrives_once(
    single: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(single, "notice", told.append)
    for name in ("doubles:Walk-v0", "doubles:Valve-v0", "doubles:Valve-v0"):
        single.check(EnvironmentSpec(id=name))
    (warning,) = told
    assert warning.startswith("doubles:Valve-v0: ")


def test_a_slot_without_an_episode_does_not_count_its_steps(
    make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "LONGEST", 20)
    kwargs = {"length": 20, "max_episode_steps": -1}
    spec = make_spec("doubles:Walk-v0", environment={"doubles:Walk-v0": {"kwargs": kwargs}})
    with SearchTrainer(spec, WorkerPool(1)) as trainer:
        job = trainer.held_out_job()
        playing = player.Player(trainer.gathered_setup(), 2)
    for played in range(10):
        playing.begin(job)
        tasks = [Task(CENTER, 3 * played + number) for number in range(3)]
        playing.add(tasks)
        found: list[Any] = []
        while playing.busy:
            found += playing.step()
        assert len(found) == len(tasks)


def test_every_loop_ends_an_episode_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_check, "LONGEST", 50)
    monkeypatch.setattr(render_trial, "_draw", lambda env, environment: None)
    kwargs = {"length": 2**40, "max_episode_steps": -1}
    spec = EnvironmentSpec(id="doubles:Walk-v0", kwargs=kwargs)
    env = make_environment(spec.id, kwargs)
    still: Any = SimpleNamespace(reset=lambda: None, act=lambda _: np.zeros(3))
    trainer: Any = Mock(next_seed=lambda index: 0)
    trainer.spec.environment = spec
    counted = _CountedEnvironment(env, trainer, 0)

    def train() -> None:
        counted.reset()
        while True:
            counted.step(np.zeros(3))

    for endless in (
        train,
        lambda: list(episode(still, env, 0, spec.id, kwargs)),
        partial(random_policy_returns, spec, 1, 0),
    ):
        with pytest.raises(UsageError, match="no time limit"):
            endless()
    limited = {"length": 2**40, "max_episode_steps": 60}
    env = make_environment(spec.id, limited)
    assert len(list(episode(still, env, 0, spec.id, limited))) == 1 + 60
