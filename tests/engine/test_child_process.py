"""Child processes start and end, whatever the current folder has and whatever they start."""

import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import alive, end_soon, finished

from esbench.core.linux import death_of
from esbench.engine.child_process import Child, Parent, end, wait_for
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool
from esbench.grids.trial_spec import TrialSpec

LARGE = 10_000_000  # bytes, more than a pipe holds


def hold_the_pipe(flag: Path) -> None:
    """Leave a process that runs until the flag is removed, at most 20 s."""
    if os.fork() == 0:
        os.setsid()  # it leaves the group of the child, which would end it
        for _ in range(400):
            if not flag.exists():
                os._exit(0)
            time.sleep(0.05)
        flag.write_text("not removed")
        os._exit(0)


def die_at_once(_: Parent, flag: Path) -> None:
    hold_the_pipe(flag)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_a_message(parent: Parent, flag: Path) -> None:
    hold_the_pipe(flag)
    parent.send("whole")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    parent.send(bytes(LARGE))


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    path = tmp_path / "flag"
    path.touch()
    return path


def test_a_large_message_to_a_dead_child_is_dropped(flag: Path) -> None:
    child = Child(die_at_once, flag)
    assert wait_for([child]) == [child]
    child.send(bytes(LARGE))
    assert child.receive() is None
    assert flag.read_text() == ""
    flag.unlink()
    end([child])


def test_what_a_dying_child_has_sent_is_received_up_to_the_torn_message(flag: Path) -> None:
    child = Child(die_in_a_message, flag)
    assert end_soon([child.process.pid])
    assert child.receive() == "whole"
    assert child.receive() is None
    assert flag.read_text() == ""
    flag.unlink()
    end([child])


HELPED = "doubles:Helped-v0"


@pytest.mark.parametrize(
    ("kind", "method", "how"),
    [
        ("process", "spawn", "killed"),
        ("pool", "fork", "killed"),
        ("pool", "fork", "closed"),
        ("executor", "spawn", "killed"),
        ("executor", "spawn", "closed"),
        ("subprocess", "fork", "killed"),
        ("vector", "fork", "killed"),
    ],
)
def test_processes_that_an_environment_starts_end_with_its_worker(
    make_spec: Callable[..., TrialSpec], tmp_path: Path, kind: str, method: str, how: str
) -> None:
    helpers = tmp_path / "helpers"
    kwargs = {"kind": kind, "method": method, "helpers": str(helpers)}
    spec = make_spec(HELPED, environment={HELPED: {"kwargs": kwargs}})
    with WorkerPool(1, slots=1) as pool:
        pool.configure(Setup(spec.environment, spec.policy))
        started = [int(number) for number in helpers.read_text().split()]
        assert started
        assert all(map(alive, started))
        if how == "killed":
            os.kill(pool.process_ids[0], signal.SIGKILL)
            assert end_soon(started)
    assert end_soon(started)


SHADOWS = (
    "types", "signal", "socket", "select", "random", "json", "copy", "queue", "threading",
    "multiprocessing", "importlib", "numpy", "gymnasium", "torch", "esbench",
)  # fmt: skip


def test_files_of_the_current_folder_that_have_the_names_of_modules_are_not_imported(
    tmp_path: Path,
) -> None:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('imported {name}.py')\n")
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv as Mine\n"
        "gymnasium.register('Own-v0', entry_point=Mine, max_episode_steps=50)\n"
    )
    code, _, err = finished(
        "-c",
        "import sys; sys.path.remove(''); from esbench.__main__ import program; program()",
        *("run", "--env", "mine:Own-v0", "--algorithm", "snes", "--seeds", "0,1"),
        *("--env-steps", "500", "--workers", "2", "--at-once", "2", "--quiet"),
        cwd=tmp_path,
    )
    assert (code, err) == (0, "")


def test_a_trainer_runs_in_a_worker_of_a_pool(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        import esbench


        def train(seed):
            options = {"env": "CartPole-v1", "seed": seed, "workers": 1}
            with esbench.make_trainer("snes", population_size=8, **options) as trainer:
                trainer.train(env_steps=500)
                return trainer.history[-1].digest


        def again():
            ours.train(env_steps=5_000)
            raise AssertionError("the workers of the parent were used")


        if __name__ == "__main__":
            ours = esbench.make_trainer("snes", env="CartPole-v1", workers=1)
            ours.train(env_steps=1)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
                digest = executor.submit(train, 0).result()
            with multiprocessing.get_context("fork").Pool(1) as pool:
                assert pool.apply(train, [0]) == digest == train(0)
                try:
                    pool.apply(again)
                except esbench.UsageError as error:
                    assert "made" in str(error)
            ours.train(env_steps=5_000)
            ours.close()
        """)
    )
    code, _, err = finished(str(script), cwd=tmp_path)
    assert (code, err) == (0, "")


def test_a_system_without_descriptors_of_processes_is_asked_for_the_parent_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)  # as on macOS
    assert os.fstat(death_of(os.getpid()))
