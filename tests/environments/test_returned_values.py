"""What an environment returns against its spaces: a failed trial whose error names it."""

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from doubles import Answers
from gymnasium import spaces

from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.returned_values import ReturnedValues
from esbench.errors import EnvironmentFailedError, TrainingError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.make import make_trainer

NAME = "doubles:Answers-v0"
WRONG = {
    "longer": "(5,)",
    "shorter": "(1,)",
    "column": "(3, 1)",
    "row": "(1, 3)",
    "words": "(3,) of <U1",
    "complex": "complex64",
    "scalar": "0.5",
    "none": "None",
    "text": "'abc'",
    "infinite": "infinite",
    "reward text": "'1.0'",
    "reward none": "None",
    "reward array": "(2,)",
    "reward complex": "1j",
    "terminated text": "'no'",
    "truncated none": "None",
    "terminated array": "(2,)",
    "reset": "reset()",
    "step": "step()",
}
RIGHT = ["", "float64", "list", "reward 0-d", "reward int", "flag numpy", "flag int"]


def play(kind: str) -> tuple[Any, ...]:
    backend = GymnasiumBackend(NAME, {"kind": kind, "max_episode_steps": -1}, 2)  # not limited
    backend.start(0, 1)
    backend.start(1, 2)
    for _ in range(4):
        answer = backend.step(np.zeros((2, 3), np.float32))
    backend.close()
    return answer


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_is_a_failure_that_names_the_environment(kind: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(WRONG[kind])) as error:
        play(kind)
    assert NAME in str(error.value)


@pytest.mark.parametrize(
    ("given", "fits"), [([0.2, 0.9], False), ([3.0, 4.0], True), ([1, 2], True)]
)
def test_observations_that_a_space_of_integers_would_change_are_refused(
    given: list[float], fits: bool
) -> None:
    checked = ReturnedValues("Env-v0", spaces.Box(0, 255, (2,), np.uint8))
    for observation in (given, np.array(given)):
        if fits:
            np.testing.assert_array_equal(checked.observation(observation), given)
        else:
            with pytest.raises(TrainingError, match=r"Env-v0.*uint8"):
                checked.observation(observation)


@pytest.mark.parametrize(
    ("space", "given"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [300, 0]),
        (spaces.Box(0, 255, (2,), np.uint8), [-1, 0]),
        (spaces.Box(0, 255, (), np.uint8), 300),
        (spaces.Box(-1, 1, (2,), np.float32), [10**400, 0]),
    ],
)
def test_numbers_too_large_for_the_type_of_a_space_are_refused(space: Any, given: Any) -> None:
    with pytest.raises(TrainingError, match=rf"Env-v0.* {space.dtype}, which would change it"):
        ReturnedValues("Env-v0", space).observation(given)


def test_a_step_checks_integers_as_a_reset_does() -> None:
    class Bright(gymnasium.Env[np.ndarray, int]):
        observation_space = spaces.Box(0, 255, (2,), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(2, np.uint8), {}

        def step(self, action: int) -> Any:
            return np.array([0.5, 300.7]), 0.0, False, False, {}

    gymnasium.register("Bright-v0", entry_point=Bright)
    try:
        backend = GymnasiumBackend("Bright-v0", {}, 1)
        backend.start(0, 0)
        with pytest.raises(TrainingError, match=r"Bright-v0.*uint8"):
            backend.step(np.zeros(1, np.int64))
    finally:
        del gymnasium.registry["Bright-v0"]


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_answer_is_taken_whatever_its_types(kind: str) -> None:
    observations, rewards, terminated, _, _ = play(kind)
    expected = play("")
    np.testing.assert_array_equal(observations, expected[0])
    np.testing.assert_array_equal(rewards, expected[1])
    np.testing.assert_array_equal(terminated, expected[2])


def test_the_kinds_are_those_of_the_environment() -> None:
    assert {*WRONG, *RIGHT} == {*Answers.KINDS}


def test_it_fails_its_trial_only(make_spec: Callable[..., TrialSpec], pool: WorkerPool) -> None:
    spec = make_spec(NAME, environment={NAME: {"kwargs": {"kind": "reward text"}}})
    with (
        make_trainer(spec, pool) as trainer,
        pytest.raises(EnvironmentFailedError, match=f"{NAME}.*'1.0'"),
    ):
        trainer.train()
