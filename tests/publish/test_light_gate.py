"""The pytest plugin needs no more packages than ``gate-requirements.txt`` names."""

import json
import os
import re
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from checkout import ROOT
from command_line import finished
from packaging.requirements import Requirement

LINES = [
    line
    for line in (ROOT / "gate-requirements.txt").read_text().splitlines()
    if not line.startswith("#")
]
AGENT = """
import numpy as np

class Agent:
    def train(self, seed):
        returns = np.random.default_rng(seed).normal({mean}, 1.0, 100)
        return float(returns.mean())

def test_agent(esbench_check):
    esbench_check(Agent(), "mine", environment="CartPole-v1")
    esbench_check(
        Agent(), "mine", environment="Mine-v0", random_score=0.0, reference_score=500.0
    )
"""
# Run with the names of the modules that are hidden.
PROGRAM = """
import json, sys
from importlib.machinery import PathFinder

hidden = {*sys.argv[1:]}
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: (
        None if name.partition(".")[0] in hidden else find(name, path, target)
    )
)
import pytest

plugin = ["-q", "-p", "esbench.publish.gate.pytest_plugin"]
codes = [
    pytest.main([*plugin, *words.split()])
    for words in (
        "--esbench-update test_same.py",
        "test_same.py",
        "test_dropped.py --esbench-markdown=c.md --esbench-json=c.json --esbench-badge=b.json",
    )
]
from esbench.__main__ import program
try:
    program()
except SystemExit as error:
    codes.append(error.code)
roots = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([[int(code) for code in codes], sorted(roots)]))
"""


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def distributions(lines: list[str]) -> set[str]:
    """Return the names of requirements and of all that they need."""
    found: set[str] = set()
    todo = [*map(Requirement, lines)]
    while todo:
        one = todo.pop()
        if normal(one.name) not in found and (not one.marker or one.marker.evaluate({"extra": ""})):
            found.add(normal(one.name))
            todo += map(Requirement, distribution(one.name).requires or ())
    return found


def test_an_agent_of_numpy_is_gated_without_other_packages(tmp_path: Path) -> None:
    needed, installed = distributions(LINES), packages_distributions()
    owners = {module: {*map(normal, names)} for module, names in installed.items()}
    hidden = [module for module, names in owners.items() if not names & {*needed, "esbench-rl"}]
    assert {"torch", "mujoco", "ale_py", "matplotlib", "plotly", "pandas", "scipy"} <= {*hidden}
    for name, mean in (("same", 450.0), ("dropped", 350.0)):
        (tmp_path / f"test_{name}.py").write_text(AGENT.format(mean=mean))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    _, out, err = finished("-c", PROGRAM, *hidden, cwd=tmp_path, env=environment)
    codes, loaded = json.loads(out.splitlines()[-1])
    assert codes == [0, 0, 1, 2], out + err  # frozen, no worse, a regression, no command line
    assert re.fullmatch(r"esbench: \w+ is not installed; expected: .*\n", err)
    assert "regression" in (tmp_path / "c.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 1
    assert json.loads((tmp_path / "b.json").read_text())["message"] == "1 of 1 cell dropped"
    used = {name for module in loaded for name in owners.get(module, ())}
    assert {normal(Requirement(line).name) for line in LINES} <= used


def test_the_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    known = {Requirement(line).name: Requirement(line).specifier for line in lines}
    assert all(known[Requirement(line).name] == Requirement(line).specifier for line in LINES)
