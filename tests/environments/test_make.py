from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from esbench.core.errors import UsageError, UserCodeError
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
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


def test_a_failure_names_the_file_and_line_of_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_env.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for kind, line in {"own": 7, "type": 9, "library": 10}.items():
        with pytest.raises(UsageError) as caught:
            make_environment("broken_env:Broken-v0", {"kind": kind})
        assert f"({tmp_path / 'broken_env.py'}, line {line})" in str(caught.value)


def test_a_wrong_argument_is_on_no_line_of_the_user() -> None:
    with pytest.raises(UsageError, match="cannot be made") as caught:
        make_environment("CartPole-v1", {"foo": 1})
    assert ", line " not in str(caught.value)


def test_a_module_that_is_not_there_is_named_with_where_it_is_expected() -> None:
    with pytest.raises(UserCodeError, match="No module named 'nowhere'; .*current folder"):
        make_environment("nowhere:NoneOfThese-v0", {})


def _box(low: float, high: float) -> spaces.Box:
    box = spaces.Box(-1.0, 1.0, (2,))
    box.low[:], box.high[:] = low, high
    return box


@pytest.mark.parametrize(
    ("space", "fact"),
    [
        (None, "NoneType"),
        (_box(1.0, -1.0), "lower bound"),
        (_box(np.nan, 1.0), "lower bound"),
        (spaces.Tuple([_box(0.0, np.nan)]), "lower bound"),
        (spaces.Discrete(10**12), "1,000,000,000,000 numbers"),
        (spaces.MultiDiscrete([2**62] * 4), "numbers; expected at most"),
    ],
)
@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_environment_with_impossible_spaces_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, space: gymnasium.Space[object], fact: str
) -> None:
    monkeypatch.setattr(Goal, name, space)
    with pytest.raises(UserCodeError, match=f"{name} .*{fact}"):
        make_environment("esbench-test/Goal-v0", {"goal": [0.0]})


class Goal(gymnasium.Env[Any, Any]):
    """Draws a goal into the list that it was made with."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

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


def test_environments_share_no_argument() -> None:
    wrapper = WrapperSettings.model_validate({"wrapper": f"{__name__}:Listed", "names": ["a"]})
    arguments: dict[str, Any] = {"goal": [0.0]}
    one: Any
    other: Any
    one, other = (make_environment("esbench-test/Goal-v0", arguments, (wrapper,)) for _ in "ab")
    first, _ = one.reset(seed=1)
    other.reset(seed=2)
    assert one.unwrapped.goal == first.tolist()
    assert one.names is not other.names
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
