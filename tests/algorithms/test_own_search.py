"""Algorithms of the user's own, by class or by "package.file:Class", and their checker."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import own_agents
import own_search
import pytest
import torch
from command_line import Run
from searches import START, P, climb

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.core.arrays import with_arrays, without_arrays
from esbench.core.errors import TrainingError, UsageError
from esbench.core.population import EvaluationPlan, StoredPopulation

# What an update leaves in an attribute, and words of the refusal.
UNFIT = [
    ("_center", np.zeros(2), r"_center is an array \[2\] .*; expected an array of 6"),
    ("_center", np.zeros(6, np.complex128), "_center is .*complex128"),
    ("deviation", np.ones(3), r"sigma is an array \[3\].*; expected a number"),
    ("member_data", {"best": np.zeros(5)}, r"member_data is .*best.*for 64 members"),
    ("member_data", {"x": [[1], [1, 2]]}, r"member_data is {'x': \[\[1\], \[1, 2\]\]}"),
    ("member_data", {"return": 1.0}, "member_data is .*other names than .*return"),
    ("population_size", 2.5, r"population_size is 2\.5 .*expected an integer"),
]
# What a class has in place of what it should, and words of the refusal.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"content": None}, "_state_dict returned None; expected a dictionary"),
    ({"content": {"a": {"b": torch.zeros(2)}}}, r"returned {'a': {'b': tensor\(.*expected"),
    ({"content": {"a": {"$tensor": "x"}}}, r"KeyError: 'x'"),
    ({"content": {"average": 1}}, "expected .* but algorithm, generation, center, average"),
    (
        {"_load_state_dict": lambda search, state: state["speed"]},
        "_load_state_dict does not take .*'speed'",
    ),
    ({"_ask": lambda _: np.zeros((4, 3))}, "_ask returned an array .*; expected a Population"),
    (
        {"_ask": lambda _: StoredPopulation(stored=np.zeros((64, 3)), size=64)},
        r"_ask returned an array \[64, 3\].*; expected numbers \[N, 6\]",
    ),
    ({"_ask": lambda search: search.sampled(np.ones(2))}, "_ask returned members that cannot be"),
    (
        {"_ask": lambda search: search.sampled(np.random.default_rng().uniform(0.1, 0.2))},
        "generation 1 has other members",
    ),
    ({"left": lambda _: {"x": torch.rand(1)}}, "draws from the generator torch"),
    (
        {"left": lambda search: {"population_size": search.population_size + 2}},
        "generation 2 has other members or episodes",
    ),
    (
        {"left": lambda search: {"plan": EvaluationPlan(episodes=search.generation + 2)}},
        "generation 2 has other members or episodes",
    ),
]


@pytest.mark.parametrize("name", [*ALGORITHMS.builtin_names()])
def test_built_in_algorithms_pass_the_check(name: str) -> None:
    esbench.check_algorithm(ALGORITHMS.get(name))


@pytest.mark.parametrize(
    "name", ["Explodes", "FromStart", "InPlace", "Mine", "Rebinding", "Remembers"]
)
def test_own_algorithms_with_their_whole_state_pass_the_check(name: str) -> None:
    esbench.check_algorithm(getattr(own_search, name), center_init=[0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [*BROKEN, *(({"left": lambda _, n=n, v=v: {n: v}}, words) for n, v, words in UNFIT)],
)
def test_the_check_names_what_an_algorithm_breaks(changed: dict[str, Any], words: str) -> None:
    broken = type("Broken", (own_search.Unfit,), changed)
    with pytest.raises(TrainingError, match=f"Broken.*{words}") as caught:
        esbench.check_algorithm(broken)
    assert "\n" not in str(caught.value)


def test_the_check_notices_a_forgotten_momentum() -> None:
    with pytest.raises(TrainingError, match="Forgetful.*generation 2 ends in another state"):
        esbench.check_algorithm(own_search.Forgetful)


def test_a_trial_checks_its_own_algorithm_before_it_trains(esbench: Run) -> None:
    options = ("--env", "CartPole-v1", "--env-steps", "3000", "--seeds", "0", "--quiet")
    names = ("own_search:Explodes", "own_search:Forgetful", "own_search:Mine")
    algorithms = [word for name in names for word in ("--algorithm", name)]
    code, _, _ = esbench("run", *options, *algorithms, "--workers", "0", "--out", "out")
    assert code == 1
    errors = "".join(path.read_text() for path in Path("out").rglob("error.txt"))
    assert "population_size = 1000000000" in errors
    assert "generation 2 ends in another state" in errors
    (done,) = Path("out").rglob("result.json")
    description = json.loads(done.with_name("trial.json").read_text())
    assert description["own_code"]["own_search"].startswith("sha256:")


def test_an_algorithm_and_an_optimizer_can_be_given_as_classes() -> None:
    given = [
        ("openai_es", "own_search:Derived"),
        ("own_search:Mine", "own_search:Derived"),
        (own_search.Mine, own_search.Derived),
    ]
    centers = []
    for name, optimizer in given:
        algorithm = esbench.make_algorithm(
            name, num_params=P, center_init=START, optimizer=optimizer, sigma=0.1
        )
        climb(algorithm, 5)
        centers.append(algorithm.center)
    assert not np.array_equal(centers[0], START)
    np.testing.assert_array_equal(centers[1:], centers[:1] * 2)


def test_a_class_inside_a_function_is_refused() -> None:
    class Inside(own_search.Plain): ...

    with pytest.raises(UsageError, match="top level"):
        esbench.make_algorithm("openai_es", num_params=P, optimizer=Inside)
    with pytest.raises(UsageError, match="own_search:Stepless"):
        esbench.make_trainer("openai_es", env="CartPole-v1", optimizer=own_search.Stepless)


def test_arrays_in_lists_and_under_dotted_names_are_restored() -> None:
    nested = {"a": {"b": np.zeros(2)}, "a.b": np.ones(3), "a.b#1": [np.full(1, 2.0), (1, "x")]}
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(nested, arrays)))
    restored = with_arrays(plain, arrays)
    np.testing.assert_array_equal(restored["a"]["b"], np.zeros(2))
    np.testing.assert_array_equal(restored["a.b"], np.ones(3))
    np.testing.assert_array_equal(restored["a.b#1"][0], [2.0])
    assert restored["a.b#1"][1] == [1, "x"]


@pytest.mark.parametrize("name", ["Climber", "Predictor", "Still"])
def test_own_agents_pass_the_check(name: str) -> None:
    esbench.check_agent(getattr(own_agents, name), env_steps=100)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("Nothing", TrainingError, "returned int; expected a policy"),
        ("Unseeded", TrainingError, "depend on the seed alone"),
        ("Draws", TrainingError, "draws from the generator random and does not seed it"),
        ("Outside", TrainingError, r"chose 7; expected one of Discrete\(2\)"),
        ("Callable", UsageError, "is no agent"),
    ],
)
def test_the_check_names_what_an_agent_breaks(
    name: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        esbench.check_agent(getattr(own_agents, name), env_steps=10)


@pytest.mark.parametrize("name", ["CartPol-v1", "nope:X-v0", "own_agents:X-v0", "ALE/Pong-v4"])
def test_a_check_refuses_an_unknown_environment_as_training_does(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        list(esbench.expand({"environments": [name], "algorithms": ["snes"]}))
    expected = re.escape(str(refused.value))
    with pytest.raises(UsageError, match=expected):
        esbench.check_agent(own_agents.Still, name)
    with pytest.raises(UsageError, match=expected):
        esbench.check_environment(name)


def test_an_agent_is_checked_in_the_environment_that_a_name_stands_for() -> None:
    esbench.check_agent(own_agents.Sees, env="ALE/Pong-v5", env_steps=1, shape=(4, 84, 84))


def test_a_grid_takes_the_class_of_an_algorithm() -> None:
    mine, one = own_search.Mine, {"env": "CartPole-v1"}
    grids: list[Any] = [[mine, "snes"], {"mine": {"algorithm": mine}}]
    expanded = [esbench.expand(**one, algorithm=given) for given in (mine, [mine, "snes"])]
    expanded += [esbench.expand({"algorithms": given}, **one) for given in grids]
    for trials in expanded:
        assert next(trials).spec.algorithm.name == "own_search:Mine"
