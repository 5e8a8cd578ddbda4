"""Values that no command and no function can use: one sentence, at once, with the value seen."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import files

import esbench as es
from esbench.algorithms.base import Algorithm
from esbench.core.errors import LONGEST_LINE, UsageError, shortened, suggestion
from esbench.engine.worker_pool import WorkerPool

LONG = "x" * 5000


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


def test_long_values_are_shortened_and_short_ones_are_kept() -> None:
    assert shortened("a b " * 10) == "a b " * 10
    text = shortened(f"unknown {LONG!r}; did you mean 'y'?")
    assert len(text) < 250
    assert text.startswith("unknown 'xxx")
    assert text.endswith("xxx'; did you mean 'y'?")
    assert len(shortened("ab " * 5000)) < LONGEST_LINE
    assert shortened(text) == text
    assert suggestion("x" * 10**7, ["a", "b"]) == "known: a, b"


NO_PATHS = {"huge": 10**5000, "a float": 1.5, "bytes": b"out", "a list": ["out"], "empty": ""}


@pytest.mark.parametrize("value", NO_PATHS.values(), ids=NO_PATHS)
@pytest.mark.parametrize("argument", ["out", "init_from"])
def test_a_value_that_is_no_path_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{argument} = .*expected a path"):
        es.make_trainer("openai_es", env="CartPole-v1", workers=1, **{argument: value})
    second, out = partial(es.compare, "a"), lambda path: es.plan("quick", out=path)
    for call in (es.table, es.run, es.load_results, second, out):
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


WALK: dict[str, Any] = {
    "environments": ["doubles:Walk-v0"],
    "algorithms": {"openai_es": {"population_size": 8}},
    "seeds": [0, 1],
    "budget": {"env_steps": 100},
    "evaluation": {"episodes": 2},
}
TRAINED: dict[str, Any] = {"algorithm": "openai_es", "env": "CartPole-v1"}
# A function, its arguments, and words of the refusal.
WRONG: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (make, {"seed": -1}, "seed = -1"),
    (make, {"seed": True}, "seed = True"),
    (make, {"center_init": math.nan}, "center_init = nan"),
    (make, {"center_init": [0, 0, 0, math.inf]}, "inf"),
    (make, {"center_init": "a"}, "center_init = 'a'"),
    (make, {"num_params": 4.5}, "num_params = 4.5"),
    (make, {"num_params": 10**12}, "num_params = 1000000000000"),
    (make, {"shapes": [[-2, -2]]}, "-2"),
    (make, {"shapes": "ab"}, "shapes = 'ab'"),
    (make, {"name": None}, "name = None"),
    (make, {"population_size": 10**5000}, "JSON"),
    (es.TargetReturn, {"target": math.nan}, "nan"),
    (es.TargetReturn, {"target": "a"}, "'a'"),
    (es.TargetReturn, {"target": 1.0, "window": 0}, "0"),
    (es.Stop, {"reason": 5}, "5"),
    (partial(WorkerPool, 1.5), {}, "1.5"),
    (partial(WorkerPool, 10**12), {}, "1000000000000"),
    (es.make_trainer, {**TRAINED, "budget": 3}, "budget"),
    (es.make_trainer, {**TRAINED, "seeds": (0, 1)}, "seeds"),
    (es.make_trainer, {**TRAINED, "environments": ("Acrobot-v1",)}, "environments"),
    (es.make_trainer, {**TRAINED, "out": "new", "engine": "ray"}, "engine = 'ray'.*RayEngine"),
    (es.run, {}, "nothing to run"),
    (es.run, {"grid": "quik"}, "quick"),
    *(
        (es.run, {"grid": WALK, **changes}, words)
        for changes, words in (
            ({"overrides": "budget.env_step=3"}, "env_steps"),
            ({"overrides": "budget.env_steps=3\nseed = 1"}, "env_steps"),
            (
                {"overrides": ["budget.target_return=9", "evaluation.center=false"]},
                "budget.target_return = 9.*evaluation.center = true",
            ),
            ({"keep": 0}, "keep"),
            ({"record": "member"}, "record = 'member'.*'members'"),
            ({"callback": 5}, "callback = 5"),
            ({"callback": print, "at_once": 2, "workers": 2}, "package.file:function"),
            ({"engine": "rya"}, "engine = 'rya'.*'ray'"),
            ({"track": "tensorbord"}, "'tensorboard'"),
            ({"overrides": 3}, "^overrides.* ="),
            ({"overrides": {"a": 1}}, "^overrides.* ="),
            ({"keep": "x"}, "^keep.* ="),
            ({"keep": 1.5}, "^keep.* ="),
            ({"at_once": "x"}, "^at_once.* ="),
            ({"shard": 3}, "^shard.* ="),
            ({"env": 3}, "^env.* ="),
            ({"algorithm": [3]}, "^algorithm.* ="),
            ({"seeds": []}, "^--seeds"),
            ({"set": "seeds=[0]"}, "'set' is called 'overrides'"),
        )
    ),
    (es.plan, {"grid": WALK, "set": "seeds=[0]"}, "'set' is called 'overrides'"),
    (partial(es.table, "quick"), {"in_": "results"}, "'in_' is called 'folder'"),
    (partial(es.check, "quick"), {"in_": "results"}, "'in_' is called 'folder'"),
    (partial(es.table, "out"), {"which": "bst"}, "which = 'bst'.*'best'"),
    (partial(es.merge, []), {"out": "new"}, "no folder given"),
    (partial(es.merge, "missing"), {"out": "new"}, "'missing'"),
]


@pytest.mark.parametrize(("function", "arguments", "words"), WRONG)
def test_wrong_arguments_are_refused_and_write_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., object],
    arguments: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        function(**arguments)
    assert not files(tmp_path)
