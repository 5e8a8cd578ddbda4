"""Input of an earlier version is refused: one sentence, exit code 2, nothing is changed."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Run, files
from fake_trials import write_scores

WRITTEN_BY_0_2_0 = Path(__file__).parent / "written_by_0_2_0"
TRIAL = "out/CartPole-v1/openai_es/seed-0"
GRID = ["--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0", "--out", "out"]


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
        ["plot", "out"],
        ["status", *GRID],
        ["run", *GRID],
        ["eval", TRIAL],
        ["render", TRIAL],
        ["diagnose", "out"],
        ["baseline", "out", "--out", "new.json"],
        ["check", "out", "--baseline", "b.json"],
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


TRAINER = "from esbench.trainer import Trainer\n"
REGISTER = "from esbench.core.registry import register_algorithm\n"
PLUGINS = {
    "entry point": ("esbench.plugins.evotorch:Old", "esbench.plugins", ""),
    "old module": ("old_plugin:Old", "esbench.trainer", TRAINER),
    "old place": ("old_plugin:Old", "register_algorithm", REGISTER),
}


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_that_names_an_old_module(
    esbench: Run, tmp_path: Path, install: Callable[..., None], kind: str
) -> None:
    value, missing, source = PLUGINS[kind]
    install({"old_plugin": source}, f"[esbench.algorithms]\nold = {value}\n")
    arguments = ["--env", "CartPole-v1", "--algorithm", "old", "--seeds", "0"]
    sentence = refused(esbench, tmp_path, "run", *arguments)
    for fact in ("algorithm 'old'", value, "another version of esbench", missing):
        assert fact in sentence


def test_a_policy_of_the_users_own_that_names_an_old_module(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old_nets.py").write_text("from esbench.layers import Linear\n")
    monkeypatch.delitem(sys.modules, "old_nets", raising=False)
    sentence = refused(esbench, tmp_path, "run", *GRID, "--set", "policy.template=old_nets:Net")
    for fact in ("policy 'old_nets:Net'", "esbench.layers"):
        assert fact in sentence


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (["run", "quick", "--skip", "CartPol-v1"], ["'CartPol-v1'", "'CartPole-v1'", "skip"]),
        (["plan", "quick", "--skip", "CartPole-v1", "--skip", "Acrobot-v1"], ["nothing to run"]),
        (["plot", "out", "--figures", "CartPole"], ["'CartPole'", "'CartPole-v1'", "figure"]),
        (["table", "out", "--rename", "snes"], ["--rename snes", "OLD=NEW"]),
        (["table", "out", "--rename", "openai=x"], ["'openai'", "'openai_es'"]),
        (["run", "quick", "--set", "defaults=3"], ["defaults = 3", "boolean"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_wrong_name_is_refused_with_the_nearest_one(
    esbench: Run, tmp_path: Path, command: list[str], facts: list[str]
) -> None:
    write_scores(tmp_path / "out", [400.0, 450.0])
    sentence = refused(esbench, tmp_path, *command)
    assert all(fact in sentence for fact in facts), sentence
