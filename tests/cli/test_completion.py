"""What the Tab key of a shell offers, and that it is answered without slow imports."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.completion import get_completion_script

from esbench.cli.completion import collect
from esbench.core.shell_completion import Names, answer, completions, keep_names

GRID = """
environments = ["Hopper-v5"]
algorithms.wide = {algorithm = "snes"}
algorithms."$(touch hacked)" = {algorithm = "snes"}
"""


@pytest.fixture(scope="module")
def names() -> Names:
    found: Names = json.loads(json.dumps(collect()))  # as it is kept
    return found


@pytest.mark.parametrize(
    ("line", "offered", "absent"),
    [
        ("", {"run", "table", "plan"}, {"--version", "esbench"}),
        ("ru", {"run"}, {"render"}),
        ("--", {"--version", "--install-completion"}, {"run"}),
        ("run ", {"quick", "mujoco", "mine.toml"}, {"--seeds", "other.txt"}),
        ("run folder/", {"folder/deep.toml"}, {"quick"}),
        ("run --s", {"--seeds", "--set", "--skip"}, {"--env"}),
        ("run --seeds 0-2 --s", {"--set", "--skip"}, {"--seeds"}),
        ("run --set a=1 --s", {"--set"}, set()),
        ("run --quiet ", {"quick"}, set()),  # a flag takes no value
        ("run --env Cart", {"CartPole-v1"}, {"Acrobot-v1"}),
        ("run --env Froz", {"FrozenLake-v1"}, set()),
        ("run --env Blackj", {"Blackjack-v1"}, set()),  # of Gymnasium, without a file
        ("run --algorithm s", {"snes", "sep_cma_es"}, {"ars"}),
        ("run mine.toml --algorithm w", {"wide"}, set()),
        ("run --engine=", {"--engine=local", "--engine=ray"}, set()),
        ("run --device ", {"cpu", "cuda"}, set()),
        ("run --track t", {"tensorboard"}, set()),
        ("run quick --skip ", {"CartPole-v1", "openai_es"}, {"snes", "Hopper-v5"}),
        ("run mine.toml --skip ", {"Hopper-v5", "wide"}, {"snes"}),
        ("run --set bud", {"budget.env_steps=", "budget.generations="}, {"budget"}),
        ("run --set algorithms.sn", {"algorithms.snes.sigma="}, {"algorithms.snes"}),
        ("run --set algorithms.", {"algorithms.snes", "algorithms.ars"}, set()),
        ("run mine.toml --set algorithms.wi", {"algorithms.wide.sigma="}, set()),
        ("run quick --set algorithms.", {"algorithms.openai_es"}, {"algorithms.snes"}),
        ("run --set algorithms.snes.shap", {"algorithms.snes.shaping=centered"}, set()),
        ("run --set evaluation.center=", {"evaluation.center=true"}, {"evaluation.center="}),
        ("run --set environment.Hopper-v5.episodes",
         {"environment.Hopper-v5.episodes_per_member="}, set()),
        ("plot out --algorithms snes,ar", {"snes,ars"}, {"ars"}),
        ("plot out --format ", {"png", "pdf"}, {"json"}),
        ("list al", {"algorithms"}, {"grids"}),
        ("list --settings snes", {"snes"}, set()),
        ("table ", set(), {"quick"}),  # the shell completes folders
        ("nosuch ", set(), {"run"}),
        ("run nosuch.toml --set nosuch.x", set(), {"nosuch.x"}),
    ],
)  # fmt: skip
def test_commands_options_and_their_values_are_completed(
    names: Names, line: str, offered: set[str], absent: set[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(GRID)
    Path("other.txt").touch()
    Path("folder").mkdir()
    Path("folder/deep.toml").touch()
    *before, word = line.split(" ")
    found = {one for one, _ in completions(names, before, word)}
    assert offered <= found
    assert not absent & found
    assert all(one.startswith(word) for one in found)


@pytest.mark.parametrize(
    ("shell", "line", "action", "code", "printed"),
    [
        ("zsh", "esbench ru", "", 0, '_arguments \'*: :(("run":"Train every trial of a grid; '),
        ("zsh", "esbench table o", "", 0, "_files\n"),
        ("zsh", "esbench run --env 'Cart", "", 0, '_arguments \'*: :(("CartPole-v1":"'),
        ("fish", "esbench run --engine ", "", 0, "local\nray\n"),
        ("fish", "esbench ru", "", 0, "run\tTrain every trial of a grid; "),
        # Where there are no words, fish completes files.
        ("fish", "esbench ru", "is-args", 0, ""),
        ("fish", "esbench table o", "is-args", 1, ""),
    ],
)
def test_each_shell_gets_its_own_words(
    names: Names, shell: str, line: str, action: str, code: int, printed: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", action)
    assert answer(names, f"complete_{shell}") == code
    assert capsys.readouterr().out.startswith(printed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_no_label_of_somebodys_grid_reaches_a_shell_that_would_run_it(
    names: Names, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(GRID)
    line = "esbench run mine.toml --skip "
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("COMP_WORDS", line.replace(" ", "\n"))
    monkeypatch.setenv("COMP_CWORD", "4")
    answer(names, f"complete_{shell}")
    printed = capsys.readouterr().out
    assert "wide" in printed
    assert "touch" not in printed


# As bash splits the line: "=" and ":" are words of their own.
BASH = {
    "ru": "run",
    "run qui": "quick",
    "run --set algorithms.snes.sigma_ma": "algorithms.snes.sigma_max= "
    "algorithms.snes.sigma_max_change=",
    "run --set evaluation.center =": "true false",
    "run --set evaluation.center = t": "true",
    "run --engine = r": "ray",
    "table o": "",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_without_importing_the_command_line(
    names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "esbench"
    log = tmp_path / "imports"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -X importtime -m esbench 2>>"{log}"\n')
    program.chmod(0o755)
    script = get_completion_script(
        prog_name="esbench", complete_var="_ESBENCH_COMPLETE", shell="bash"
    )
    lines = [script, "shopt -s extglob", f"PATH={tmp_path}:$PATH", f"cd {tmp_path}"]
    for line in BASH:
        words = ["esbench", *line.split(" ")]
        lines += [
            f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()",
            "_esbench_completion esbench",
            'echo "${COMPREPLY[@]}"',
        ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_names(names)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert run.stderr == ""
    assert dict(zip(BASH, run.stdout.split("\n"), strict=False)) == BASH
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in log.read_text().splitlines()
    }
    assert "esbench" in imported
    slow = {"numpy", "torch", "gymnasium", "pydantic", "typer", "rich", "pandas"}
    assert not slow & imported


def test_the_kept_names_are_those_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esbench.core import shell_completion as module

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_state", lambda: (1, 2))
    assert module.kept_names() is None
    module.keep_names({"commands": {}})
    assert module.kept_names() == {"commands": {}}
    monkeypatch.setattr(module, "_state", lambda: (1, 3))  # a file has changed
    assert module.kept_names() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # cannot be written
    module.keep_names({})
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text("{")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.kept_names() is None
