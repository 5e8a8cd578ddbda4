import itertools
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import python
from players import play

from esbench import make_trainer
from esbench.bench import training_speed as bench
from esbench.bench.training_speed import PARTS, SimulatorLoop, measure
from esbench.core.errors import TrainingError
from esbench.engine.jobs import Task
from esbench.engine.player import Player
from esbench.experiment.engines import EngineChoice
from esbench.experiment.search_trainer import SearchTrainer


def test_both_speeds_of_every_round_are_measured_after_some_training() -> None:
    result = measure(
        "CartPole-v1", EngineChoice(2), population_size=4, seconds=0.05, rounds=2, after=2000
    )
    assert len(result.rounds) == 2
    for item in result.rounds:
        assert item.bare > 0
        assert item.simulated > item.training > 0
    assert result.median("bare") == sum(item.bare for item in result.rounds) / 2
    assert 0 < (result.ratio("bare") or 0) < 100
    assert (result.backend, result.median("simulator")) == ("cartpole", None)
    assert result.ratio("simulator") is None
    with make_trainer("openai_es", env="CartPole-v1", population_size=4, workers=0) as trainer:
        trainer.train(env_steps=2000)
        assert result.env_steps == trainer.progress.env_steps
        assert result.episode_length == trainer.history[-1].episode_length_mean
    assert list(result.profile) == [*PARTS, "idle", "update", "store"]
    assert sum(result.profile.values()) == pytest.approx(1.0)
    assert all(share >= 0 for share in result.profile.values())
    assert min(result.profile["simulate"], result.profile["act"], result.profile["update"]) > 0


def test_every_generation_of_a_round_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that goes on whenever somebody looks
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    with make_trainer("openai_es", env="CartPole-v1", population_size=4, workers=0) as trainer:
        trainer.train(env_steps=1)
        first = trainer.progress
        training, simulated = bench._train(trainer, seconds=4.0)  # after 1, 2, 3 and 4 generations
        assert trainer.progress == first
        trainer.train(env_steps=first.env_steps + 1)
        steps = trainer.progress.env_steps - first.env_steps
        center_steps = trainer.progress.eval_env_steps - first.eval_env_steps
    assert (training, simulated) == (4 * steps / 5, 4 * (steps + center_steps) / 5)


def test_mujoco_is_measured_alone_too_with_any_algorithm_and_settings() -> None:
    result = measure(
        "Hopper-v5", EngineChoice(1), population_size=4, seconds=0.05, rounds=1,
        algorithm="eggroll",
        overrides=["policy.template=linear", 'environment."Hopper-v5".max_episode_steps=3'],
    )  # fmt: skip
    (item,) = result.rounds
    assert (result.backend, result.episode_length, result.env_steps) == ("mujoco", 3, 4 * 3)
    assert item.simulator is not None
    assert item.bare > 0
    assert item.simulator > 0
    assert result.ratio("simulator") == item.simulated / item.simulator


def test_the_simulator_alone_runs_the_very_episodes() -> None:
    with make_trainer("openai_es", env="Hopper-v5", population_size=4, workers=1) as trainer:
        assert isinstance(trainer, SearchTrainer)
        setup, job = trainer.gathered_setup(), trainer.next_job()
        loop = SimulatorLoop(setup, job, range(1, 3))
        player = Player(setup, slots=2)
        played = play(player, job, [Task(1, 0), Task(2, 0)])
    lengths = {task.member: result.length for task, result in played.items()}
    assert [len(controls) for _, controls in loop.episodes] == [lengths[1], lengths[2]]
    assert len({seed for seed, _ in loop.episodes}) == 2
    assert loop.steps_per_second(0.01) > 0


def test_the_emulator_alone_plays_the_very_games() -> None:
    """A game that ends with its last action, and not before, is the one that was played."""
    policy = {"template": "mlp", "hidden": [4]}
    environment = {"kwargs": {"max_num_frames_per_episode": 90, "screen_size": 20}}
    table: dict[str, Any] = {"policy": policy, "environment": environment, "workers": 1}
    for env in ("esbench/Breakout-v5", "esbench/PongDeterministic-v5"):
        with make_trainer("openai_es", env=env, population_size=4, **table) as trainer:
            assert isinstance(trainer, SearchTrainer)
            setup, job = trainer.gathered_setup(), trainer.next_job()
        loop = SimulatorLoop(setup, job, range(1, 3))
        for seed, actions in loop.episodes:
            loop.env.reset(seed=seed)
            for some, is_over in ((actions[:-1], False), (actions[-1:], True)):
                loop.replay(some)
                assert loop.env.unwrapped.ale.game_over() is is_over  # type: ignore[attr-defined]
        assert loop.steps_per_second(0.01) > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("doubles:Raises-v0", "RuntimeError: the simulator fell over"),  # in training
        ("doubles:WearsOut-v0", "failed: RuntimeError: worn out"),  # in the bare loop
    ],
)
def test_an_environment_that_fails_is_told(name: str, words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        measure(name, EngineChoice(1), population_size=4, seconds=0.5, rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_processes_end_quietly(tmp_path: Path, number: signal.Signals) -> None:
    command = ["bench", "--env", "doubles:Ready-v0", "--workers", "1", "--seconds", "60"]
    with python("-m", "esbench", *command, cwd=tmp_path, start_new_session=True) as process:
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
    assert process.returncode == 130
    assert "Traceback" not in err
