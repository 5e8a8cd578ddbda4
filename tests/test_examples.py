"""The examples in the docstrings of the public names, run one after another in one folder."""

import doctest
import inspect
from collections.abc import Iterator

import pytest

import esbench

FUNCTIONS = [
    name
    for name in esbench.__all__
    if inspect.isfunction(getattr(esbench, name)) and not name.startswith("register_")
]

NAMES = {"esbench": esbench} | {name: getattr(esbench, name) for name in esbench.__all__}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder with trials in "out" and their baseline, which the examples name."""
    small = {"population_size": 4}  # a generation takes no more steps than the budget
    grid = {"environments": ["CartPole-v1"], "algorithms": {"openai_es": small, "snes": small}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("examples"))
        options = {"seeds": [0, 1, 2], "env_steps": 2_000, "record": "members"}
        esbench.run(grid, out="out", quiet=True, **options)
        esbench.baseline("out", out="frozen.json")
        yield


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_examples_of_a_public_function_run(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(
        getattr(esbench, name), name, globs=dict(NAMES)
    )
    examples = [example for test in found for example in test.examples]
    assert examples, f"esbench.{name} has no example"
    for test in found:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test).failed == 0
