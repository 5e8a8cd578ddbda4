"""Arguments from Python and TOML reach code of the user's own as they are, or are refused."""

import contextlib
import datetime
import enum
import functools
import inspect
import json
import tomllib
from collections import namedtuple
from decimal import Decimal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import esbench
from esbench.agents.agent import OwnAgent, make_agent
from esbench.algorithms.search_settings import DeviationSettings
from esbench.core.arguments import plain, received
from esbench.core.errors import UsageError
from esbench.core.settings import parse
from esbench.environments.make_environment import WrapperSettings, make_environment, wrapped
from esbench.experiment.trials import open_grid
from esbench.grids.trial_spec import TrialSpec

Color = enum.StrEnum("Color", ["RED"])
Size = enum.IntEnum("Size", ["BIG"])
Point = namedtuple("Point", "x y")


class Keeps(gymnasium.Env[Any, Any]):
    """Keeps its arguments."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self, given: Any = None, goal: Any = (0, 2), size: "tuple[int, int] | None" = None
    ) -> None:
        self.kept = {"given": given, "goal": goal, "size": size}


gymnasium.register("Keeps-v0", Keeps, max_episode_steps=3)


class Learns:
    """Keeps its arguments."""

    def __init__(self, given: Any = None, goal: Any = (0, 2)) -> None:
        self.kept = {"given": given, "goal": goal}

    def train(self, env: Any, env_steps: int, seed: int) -> Any: ...


def learner(settings: dict[str, Any]) -> dict[str, Any]:
    """What an agent of the user gets in another process."""
    name = f"{__name__}:Learns"
    spec = stored(trial({}, algorithms={name: settings}))
    agent = make_agent(Learns, spec.algorithm.settings, lambda: Keeps(), 0, name)
    assert isinstance(agent, OwnAgent)
    kept: dict[str, Any] = agent._learner.kept
    return kept


def stored(spec: TrialSpec) -> TrialSpec:
    """A trial in another process, which reads ``trial.json``."""
    found = parse(TrialSpec, json.loads(json.dumps(spec.as_json())), "stored")
    assert found == spec
    assert found.hash == spec.hash
    return found


def made(spec: TrialSpec) -> dict[str, Any]:
    """What the environment of a trial gets in another process."""
    environment = stored(spec).environment
    env: Any = make_environment(environment.id, environment.kwargs)
    kept: dict[str, Any] = env.unwrapped.kept
    return kept


def trial(kwargs: Any, **grid: Any) -> TrialSpec:
    table = {
        "environments": ["Keeps-v0"],
        "environment": {"Keeps-v0": {"kwargs": kwargs}},
        "algorithms": ["snes"],
        **grid,
    }
    return next(esbench.expand(table)).spec


CARRIED: dict[str, tuple[Any, Any]] = {
    "a tuple": ((0, 2), (0, 2)),
    "a list": ([0, 2], [0, 2]),
    "tuples in lists in tables": ({"a": [(1, (2.5, "x")), []]}, {"a": [(1, (2.5, "x")), []]}),
    "an empty tuple": ((), ()),
    "a large integer": (2**70 + 1, 2**70 + 1),
    "a small number": (5e-324, 5e-324),
    "a float of NumPy": (np.float64(0.1), 0.1),
    "a short float of NumPy": (np.float32(0.1), float(np.float32(0.1))),
    "an integer of NumPy": (np.int64(2**62), 2**62),
    "a truth of NumPy": (np.bool_(True), True),
    "nothing": (None, None),
    "text": ("ä\0\n", "ä\0\n"),
}


@pytest.mark.parametrize("case", CARRIED)
def test_an_argument_is_carried_with_its_type(case: str) -> None:
    value, expected = CARRIED[case]
    in_environment = made(trial({"given": value}))["given"]
    in_agent = learner({"given": [value]})["given"]  # one value, no sweep
    assert repr(in_environment) == repr(in_agent) == repr(expected)


def test_a_tuple_is_a_sweep_where_a_setting_has_a_type_and_a_value_for_an_agent() -> None:
    of_search = esbench.expand(
        {"environments": ["Keeps-v0"], "algorithms": {"snes": {"sigma": (0.1, 0.2)}}}
    )
    assert len({each.spec.hash for each in of_search if each.spec.seed == 0}) == 2
    assert learner({"given": (1, 2), "goal": [[3, 4]]}) == {"given": (1, 2), "goal": (3, 4)}
    name = f"{__name__}:Learns"
    with esbench.make_trainer(name, env="Keeps-v0", workers=1, given=(1, [2])) as trainer:
        assert learner(trainer.spec.algorithm.settings.model_extra or {})["given"] == (1, [2])


class Steps(torch.optim.SGD):
    def __init__(self, params: Any, lr: float, betas: Any = (1, 2), given: Any = None) -> None:
        assert isinstance(betas, tuple)
        assert given == (1, [2])
        super().__init__(params, lr)


class FreeSettings(DeviationSettings):
    anything: Any = None
    numbers: tuple[int, ...] = ()


def test_the_settings_of_a_search_keep_tuples_or_refuse_them() -> None:
    settings = {"betas": [3, 4], "given": (1, [2])}
    make = functools.partial(esbench.make_algorithm, num_params=2)
    make("openai_es", optimizer=Steps, optimizer_settings=settings)
    assert parse(
        FreeSettings, {"sigma": 0.1, "numbers": (1, 2), "anything": [1]}, "it"
    ).numbers == (1, 2)
    with pytest.raises(UsageError, match=r"anything = .*expected a list, or a type such as"):
        parse(FreeSettings, {"sigma": 0.1, "anything": {"a": [(1, 2)]}}, "it")


REFUSED: dict[str, Any] = {
    "set": {1, 2},
    "frozenset": frozenset("a"),
    "bytes": b"a",
    "date": datetime.date(2026, 1, 2),
    "datetime": datetime.datetime(2026, 1, 2),
    "ndarray": np.ones((3, 3)),
    "datetime64": np.datetime64("2026-01-02"),
    "longdouble": np.longdouble(1),
    "PosixPath": Path("a"),
    "Color": Color.RED,
    "Size": Size.BIG,
    "Decimal": Decimal("0.1"),
    "complex": 1j,
    "range": range(3),
    "Point": Point(1, 2),
    "function": test_an_argument_is_carried_with_its_type,
}
PLACES: dict[str, Any] = {
    "environment.Keeps-v0.kwargs.given": lambda value: {"kwargs": {"given": value}},
    "environment.Keeps-v0.wrappers.x": lambda value: {
        "kwargs": {},
        "environment": {"Keeps-v0": {"wrappers": [{"wrapper": "a:B", "x": value}]}},
    },
    "algorithms.snes.sigma": lambda value: {"kwargs": {}, "algorithms": {"snes": {"sigma": value}}},
    "Learns.x": lambda value: {"kwargs": {}, "algorithms": {f"{__name__}:Learns": {"x": value}}},
    "mine.x": lambda value: {
        "kwargs": {},
        "algorithms": {"mine": {"algorithm": f"{__name__}:Learns", "x": value}},
    },
    "policy.x": lambda value: {"kwargs": {}, "policy": {"template": "a:B", "x": value}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", REFUSED)
def test_an_argument_that_json_cannot_hold_is_named_with_its_type(place: str, kind: str) -> None:
    if place == "algorithms.snes.sigma" and kind in {"PosixPath", "Point"}:
        return  # settings of a search have types
    with pytest.raises(UsageError) as refused:
        trial(**PLACES[place](REFUSED[kind]))
    (sentence,) = str(refused.value).splitlines()
    assert place in sentence
    assert kind in sentence


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("-inf")])
@pytest.mark.parametrize("place", PLACES)
def test_an_infinite_argument_is_refused(place: str, value: Any) -> None:
    with pytest.raises(UsageError, match="expected a finite number"):
        trial(**PLACES[place]([value]))


@pytest.mark.parametrize("key", [1, None, (1, 2), True, Color.RED])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match=r"kwargs\.given has the key .*expected text"):
        trial({"given": {key: 1}})


def test_a_list_becomes_a_tuple_where_the_parameter_is_one(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        "environments = ['Keeps-v0']\nalgorithms = ['snes']\nenvironment.Keeps-v0.kwargs = "
        "{ goal = [0, 1], size = [2, 3], given = [{ tuple = [4, 5] }] }"
    )
    spec = open_grid(str(tmp_path / "grid.toml"), out=tmp_path)[1][0].spec
    assert made(spec) == {"goal": (0, 1), "size": (2, 3), "given": [(4, 5)]}


def test_a_table_without_tuples_has_the_hash_that_it_had() -> None:
    table = {"goal": [0, 2], "size": None, "given": {"a": [1, [2.5]]}}
    assert plain(table, own=True) == table
    assert trial(table).as_json()["environment"]["kwargs"] == table


class Images(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((8, 8, 3), np.uint8), {}


class Numbers(gymnasium.Env[Any, Any]):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Box(-1, 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.ones(2, np.float32), {}


# A wrapper of Gymnasium, its arguments in TOML, an environment and the shape of an observation.
WRAPPERS: list[tuple[str, str, Any, tuple[int, ...]]] = [
    ("ReshapeObservation", "shape = [64, 3]", Images, (64, 3)),
    ("ReshapeObservation", "shape = [192]", Images, (192,)),
    ("ReshapeObservation", "shape = { tuple = [8, 24] }", Images, (8, 24)),
    ("FrameStackObservation", "stack_size = 2\npadding_type = 'zero'", Images, (2, 8, 8, 3)),
    ("GrayscaleObservation", "keep_dim = true", Images, (8, 8, 1)),
    ("DiscretizeAction", "bins = [3]", Images, (8, 8, 3)),
    ("DiscretizeAction", "bins = 3", Images, (8, 8, 3)),
    ("DiscretizeObservation", "bins = [3, 4]", Numbers, ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "make", "shape"), WRAPPERS)
def test_a_wrapper_of_gymnasium_takes_lists(
    name: str, arguments: str, make: Any, shape: tuple[int, ...]
) -> None:
    settings = {**tomllib.loads(arguments), "wrapper": f"gymnasium.wrappers:{name}"}
    env = wrapped(make(), (parse(WrapperSettings, settings, "a grid"),))
    assert env.observation_space.shape == shape
    assert np.shape(env.reset(seed=1)[0]) == shape


def _tuples_of_wrappers() -> list[tuple[str, str]]:
    """The wrappers of Gymnasium and their parameters that take a tuple; one may need OpenCV."""
    found = []
    for name in sorted(gymnasium.wrappers.__all__):
        with contextlib.suppress(ImportError):
            wrapper = getattr(gymnasium.wrappers, name)
            known = inspect.signature(wrapper).parameters if isinstance(wrapper, type) else {}
            found += [(name, key) for key, each in known.items() if "tuple[" in str(each)]
    return found


@pytest.mark.parametrize(("name", "parameter"), _tuples_of_wrappers())
def test_a_wrapper_of_gymnasium_gets_a_tuple_for_a_list(name: str, parameter: str) -> None:
    wrapper = getattr(gymnasium.wrappers, name)
    for given in ([3, 4], {"tuple": [3, 4]}):
        assert received(wrapper, {parameter: given}) == {parameter: (3, 4)}
    assert received(wrapper, {parameter: 3}) == {parameter: 3}


def test_what_is_received_is_a_copy() -> None:
    arguments = {"a": [1, {"b": []}], "c": {"tuple": [[2]]}}
    found = received(lambda **_: None, arguments)
    assert found == {"a": [1, {"b": []}], "c": ([2],)}
    found["a"][1]["b"].append(0)
    assert arguments["a"] == [1, {"b": []}]
