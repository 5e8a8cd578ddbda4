from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import pytest

from esbench import make_trainer
from esbench.bench import throughput as bench
from esbench.bench.bare_simulators import EmulatorLoop, MuJoCoLoop
from esbench.bench.throughput import PARTS, measure
from esbench.errors import TrainingError, UsageError
from esbench.rollouts.jobs import Setup, Task
from esbench.rollouts.player import Player
from esbench.rollouts.results import EpisodeResult

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
    assert 0 < (result.ratio("bare") or 0) < 100
    assert (result.backend, result.median("simulator")) == ("cartpole", None)
    assert result.ratio("simulator") is None


def test_every_generation_of_a_round_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that goes on whenever somebody looks
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    with make_trainer("openai_es", env="CartPole-v1", population_size=4, workers=1) as trainer:
        trainer.train(env_steps=1)
        first = trainer.progress
        training, simulated = bench._train(trainer, seconds=4.0)  # after 1, 2, 3 and 4 generations
        assert trainer.progress == first
        trainer.train(env_steps=first.env_steps + 1)
        steps = trainer.progress.env_steps - first.env_steps
        center_steps = trainer.progress.eval_env_steps - first.eval_env_steps
    assert (training, simulated) == (4 * steps / 5, 4 * (steps + center_steps) / 5)


def test_the_generation_after_some_training_is_measured() -> None:
    first, later = (
        measure("CartPole-v1", 1, population_size=4, seconds=0.05, rounds=1, after=after)
        for after in (1, 2000)
    )
    with make_trainer("openai_es", env="CartPole-v1", population_size=4, workers=1) as trainer:
        for result, steps in ((first, 1), (later, 2000)):
            trainer.train(env_steps=steps)
            assert result.env_steps == trainer.progress.env_steps
            assert result.episode_length == trainer.history[-1].episode_length_mean
    assert first.env_steps < 2000 <= later.env_steps


def test_mujoco_is_measured_alone_too() -> None:
    result = measure("Hopper-v5", 1, population_size=4, seconds=0.05, rounds=1)
    (item,) = result.rounds
    assert result.backend == "mujoco"
    assert item.simulator is not None
    assert item.bare > 0
    assert item.simulator > 0
    assert result.ratio("simulator") == item.simulated / item.simulator


def test_the_simulator_alone_runs_the_very_episodes() -> None:
    with make_trainer("openai_es", env="Hopper-v5", population_size=4, workers=1) as trainer:
        setup, job = Setup(trainer.spec.environment, trainer.spec.policy), trainer.next_job()
        loop = MuJoCoLoop(setup, job, range(1, 3))
        player = Player(setup, slots=2)
        player.begin(job)
        player.add([Task(1, 0), Task(2, 0)])
        played: list[EpisodeResult] = []
        while player.busy:
            played += player.step()
    lengths = {result.task.member: result.length for result in played}
    assert [len(controls) for _, controls in loop.episodes] == [lengths[1], lengths[2]]
    assert len({seed for seed, _ in loop.episodes}) == 2
    assert loop.steps_per_second(0.01) > 0


def test_the_emulator_alone_plays_the_very_games() -> None:
    """A game that ends with its last action, and not before, is the one that was played."""
    kwargs = {"max_num_frames_per_episode": 90, "screen_size": 20}
    for env in ("esbench/Breakout-v5", "esbench/PongDeterministic-v5"):
        with make_trainer(
            "openai_es",
            env=env,
            population_size=4,
            workers=1,
            policy={"template": "mlp", "hidden": [4]},
            environment={"kwargs": kwargs},
        ) as trainer:
            setup, job = Setup(trainer.spec.environment, trainer.spec.policy), trainer.next_job()
        loop = EmulatorLoop(setup, job, range(1, 3))
        for seed, actions in loop.episodes:
            loop._reset(seed)
            loop.replay(actions[:-1])
            assert not loop.ale.game_over()
            loop.replay(actions[-1:])
            assert loop.ale.game_over()
        assert loop.steps_per_second(0.01) > 0


def test_any_algorithm_and_settings_are_measured() -> None:
    cut = 'environment."CartPole-v1".max_episode_steps=3'
    result = measure(
        "CartPole-v1", 1, population_size=4, seconds=0.05, rounds=1,
        algorithm="eggroll", overrides=["policy.template=linear", cut],
    )  # fmt: skip
    assert result.episode_length == 3


BAD = {
    "rounds": ({"rounds": 0}, "rounds = 0: expected at least 1"),
    "no time": ({"seconds": 0}, "seconds = 0: expected a number above 0"),
    "endless": ({"seconds": float("inf")}, "seconds = inf: expected a number above 0"),
    "not a number": ({"seconds": float("nan")}, "seconds = nan: expected a number above 0"),
    "odd population": ({"population_size": 3}, "population_size = 3: expected an even number"),
    "after": ({"after": 0}, "after = 0"),
    "algorithm": ({"algorithm": "egroll"}, "did you mean 'eggroll'"),
    "setting": ({"overrides": ["policy.hiden=[4]"]}, "did you mean 'hidden'"),
    "seeds": ({"overrides": ["seeds=[0, 1]"]}, "2 trials"),
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
    with pytest.raises(TrainingError, match="failed: RuntimeError: worn out"):
        measure("wears_out:WearsOut-v0", 2, population_size=4, seconds=0.5, rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_quietly(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "signalled.py").write_text(READY)
    paths = [str(tmp_path), str(Path(__file__).parents[1]), *sys.path]
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


def test_the_profile_is_of_all_the_time() -> None:
    result = measure("CartPole-v1", 2, population_size=8, seconds=0.1, rounds=1)
    assert list(result.profile) == [*PARTS, "idle", "update", "store"]
    assert sum(result.profile.values()) == pytest.approx(1.0)
    assert all(share >= 0 for share in result.profile.values())
    assert min(result.profile["simulate"], result.profile["act"], result.profile["update"]) > 0
