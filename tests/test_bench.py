from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest

from esbench.bench import measure
from esbench.errors import TrainingError, UsageError

WEARS_OUT = """
import gymnasium
from doubles import Walk

class WearsOut(Walk):
    steps = 0

    def step(self, action):
        WearsOut.steps += 1
        if WearsOut.steps > 1000:
            raise RuntimeError("worn out")
        return super().step(action)

gymnasium.register("WearsOut-v0", entry_point=WearsOut)
"""
READY = """
from pathlib import Path

import gymnasium
from doubles import Slow

class Ready(Slow):
    def step(self, action):
        Path("ready").touch()
        return super().step(action)

gymnasium.register("Ready-v0", entry_point=Ready)
"""

gymnasium.register("Absent-v0", entry_point="no_library_has_this_name:Env")


def test_both_speeds_of_every_round_are_measured() -> None:
    result = measure("CartPole-v1", 1, population_size=4, seconds=0.05, rounds=2)
    assert len(result.rounds) == 2
    for item in result.rounds:
        assert item.bare > 0
        assert item.simulated > item.training > 0
    assert result.median("bare") == sum(item.bare for item in result.rounds) / 2
    assert 0 < result.ratio < 10


BAD = {
    "rounds": ({"rounds": 0}, "rounds = 0: expected at least 1"),
    "no time": ({"seconds": 0}, "seconds = 0: expected a number above 0"),
    "endless": ({"seconds": float("inf")}, "seconds = inf: expected a number above 0"),
    "not a number": ({"seconds": float("nan")}, "seconds = nan: expected a number above 0"),
    "odd population": ({"population_size": 3}, "population_size = 3: expected an even number"),
    "workers": ({"workers": 0}, "workers = 0: expected at least 1"),
    "environment": ({"environment": "doubles:Wlak-v0"}, "unknown environment"),
    "cannot be made": ({"environment": "Absent-v0"}, "'Absent-v0' cannot be made: No module named"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        measure(**{"environment": "CartPole-v1", "workers": 1, **arguments})  # type: ignore[arg-type]


def test_an_environment_that_fails_is_told() -> None:
    with pytest.raises(TrainingError, match="RuntimeError: the simulator fell over"):
        measure("doubles:Raises-v0", 1, population_size=4, seconds=0.2, rounds=1)


def test_an_environment_that_fails_in_the_bare_loop_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wears_out.py").write_text(WEARS_OUT)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TrainingError, match="the bare loop failed: RuntimeError: worn out"):
        measure("wears_out:WearsOut-v0", 2, population_size=4, seconds=0.5, rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_quietly(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "signalled.py").write_text(READY)
    paths = [str(tmp_path), str(Path(__file__).parent), *sys.path]
    command = ["bench", "--env", "signalled:Ready-v0", "--workers", "2", "--seconds", "60"]
    with subprocess.Popen(
        [sys.executable, "-m", "esbench", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if number is signal.SIGINT:  # a terminal sends it to all processes of the group
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=20)  # ends when the last child has closed stderr
    assert process.returncode == (-number if number is signal.SIGKILL else 130)
    assert "Traceback" not in err
