"""``esbench slurm`` and ``--shard``: what they print, pass on and refuse."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command_line import Run, files

from esbench.bench import grid_cost as plan

GRID = ["--env", "doubles:Walk-v0", "--algorithm", "snes", "--algorithm", "openai_es"]
SMALL = [
    *GRID, "--seeds", "0-1", "--env-steps", "150", "--workers", "1", "--set", "policy.hidden=[4]",
    "--set", "evaluation.episodes=3", "--set", "algorithms.openai_es.population_size=4",
]  # fmt: skip


def command_of(script: str) -> list[str]:
    """The words of the command that a task runs."""
    lines = script.replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if " -m esbench run " in line]
    return shlex.split(line)


def test_the_script_parses_and_passes_the_options_of_run_on(esbench: Run, tmp_path: Path) -> None:
    passed = [
        "quick", "--env", "CartPole-v1", "--algorithm", "snes", "--seeds", "0-3",
        "--env-steps", "999", "--set", "policy.hidden=[4, 8]", "--set", "evaluation.episodes=3",
        "--extend", "--workers", "2", "--at-once", "2", "--keep", "3",
        "--record", "members", "--callback", "math:sqrt", "--quiet", "--track", "tensorboard",
        "--episode-timeout", "60.0", "--trial-timeout", "3600.0",
    ]  # fmt: skip
    own = ["--array", "3", "--time", "1:00:00", "--partition", "p", "--mem", "2G"]
    own += ["--cpus-per-task", "100000"]  # a node may have more than this machine
    code, out, err = esbench("slurm", *own, *passed, "--out", "my out")
    assert (code, err) == (0, "")
    assert not files(tmp_path)
    check = subprocess.run(["bash", "-n"], input=out, text=True, capture_output=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")
    words = command_of(out)
    assert words[words.index("run") + 1 : words.index("--shard")] == passed
    assert "4 trials in 3 shards" in out
    assert "#SBATCH --job-name=esbench-quick" in out
    assert "my out/quick-$SLURM_ARRAY_TASK_ID-of-3" in words


def test_what_the_folders_of_the_shards_hold_is_checked(esbench: Run) -> None:
    assert esbench("run", *SMALL, "--out", "out")[0] == 0
    other = [*(word.replace("150", "200") for word in SMALL), "--array", "2", "--out", "out"]
    code, script, _ = esbench("slurm", *other)
    assert code == 0, "no task uses this folder itself"
    words = command_of(script.replace("$SLURM_ARRAY_TASK_ID", "2"))
    folder = words[words.index("--out") + 1]
    assert esbench("run", *SMALL, "--shard", "2/2", "--out", folder)[0] == 0
    code, out, err = esbench("slurm", *other)
    assert (code, out) == (2, "")
    assert "budget.env_steps" in err
    assert esbench("slurm", *other, "--extend")[0] == 0


def test_every_option_of_run_is_an_option_of_slurm(esbench: Run) -> None:
    of_run, of_slurm = (
        set(re.findall(r" (--[a-z-]+) ", esbench(command, "--help")[1]))
        for command in ("run", "slurm")
    )
    assert len(of_run) > 10
    assert of_run - of_slurm == {"--shard", "--engine", "--address", "--allow-mixed"}
    assert of_slurm - of_run == {
        "--array", "--cpus-per-task", "--mem", "--partition", "--sbatch", "--submit", "--time",
    }  # fmt: skip


def test_submit_gives_the_script_to_sbatch(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "sbatch"
    fake.write_text("#!/bin/bash\ncat > script\necho Submitted batch job 5\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    arguments = ["slurm", *GRID, "--array", "2"]
    printed = esbench(*arguments)[1]
    assert esbench(*arguments, "--submit") == (0, "Submitted batch job 5\n", "")
    assert (tmp_path / "script").read_text() == printed
    fake.write_text("#!/bin/bash\necho 'error: no partition x' >&2; exit 1\n")
    assert "no partition x" in esbench(*arguments, "--submit")[2]
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = esbench(*arguments, "--submit")
    assert (code, out, len(err.splitlines()), "sbatch" in err) == (2, "", 1, True)


REFUSED = {
    "--array 0": "0 shards .* 6 trials",
    "--array 7": "7 shards .* 6 trials",
    "--array 2 --sbatch array=3": "--sbatch 'array=3'",
    "--array 2 --time 4:59": "--time '4:59'.* 5 minutes",
    "--array 2 --keep 0": "keep = 0",
    "--array 2 --cpus-per-task 2 --at-once 3": "at_once = 3",
    "--array 2 --set budget.env_step=3": "'env_steps'",
    "--array 2 --out file": "file is a file",
    "--array 2 --callback math:sqrtt": "sqrtt",
    "--array 2 --track tensorbord": "tensorbord",
}


@pytest.mark.parametrize("options", REFUSED)
def test_a_mistake_is_found_before_the_job_waits(
    esbench: Run, tmp_path: Path, options: str
) -> None:
    (tmp_path / "file").touch()
    code, out, err = esbench("slurm", *GRID, *shlex.split(options), "--submit")
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"esbench: .*{REFUSED[options]}.*\n", err)


@pytest.mark.parametrize(("command", "shard"), [("run", "5/4"), ("plan", "x"), ("status", "1/7")])
def test_bad_shards_are_one_sentence(
    esbench: Run, tmp_path: Path, command: str, shard: str
) -> None:
    code, out, err = esbench(command, *GRID, "--shard", shard)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert shard.partition("/")[2] in err
    assert not files(tmp_path)


def test_shards_make_the_grid(esbench: Run, tmp_path: Path) -> None:
    from esbench import load_results, run

    assert esbench("run", *SMALL, "--shard", "1/2", "--quiet")[::2] == (0, "")
    settings = [word for word in SMALL if "." in word]
    chosen = {"algorithm": ["snes", "openai_es"], "seeds": "0-1", "env_steps": 150}
    options = {**chosen, "overrides": settings, "workers": 1, "quiet": True}
    second = run(env="doubles:Walk-v0", shard="2/2", **options)
    assert second["status"].tolist() == ["done"] * 2
    status = [word for word in SMALL if word not in {"--workers", "1"}]
    for shard in ("1/2", "2/2"):
        assert ": 2 done" in esbench("status", *status, "--shard", shard)[1]
    (shards,) = (tmp_path / "results/runs").iterdir()
    assert sorted(path.name[-7:] for path in shards.iterdir()) == ["-1-of-2", "-2-of-2"]
    code, out, _ = esbench("merge", *map(str, shards.iterdir()), "--out", "all")
    assert (code, "4 copied" in out) == (0, True)
    assert len(run(env="doubles:Walk-v0", out="plain", **options)) == 4
    assert load_results("all")["digest"].tolist() == load_results("plain")["digest"].tolist()


def test_plan_tells_the_costs_of_the_shards(esbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "costs", lambda trials, workers, notice: [])
    code, out, err = esbench("plan", *GRID, "--env-steps", "500", "--shard", "2/3")
    assert (code, err) == (0, "")
    assert "2-of-3" in out
    assert "6 trials in 3 shards" in out
