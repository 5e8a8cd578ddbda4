"""``esbench tune`` as its user runs it: on the sphere, killed and resumed, and with bad input."""

import re
import signal
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Run, python
from PIL import Image
from watchers import Watcher

from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.grids.compose import compose_grid
from esbench.tuning.study import Search, open_studies
from esbench.tuning.summary import summarize

GRID = """
environments = ["esbench/Sphere-v0"]
[algorithms.openai_es]
sigma = 0.011
[budget]
env_steps = 240
[tune.openai_es]
population_size = [8, 16]
weight_decay = false
"""
COMMAND = ("tune", "bad.toml", "--trials", "5", "--tuning-seeds", "7,8", "--workers", "0")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "bad.toml"
    path.write_text(GRID)
    return path


def killed_in_the_middle(folder: Path) -> None:
    """Run the command, and kill it once the second batch has begun."""
    batch = folder / "results/tuning/bad/esbench_Sphere-v0/openai_es/configuration-004"
    with python("-m", "esbench", *COMMAND, cwd=folder) as process:
        while process.poll() is None and not batch.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_search_continues_and_ends_as_one_that_was_not(
    tmp_path: Path, grid: Path, esbench: Run, pool: WorkerPool
) -> None:
    killed_in_the_middle(tmp_path)
    code, out, err = esbench(*COMMAND)
    assert code == 0, err

    composed, source = compose_grid(str(grid))
    (study,) = open_studies(composed, source, Search((7, 8)), tmp_path / "whole")
    study.run(5, lambda trials, _: run_grid(trials, pool, Watcher()))
    summary = summarize(study)
    root = tmp_path / "results/tuning/bad"
    (again,) = open_studies(composed, source, Search((7, 8)), root)
    assert again.store.configurations == study.store.configurations
    rows = {path.relative_to(root): digests(path) for path in root.rglob("metrics.jsonl")}
    whole = study.folder.parents[1]
    assert rows == {p.relative_to(whole): digests(p) for p in whole.rglob("metrics.jsonl")}
    assert summary.best_score > summary.default_score / 2  # returns are below 0

    assert all(name in out for name in ("sigma", "learning_rate", "best.toml"))
    with Image.open(again.folder / "scores.png") as image:
        assert image.width > 500


def digests(metrics: Path) -> list[str]:
    return re.findall(r'"digest":"(\w+)"', metrics.read_text())


def test_without_optuna_the_command_names_the_extra(
    grid: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "[tune]" in refused("tune", str(grid))


def test_refused_settings_are_named_and_the_best_ones_are_valid_toml(
    esbench: Run, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    spaces = ["tune.openai_es.population_size=[7,\n9]", 'tune.openai_es.optimizer=["sgd",\n"adam"]']
    command = [
        "tune", "--env", "esbench/Sphere-v0", "--algorithm", "openai_es", "--env-steps", "100",
        "--trials", "3", "--tuning-seeds", "7", "--set", "evaluation.episodes=1",
        "--storage", "a?b%41{c}#d'e é.db", "--out", "out", "--workers", "0",
    ]  # fmt: skip
    command += [word for space in spaces for word in ("--set", space)]
    code, out, _ = esbench(*command)
    assert code == 0
    assert "2 configurations refused" in out or out.count("1 configuration refused") == 2
    (best,) = (tmp_path / "out").rglob("best.toml")
    assert "openai_es" in tomllib.loads(best.read_text())["algorithms"]
    assert (tmp_path / "a?b%41{c}#d'e é.db").is_file()
    assert esbench(*command)[0] == 0  # it continues
