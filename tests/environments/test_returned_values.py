"""What an environment returns is checked against its spaces."""

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from doubles import Answers
from gymnasium import spaces

from esbench.core.errors import EnvironmentFailedError, TrainingError
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend, flattened
from esbench.environments.returned_values import ReturnedValues
from esbench.experiment.stored_trainer import make_trainer
from esbench.grids.trial_spec import TrialSpec

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
def test_a_wrong_answer_fails_and_names_the_environment(kind: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(WRONG[kind])) as error:
        play(kind)
    assert NAME in str(error.value)


PAIR = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)))
BOXES = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (3,)))
DEEP = spaces.Tuple(
    [spaces.Dict(c=spaces.MultiDiscrete([3, 4], start=[2, -1])), spaces.Discrete(2)]
)
EITHER = spaces.OneOf([spaces.Discrete(2), spaces.Box(-1, 1, (3,))])
BYTES, BYTE = spaces.Box(0, 255, (2,), np.uint8), spaces.Box(0, 255, (), np.uint8)


def flat_observation(space: Any, given: Any) -> np.ndarray:
    """What a policy sees of an observation."""
    if isinstance(space, spaces.Box):
        return np.asarray(ReturnedValues("Mine-v0", space).observation(given))
    env = gymnasium.make("CartPole-v1").unwrapped
    env.observation_space = space
    env.reset = lambda **_: (given, {})  # type: ignore[method-assign]
    observation, _ = flattened(env, "Mine-v0").reset()
    return np.asarray(observation)


@pytest.mark.parametrize(
    ("space", "given", "words"),
    [
        (BYTES, [0.2, 0.9], "uint8, which would change it"),
        (BYTES, [300, 0], "uint8, which would change it"),
        (BYTES, np.array([-1, 0]), "uint8, which would change it"),
        (BYTES, np.array([0.5, 300.7]), "uint8, which would change it"),
        (BYTE, 300, "300 .*uint8, which would change it"),
        (spaces.Box(-1, 1, (2,)), [10**400, 0], r"2 values \(list\)"),
        (spaces.MultiDiscrete([3, 4]), np.array([3, 2]), "an observation has the number 3;"),
        (spaces.MultiDiscrete([3, 4]), [-1, 2], "an observation has the number -1;"),
        (spaces.MultiDiscrete([3, 4]), np.array([1.5, 2]), "int64, which would change it"),
        (spaces.MultiDiscrete([3, 4]), np.array([1]), r"shape \(1,\).*shape \(2,\)"),
        (spaces.MultiBinary(2), np.array([1, 5]), "the number 5; expected 0 to 1"),
        (spaces.MultiBinary((2, 3)), np.zeros(6, int), r"shape \(6,\).*shape \(2, 3\)"),
        (PAIR, {"a": -1, "b": np.zeros(2)}, r"the part \['a'\] of .* number -1; expected 0 to 2"),
        (PAIR, {"a": 10**30, "b": np.zeros(2)}, r"\['a'\].* is 10+ \(int\)"),
        (PAIR, {"a": 1.5, "b": np.zeros(2)}, r"\['a'\].* 1\.5 .*would change it"),
        (PAIR, {"a": None, "b": np.zeros(2)}, r"\['a'\] .* is None"),
        (PAIR, {"a": 1}, r"mapping with the keys \['a'\]; its space has the keys \['a', 'b'\]"),
        (PAIR, np.zeros(5), r"shape \(5,\).* has the keys"),
        (PAIR, None, "None.* has the keys"),
        (DEEP, ({"c": np.array([2, 3])}, 1), r"\[0\]\['c'\] .*number 3; expected .*-1.* to "),
        (DEEP, ({"c": np.array([2, 0])},), r"1 values \(tuple\); its space has 2 parts"),
        (EITHER, (-1, np.zeros(3)), r"\[0\] .* number -1; expected 0 to 1"),
        (EITHER, (0, np.zeros(3)), r"\[1\] .*\(3,\).* the shape \(\)"),
        (spaces.Dict(a=BYTES), {"a": np.array([300, 0])}, "uint8, which"),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), {"a": [np.inf, 0]}, r"\['a'\].* infinite"),
    ],
)
def test_an_observation_outside_its_space_is_refused(space: Any, given: Any, words: str) -> None:
    with pytest.raises(TrainingError, match=f"environment 'Mine-v0': .*{words}"):
        flat_observation(space, given)


@pytest.mark.parametrize(
    ("space", "given", "words"),
    [
        (spaces.Discrete(4), 7, "number 7; expected 0 to 3"),
        (spaces.Box(0, 5, (1, 2), np.uint8), [[5, 9]], "number 9; expected 0 to 5"),
        (spaces.Box(-np.inf, 0.5, (2,)), [-9.0, 0.75], "number 0.75; expected -inf to 0.5"),
    ],
)
def test_a_number_outside_of_its_bounds_is_named(space: Any, given: Any, words: str) -> None:
    returned = ReturnedValues("Mine-v0", space)
    space.seed(0)
    returned.require_inside(np.array(space.sample()))
    with pytest.raises(TrainingError, match=words):
        returned.require_inside(np.array(given))


@pytest.mark.parametrize(
    ("space", "given", "same"),
    [
        (BYTES, [3.0, 4.0], np.array([3, 4], np.uint8)),
        (BYTES, np.array([1, 2]), np.array([1, 2], np.uint8)),
        (PAIR, {"a": True, "b": [0, 5], "c": "more"}, {"a": 1, "b": np.array([0, 5.0])}),
        (PAIR, {"a": 1.0, "b": np.array([9, -9])}, {"a": 1, "b": np.array([9.0, -9.0])}),
        (PAIR, {"a": np.array(2), "b": np.full(2, np.nan)}, {"a": 2, "b": np.full(2, np.nan)}),
        (DEEP, [{"c": (4, -1)}, np.uint8(1)], ({"c": np.array([4, -1])}, 1)),
        (DEEP, ({"c": np.array([4.0, -1.0])}, 1), ({"c": np.array([4, -1])}, 1)),
        (spaces.MultiBinary(2), [True, False], np.array([1, 0])),
        (spaces.MultiBinary(2), np.array([1.0, 0.0]), np.array([1, 0])),
        (EITHER, (np.int64(1), [1, 2, 3]), (1, np.array([1.0, 2.0, 3.0]))),
    ],
)
def test_an_observation_of_other_types_has_the_same_vector(
    space: Any, given: Any, same: Any
) -> None:
    expected, found = spaces.flatten(space, same), flat_observation(space, given)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "space",
    [
        *(PAIR, BOXES, DEEP, EITHER),
        *(spaces.MultiBinary((2, 3)), spaces.MultiDiscrete(np.array([[2, 3]]))),
    ],
)
def test_every_sample_of_a_composite_space_has_gymnasiums_vector(space: Any) -> None:
    space.seed(0)
    for _ in range(20):
        sample = space.sample()
        flat = flat_observation(space, sample)
        np.testing.assert_array_equal(flat, spaces.flatten(space, sample))


@pytest.mark.parametrize("kind", RIGHT)
def test_an_answer_of_other_types_gives_the_same_result(kind: str) -> None:
    observations, rewards, terminated, _, _ = play(kind)
    expected = play("")
    np.testing.assert_array_equal(observations, expected[0])
    np.testing.assert_array_equal(rewards, expected[1])
    np.testing.assert_array_equal(terminated, expected[2])


def test_every_kind_of_answer_is_tested() -> None:
    assert {*WRONG, *RIGHT} == {*Answers.KINDS}


def test_a_wrong_answer_fails_its_trial(
    make_spec: Callable[..., TrialSpec], pool: WorkerPool
) -> None:
    spec = make_spec(NAME, environment={NAME: {"kwargs": {"kind": "reward text"}}})
    with (
        make_trainer(spec, pool) as trainer,
        pytest.raises(EnvironmentFailedError, match=f"{NAME}.*'1.0'"),
    ):
        trainer.train()
