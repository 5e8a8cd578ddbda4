"""Input of an earlier version is refused: one sentence, exit code 2, nothing is changed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from command_line import Run
from fake_trials import write_scores

from esbench.algorithms.base import ALGORITHMS

WRITTEN_BY_0_2_0 = Path(__file__).parent / "written_by_0_2_0"
TRIAL = "out/CartPole-v1/openai_es/seed-0"
GRID = ["--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0", "--out", "out"]


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def refused(esbench: Run, folder: Path, *arguments: str) -> str:
    """Run a command that must be refused, and return its sentence."""
    before = files(folder)
    code, out, err = esbench(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert files(folder) == before
    return err


@pytest.mark.parametrize(
    "command",
    [
        ["table", "out"],
        ["compare", "openai_es", "ars", "--in", "out"],
        ["efficiency", "out"],
        ["plot", "out"],
        ["report", "out"],
        ["status", *GRID],
        ["plan", *GRID],
        ["run", *GRID],
        ["run", *GRID, "--extend"],
        ["run", *GRID, "--seeds", "1"],
        ["eval", TRIAL],
        ["render", TRIAL],
        ["diagnose", TRIAL],
        ["diagnose", "out"],
        ["baseline", "out", "--out", "new.json"],
        ["check", "out", "--baseline", "b.json"],
        ["check", "out", "--baseline", "b.json", "--second-stage", "second"],
        ["verify", "out"],
    ],
    ids=" ".join,
)
def test_an_output_folder_of_version_0_2_0(
    esbench: Run, tmp_path: Path, command: list[str]
) -> None:
    if "b.json" in command:
        write_scores(tmp_path / "base", [400.0])
        assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    shutil.copytree(WRITTEN_BY_0_2_0, tmp_path / "out")
    sentence = refused(esbench, tmp_path, *command)
    for fact in (TRIAL, "format 1", "0.2.0", "format 2"):
        assert fact in sentence


PLUGINS = {
    "entry point": ("esbench.plugins.evotorch:Old", "esbench.plugins"),
    "old module": ("old_plugin:Old", "esbench.trainer"),
    "old place": ("old_plugin:Old", "register_algorithm"),
}
SOURCES = {
    "old module": "from esbench.trainer import Trainer\n",
    "old place": "from esbench.registry import register_algorithm\n",
}


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_that_names_an_old_module(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    value, missing = PLUGINS[kind]
    site = tmp_path / "site"
    info = site / "old_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[esbench.algorithms]\nold = {value}\n")
    (site / "old_plugin.py").write_text(SOURCES.get(kind, ""))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(ALGORITHMS, "_plugins", None)
    monkeypatch.delitem(sys.modules, "old_plugin", raising=False)
    for command in ("run", "plan"):
        arguments = ["--env", "CartPole-v1", "--algorithm", "old", "--seeds", "0"]
        sentence = refused(esbench, tmp_path, command, *arguments)
        for fact in ("algorithm 'old'", value, "another version of esbench", missing):
            assert fact in sentence
    code, out, _ = esbench("list", "algorithms")  # which shows the reason beside the others
    assert code == 0
    assert missing in "".join(out.split())
    assert "openai_es" in out


def test_a_policy_of_the_users_own_that_names_an_old_module(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old_nets.py").write_text("from esbench.layers import Linear\n")
    monkeypatch.delitem(sys.modules, "old_nets", raising=False)
    sentence = refused(esbench, tmp_path, "run", *GRID, "--set", "policy.template=old_nets:Net")
    for fact in ("policy 'old_nets:Net'", "esbench.layers"):
        assert fact in sentence


@pytest.mark.parametrize(
    ("line", "key", "near"),
    [
        ("seed = [0]", "seed", "seeds"),
        ("[budgets]\nenv_steps = 100", "budgets", "budget"),
        ("[budget]\nsteps = 100", "budget.steps", "env_steps"),
        ("[algorithms.openai_es]\npopsize = 8", "algorithms.openai_es.popsize", "population_size"),
        (
            '[environment."CartPole-v1"]\nepisode_per_member = 2',
            "episode_per_member",
            "episodes_per_member",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "status"])
def test_a_grid_with_an_unknown_key(
    esbench: Run, tmp_path: Path, command: str, line: str, key: str, near: str
) -> None:
    algorithms = "" if "[algorithms" in line else 'algorithms = ["openai_es"]\n'
    text = f'environments = ["CartPole-v1"]\n{algorithms}{line}\n'
    (tmp_path / "grid.toml").write_text(text)
    sentence = refused(esbench, tmp_path, command, "grid.toml")
    for fact in ("grid.toml", key, f"'{near}'"):
        assert fact in sentence


def test_a_baseline_of_another_format(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [400.0])
    (tmp_path / "b.json").write_text(json.dumps({"format": 99, "rows": []}))
    sentence = refused(esbench, tmp_path, "check", "out", "--baseline", "b.json")
    for fact in ("b.json", "99", "expected 1"):
        assert fact in sentence
