"""Values that no command and no function can use: one sentence, at once, with the value seen."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, files

import esbench as es
from esbench.algorithms.base import Algorithm
from esbench.core.errors import LONGEST_LINE, UsageError, shortened, suggestion
from esbench.engine.worker_pool import WorkerPool

GRID = ["--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0", "--out", "new"]
LONG = "x" * 5000
CARTPOLE = 'environment."CartPole-v1"'


def options(*settings: str) -> list[str]:
    return [*GRID, *(each for setting in settings for each in ("--set", setting))]


REFUSED = {
    "a long environment": (["status", "--env", LONG, "--algorithm", "openai_es"], "environment"),
    "a long folder": (["table", LONG], "name too long"),
    "a dotted key": (["status", *options("policy." + ".".join("a" * 5000) + "=1")], "JSON"),
    "an integer": (["status", *options("evaluation.episodes=" + "9" * 5000)], "an integer"),
    "a population": (
        ["status", *options("algorithms.openai_es.population_size=1000000000000")],
        "1000000000000",
    ),
    "a behavior": (["status", *options(f'{CARTPOLE}.behavior="nope"')], "final_position"),
    "a value in place of a table": (
        ["status", *options("environment=''", "policy.template=linear")],
        "environment",
    ),
    "an empty path": (["check", "out", "--baseline", "b.json", "--markdown", ""], "--markdown"),
    "an agent": (["bench", "--algorithm", "ppo", "--rounds", "1"], "an agent"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_value_is_one_sentence_and_writes_nothing(
    esbench: Run, tmp_path: Path, case: str
) -> None:
    arguments, fact = REFUSED[case]
    code, out, err = esbench(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert len(err) < LONGEST_LINE
    assert fact in err
    assert not files(tmp_path)


def test_tables_that_are_nested_too_deeply_or_in_themselves() -> None:
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    for table in (cyclic, deep):
        with pytest.raises(UsageError, match="that JSON can hold"):
            es.make_trainer("openai_es", env="CartPole-v1", environment={"kwargs": table})


def make(**changes: Any) -> Algorithm[Any]:
    return es.make_algorithm(**{"name": "openai_es", "num_params": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"seed": -1}, "seed = -1"),
        ({"seed": True}, "seed = True"),
        ({"center_init": math.nan}, "center_init = nan"),
        ({"center_init": [0, 0, 0, math.inf]}, "inf"),
        ({"center_init": "a"}, "center_init = 'a'"),
        ({"num_params": 4.5}, "num_params = 4.5"),
        ({"num_params": 10**12}, "num_params = 1000000000000"),
        ({"shapes": [[-2, -2]]}, "-2"),
        ({"shapes": "ab"}, "shapes = 'ab'"),
        ({"name": None}, "name = None"),
        ({"population_size": 10**5000}, "JSON"),
    ],
)
def test_wrong_arguments_of_an_algorithm(changes: dict[str, Any], fact: str) -> None:
    with pytest.raises(UsageError, match=fact.replace("[", r"\[")):
        make(**changes)


def test_a_stale_population_is_refused() -> None:
    search = make()
    population = search.ask()
    returns = np.arange(len(population))
    search.tell(population, returns)
    before = search.state_dict()
    with pytest.raises(UsageError, match="generation 0.*generation 1"):
        search.tell(population, returns)
    with pytest.raises(UsageError, match="seed 7"):
        search.tell(make(seed=7).ask(), returns)
    for wrong in (None, [1.0] * len(population)):
        with pytest.raises(UsageError, match="ask"):
            search.tell(wrong, returns)  # type: ignore[type-var]
    np.testing.assert_equal(search.state_dict(), before)
    search.tell(search.ask().extended(len(population) + 2), np.arange(len(population) + 2))


@pytest.mark.parametrize("other", ["ars", "pgpe", "snes", "cma_es", "genetic", "random_search"])
def test_a_state_of_another_algorithm_changes_nothing(other: str) -> None:
    search, donor = make(), es.make_algorithm(other, num_params=4)
    donor.tell(population := donor.ask(), np.arange(len(population)))
    before = search.state_dict()
    unnamed = {key: value for key, value in donor.state_dict().items() if key != "algorithm"}
    unnamed.pop("optimizer", None)
    for state in (donor.state_dict(), unnamed, {}, None, {**before, "generation": "x"}):
        with pytest.raises(UsageError, match="state"):
            search.load_state_dict(state)  # type: ignore[arg-type]
        np.testing.assert_equal(search.state_dict(), before)


@pytest.mark.parametrize(
    "call",
    [
        lambda: es.TargetReturn(math.nan),
        lambda: es.TargetReturn("a"),  # type: ignore[arg-type]
        lambda: es.TargetReturn(1.0, 0),
        lambda: es.Stop(5),  # type: ignore[arg-type]
        lambda: WorkerPool(1.5),  # type: ignore[arg-type]
        lambda: WorkerPool(10**12),
        lambda: es.run("quick", overrides=3),  # type: ignore[arg-type]
        lambda: es.make_trainer("openai_es", env="CartPole-v1", budget=3),  # type: ignore[arg-type]
        lambda: es.make_trainer("openai_es", env="CartPole-v1", seeds=(0, 1)),
        lambda: es.make_trainer("openai_es", env="CartPole-v1", environments=("Acrobot-v1",)),
    ],
)
def test_wrong_arguments_of_other_functions(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()


def test_long_values_are_shortened_and_short_ones_are_kept() -> None:
    assert shortened("a b " * 10) == "a b " * 10
    text = shortened(f"unknown {LONG!r}; did you mean 'y'?")
    assert len(text) < 250
    assert text.startswith("unknown 'xxx")
    assert text.endswith("xxx'; did you mean 'y'?")
    assert len(shortened("ab " * 5000)) < LONGEST_LINE
    assert shortened(text) == text
    assert suggestion("x" * 10**7, ["a", "b"]) == "known: a, b"


NO_PATHS = {"huge": 10**5000, "a float": 1.5, "bytes": b"out", "a list": ["out"]}


@pytest.mark.parametrize("value", NO_PATHS.values(), ids=NO_PATHS)
@pytest.mark.parametrize("argument", ["out", "init_from"])
def test_a_value_that_is_no_path_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{argument} = .*expected a path"):
        es.make_trainer("openai_es", env="CartPole-v1", workers=1, **{argument: value})
    for call in (es.table, es.run, es.load_results, lambda path: es.compare(path, "b")):
        with pytest.raises(UsageError, match="expected a path"):
            call(value)


DEEP = ("x" * 200 + "/") * 20 + "y" * 67  # with "/trial.json", it is too long


@pytest.mark.parametrize(
    ("value", "why"),
    [("a\0b", "NUL"), ("x" * 300, "too long"), (LONG, "too long"), (DEEP, "."), ("\udc80x", ".")],
)
@pytest.mark.parametrize(
    "call",
    [
        es.table,
        es.load_policy,
        es.diagnose,
        lambda path: es.merge([path], out="out"),
        lambda path: es.merge(path, out="out"),
        lambda path: es.merge(["a"], out=Path(path)),
        lambda path: es.history(["a", path]),
        lambda path: es.compare("a", Path(path)),
    ],
)
def test_a_text_that_no_file_can_have_as_its_name_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[str], object],
    value: str,
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=why):
        call(value)
    assert not files(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"keep": "x"},
        {"keep": 1.5},
        {"at_once": "x"},
        {"shard": 3},
        {"overrides": {"a": 1}},
        {"env": 3},
        {"algorithm": [3]},
        {"seeds": []},
    ],
)
def test_the_function_run_refuses_values_of_another_type(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    (name,) = change
    with pytest.raises(UsageError) as refused:
        es.run("quick", out=tmp_path, **change)
    assert name in str(refused.value).partition("=")[0]
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (es.run, {"set": "seeds=[0]"}, "overrides"),
        (es.plan, {"set": "seeds=[0]"}, "overrides"),
        (es.table, {"in_": "results"}, "folder"),
        (es.check, {"in_": "results"}, "folder"),
    ],
)
def test_an_old_name_of_an_argument_is_refused_with_the_new_one(
    function: Callable[..., object], old: dict[str, Any], new: str
) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(old))!r} is called '{new}'"):
        function("quick", **old)
