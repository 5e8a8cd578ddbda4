"""Whole commands under faults; ``tox -e campaign`` kills a thousand of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import finished
from fake_trials import write_scores

from esbench.core.process import occupy_streams
from esbench.results.baselines import freeze, write_baseline

SMALL = """
name = "small"
seeds = [0]
budget = { env_steps = 200 }
evaluation = { episodes = 2 }
policy = { hidden = [4] }
environments = """
PLAIN = "hostile_code:Plain-v0"
FOUR = "population_size = 4"
CASES = {  # by label: the environment, the algorithm and its settings
    "honest": ("CartPole-v1", "openai_es", FOUR),
    "stepped": ("hostile_code:Step-surrogate-v0", "openai_es", FOUR),
    "closed": ("hostile_code:Close-raise-v0", "openai_es", FOUR),
    "asked": (PLAIN, "hostile_code:Ask_mute", FOUR),
    "trained": (PLAIN, "hostile_code:Train_os_exit", ""),
    "threaded": (PLAIN, "hostile_code:Train_thread", ""),
}


def write_grid(folder: Path, labels: Sequence[str]) -> None:
    lines = [SMALL + json.dumps(sorted({CASES[label][0] for label in labels}))]
    for label in labels:
        environment, algorithm, settings = CASES[label]
        lines += [f"[algorithms.{label}]", f'algorithm = "{algorithm}"', settings]
        lines += [f'environments = ["{environment}"]']
    (folder / "grid.toml").write_text("\n".join(lines))


def test_several_kinds_of_bad_user_code_fail_their_trials_alone(tmp_path: Path) -> None:
    write_grid(tmp_path, list(CASES))
    run = ("-m", "esbench", "run", "grid.toml", "--workers", "1", "--quiet", "--out", "out")
    code, *printed = finished(*run, cwd=tmp_path)
    output = "".join(printed)
    assert code == 1, output
    assert "Traceback" not in output
    assert all(each.isprintable() or each == "\n" for each in output)
    out = tmp_path / "out"
    folders = {path.relative_to(out).parts[1]: path.parent for path in out.rglob("lock")}
    assert folders.keys() == CASES.keys()
    for label, folder in folders.items():
        works = label in {"honest", "threaded"}
        assert (folder / "result.json").exists() == works, label
        assert (folder / "error.txt").exists() != works, label


def shell(folder: Path, command: str, streams: str) -> int:
    """The exit code of ``esbench COMMAND`` with disturbed streams, also in a pipe."""
    script = f"{sys.executable} -m esbench {command} {streams}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment).returncode


@pytest.mark.parametrize("streams", [">&- 2>&-", "| true", "2>/dev/full"])
def test_a_closed_stream_changes_no_result(tmp_path: Path, streams: str) -> None:
    write_scores(tmp_path / "out", [float(score) for score in range(100, 108)])
    write_scores(tmp_path / "worse", [float(score) for score in range(10, 18)])
    write_baseline(tmp_path / "base.json", freeze(tmp_path / "out", "streams"), replace=False)
    command = "check worse --baseline base.json --json check.json"
    assert shell(tmp_path, command, streams) == 1
    assert '"regression"' in (tmp_path / "check.json").read_text()


def test_training_goes_on_when_its_streams_are_closed(tmp_path: Path) -> None:
    write_grid(tmp_path, ["honest"])
    command = "run grid.toml --workers 1 --quiet --out new"
    assert shell(tmp_path, command, "<&- >&- 2>&-") == 0
    assert len(list(tmp_path.rglob("result.json"))) == 1
    assert not list(tmp_path.rglob("error.txt"))


def test_a_full_disk_ends_trials_side_by_side_in_one_sentence(tmp_path: Path) -> None:
    mounts = ["unshare", "--mount"]
    if not shutil.which(mounts[0]) or subprocess.run([*mounts, "true"]).returncode:
        pytest.skip("no file system can be mounted here")
    (tmp_path / "disk").mkdir()
    run = f"{sys.executable} -m esbench run --env CartPole-v1 --algorithm snes --env-steps 10000000"
    many = "--seeds 0,1 --workers 2 --at-once 2 --quiet --set algorithms.snes.population_size=4"
    command = f"mount -t tmpfs -o size=32k none disk && exec {run} {many} --out disk/out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [*mounts, "sh", "-c", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 2, ended.stderr
    assert "No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_streams_of_python_itself_are_kept() -> None:
    before = sys.stdout, sys.stderr, os.fstat(1).st_ino
    occupy_streams()
    assert before == (sys.stdout, sys.stderr, os.fstat(1).st_ino)
