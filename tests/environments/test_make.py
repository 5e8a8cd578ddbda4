from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from esbench.environments.make import make_environment
from esbench.errors import UsageError, UserCodeError

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
    monkeypatch.setattr("hostile_code.wrong_space", lambda way: space)
    with pytest.raises(UserCodeError, match=f"{name} .*{fact}"):
        make_environment("hostile_code:Spaces-nothing-v0", {"space": name})
