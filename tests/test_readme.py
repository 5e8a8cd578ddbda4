import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from checkout import LEADERBOARD, ROOT
from command_line import Run, finished

from esbench.core.files import read_toml
from esbench.experiment.trials import grid_trials
from esbench.grids.grid_file import parse_grid

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_scripts_run(tmp_path: Path) -> None:
    for script in blocks("python"):
        (tmp_path / "script.py").write_text(script)
        code, out, err = finished("script.py", cwd=tmp_path)
        assert (code, err) == (0, "")
        assert out


def test_the_agent_is_gated(tmp_path: Path) -> None:
    (text,) = blocks("py")
    (tmp_path / "test_my_agent.py").write_text(text)
    for options in (["--esbench-update"], []):
        code, out, _ = finished("-m", "pytest", "-p", "no:cacheprovider", *options, cwd=tmp_path)
        assert code == 0, out
        assert (tmp_path / "esbench-baseline.json").exists()


def test_commands_run_one_after_the_other(esbench: Run) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) >= 9
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)
        assert program == "esbench"
        code, out, err = esbench(*arguments)
        assert (code, err) == (0, ""), line
        assert out


def test_what_its_commands_write_is_ignored_by_git(tmp_path: Path) -> None:
    commands = [line.split() for block in blocks("sh") for line in block.splitlines()]
    folders = {words[words.index("--out") + 1] for words in commands if "--out" in words}
    folders |= {"results/runs/quick", "results/tuning/esbench_Sphere-v0+csa_es"}  # by default
    shutil.copy(ROOT / ".gitignore", tmp_path)  # the sources may be no repository
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    files = [f"{folder}/file" for folder in sorted(folders)]
    found = subprocess.run(["git", "check-ignore", *files], cwd=tmp_path, capture_output=True)
    assert found.stdout.decode().split() == files


def test_the_rows_of_the_results_are_those_of_the_leaderboard(esbench: Run) -> None:
    (command,) = re.findall(r"<!-- esbench (leaderboard .*) -->", README)
    code, out, _ = esbench(*shlex.split(command), str(LEADERBOARD))
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert code == 0
    assert "\n".join(table) in README


def test_scores_of_the_best_searches_are_those_of_the_leaderboard(esbench: Run) -> None:
    (sentence,) = re.findall(
        r"On HalfCheetah and Walker2d, the\s+best .* score (.*) and (.*)\.", README
    )
    for text, name in zip(sentence, ("HalfCheetah-v5", "Walker2d-v5"), strict=True):
        _, out, _ = esbench("leaderboard", str(LEADERBOARD), "--env", name, "--format", "json")
        scores = [row["score"] for row in json.loads(out)["rows"] if row["algorithm"] != "ppo"]
        assert text == f"{max(scores):,.0f}"


def test_the_grid_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "grid.toml").write_text(text)
    grid = parse_grid(read_toml(tmp_path / "grid.toml"), "README")
    assert len(grid_trials(grid, tmp_path, "README")) == 2 * 2 * 3


def test_there_are_exactly_two_set_up_commands_and_ci_runs_them() -> None:
    commands = [line for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 2
    assert commands[0].endswith("esbench run quick")
    assert commands[1].endswith("tox")
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_files_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:esbench|envs|plots|results)/[\w./-]+\.\w+)`", README)
    for name in named + re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 250


WRONG_NAME = re.compile(
    r"""pip install[^\n`]*[ '"]esbench(?![-\w])|dependencies = \["esbench["[]"""
)
PAGES = ("*.md", "*.toml", "docs/**/*.md", "docs/**/*.py", "esbench/**/*.py", ".github/**/*.yml")


def test_no_page_installs_the_other_project_called_esbench() -> None:
    """On the package index, "esbench" is a benchmark of Elasticsearch; this is esbench-rl."""
    assert WRONG_NAME.search("pip install 'esbench[evosax]'")
    assert not WRONG_NAME.search("pip install ./esbench")
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern) if "_build" not in page.parts]
    assert len(pages) > 200
    assert [page for page in pages if WRONG_NAME.search(page.read_text(encoding="utf-8"))] == []
