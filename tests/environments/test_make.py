"""Environments are made with arguments of their own, and a failure is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from esbench.core.errors import UsageError
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.episode_check import check_values
from esbench.environments.make_environment import WrapperSettings, make_environment
from esbench.environments.wrappers import NewInstance

MODULE = """\
import json
import gymnasium

class Broken(gymnasium.Env):
    def __init__(self, kind):
        if kind == "own":
            raise KeyError("lost")
        if kind == "type":
            raise TypeError("wrong")
        json.loads("no json")  # raises in a library

gymnasium.register("Broken-v0", Broken)
"""


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "words"),
    [
        ("broken_env:Broken-v0", {"kind": "own"}, r"broken_env\.py, line 7\)$"),
        ("broken_env:Broken-v0", {"kind": "type"}, r"TypeError: wrong .*py, line 9\)$"),
        ("broken_env:Broken-v0", {"kind": "library"}, r"broken_env\.py, line 10\)$"),
        ("CartPole-v1", {"foo": 1}, "with kwargs {'foo': 1}: TypeError: .*argument 'foo'$"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "KeyError: '9x9'$"),
        ("HalfCheetah-v5", {"xml_file": "no.xml"}, "no.xml does not exist"),
        ("Needs-v0", {}, "No module named 'no_library'; expected 'no_library' in"),
        ("nowhere:NoneOfThese-v0", {}, "No module named 'nowhere'; .*current folder"),
        ("CartPole-v7", {}, "`CartPole`"),
        ("PongDeterministic-v4", {}, "did you mean 'esbench/PongDeterministic-v5'"),
        ("HalfCheetah-v3", {}, "gymnasium-robotics project"),
        ("esbench/Sphere-v0", {"dimension": 0}, "with kwargs {'dimension': 0}: dimension = 0: .*1"),
        (
            "esbench/Rosenbrock-v0",
            {"dimension": 1},
            "'dimension': 1}: dimension = 1: .* at least 2",
        ),
        ("esbench/NoisySphere-v0", {"noise": -0.1}, "-0.1}: noise = -0.1: expected at least 0"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_what_cannot_be_made_is_one_sentence(
    environment_id: str, kwargs: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_env.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=words) as raised:
        make_environment(environment_id, kwargs)
    assert f"environment {environment_id!r} cannot be made" in str(raised.value)
    assert "\n" not in str(raised.value)


def _box(low: float, high: float) -> spaces.Box:
    box = spaces.Box(-1.0, 1.0, (2,))
    box.low[:], box.high[:] = low, high
    return box


@pytest.mark.parametrize(
    ("space", "fact"),
    [
        (None, "NoneType"),
        (_box(1.0, -1.0), "lower bound"),
        (spaces.Tuple([_box(0.0, np.nan)]), "lower bound"),
        (spaces.Discrete(10**12), "1,000,000,000,000 numbers"),
        (spaces.MultiDiscrete([2**62] * 4), "numbers; expected at most"),
        (spaces.Dict(), "an empty Dict"),
        (spaces.Dict(a=spaces.Tuple(())), "an empty Tuple"),
    ],
)
@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_environment_with_impossible_spaces_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, space: gymnasium.Space[object], fact: str
) -> None:
    monkeypatch.setattr(Goal, name, space)
    with pytest.raises(UsageError, match=f"{name.replace('_', '.')} .*{fact}"):
        check_values("esbench-test/Goal-v0", {"goal": [0.0]})


class Goal(gymnasium.Env[Any, Any]):
    """Draws a goal into the list that it was made with."""

    observation_space = spaces.Box(-9, 9, (1,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, goal: list[float]) -> None:
        self.goal = goal

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.goal[0] = float(self.np_random.normal())
        return np.array(self.goal), {}

    def step(self, action: Any) -> Any:
        self.goal.append(0.0)
        return np.zeros(1), float(self.goal[0] + len(self.goal)), False, False, {}


class Listed(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], names: list[str]) -> None:
        super().__init__(env)
        self.names = names


gymnasium.register("esbench-test/Goal-v0", Goal, max_episode_steps=3)
gymnasium.register("Needs-v0", entry_point="no_library:Env")


def test_environments_share_no_argument() -> None:
    wrapper = WrapperSettings.model_validate({"wrapper": f"{__name__}:Listed", "names": ["a"]})
    arguments: dict[str, Any] = {"goal": [0.0]}
    pair: Any = [make_environment("esbench-test/Goal-v0", arguments, (wrapper,)) for _ in range(2)]
    first, _ = pair[0].reset(seed=1)
    pair[1].reset(seed=2)
    assert pair[0].unwrapped.goal == first.tolist()
    assert pair[0].names is not pair[1].names
    assert arguments == {"goal": [0.0]}


def test_slots_share_no_argument() -> None:
    def rewards(*seeds: int) -> list[float]:
        slots = len(seeds)
        backend = GymnasiumBackend("esbench-test/Goal-v0", {"goal": [0.0]}, slots)
        for slot, seed in enumerate(seeds):
            backend.start(slot, seed)
        return backend.step(np.zeros((slots, 1)))[1].tolist()

    assert rewards(7, 8, 9) == [*rewards(7), *rewards(8), *rewards(9)]


def test_a_new_instance_has_the_arguments_of_the_first_one() -> None:
    env: Any = NewInstance(
        gymnasium.make("esbench-test/Goal-v0", goal=[0.0], disable_env_checker=True)
    )
    for _ in range(3):
        env.reset(seed=1)
        env.step(np.zeros(1))
        assert len(env.unwrapped.goal) == 2
