from __future__ import annotations

from pathlib import Path

import pytest

from esbench.environments.make import make_environment
from esbench.errors import UsageError

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
