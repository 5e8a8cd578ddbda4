"""The adapter on the page for libraries with ask and tell."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from command_line import Run

import esbench as package

PAGE = ROOT / "docs" / "how-to" / "other-libraries.md"


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the page, in the current folder."""
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return import_module("adapter")


def learn(search: Any, generations: int) -> None:
    for _ in range(generations):
        population = search.ask()
        members = np.array([population.member(n) for n in range(len(population))])
        search.tell(population, -np.square(members - 1).sum(axis=1))


def test_the_adapter_learns_and_resumes_with_the_same_bits(adapter: Any) -> None:
    first, second = (package.make_algorithm(adapter.MyES, num_params=4, seed=0) for _ in range(2))
    learn(first, 20)
    second.load_state_dict(first.state_dict())
    for search in (first, second):
        learn(search, 40)
    np.testing.assert_array_equal(first.center, second.center)
    np.testing.assert_allclose(first.center, np.ones(4), atol=0.05)


@pytest.mark.usefixtures("adapter")
def test_the_command_of_the_page(esbench: Run) -> None:
    (command,) = re.findall(r"^\$ esbench (run --env .*)$", PAGE.read_text(), re.MULTILINE)
    small = ("--seeds", "0", "--env-steps", "5000", "--workers", "0", "--out", "out")
    assert esbench(*command.split(), *small)[0] == 0
    code, out, _ = esbench("verify", "out", "--workers", "0")
    assert (code, "identical" in out) == (0, True)
