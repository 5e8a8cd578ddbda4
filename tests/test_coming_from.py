"""The names and the differences on the page for users of other libraries."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pepg
import pytest

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.grids.environment_files import EnvironmentFile
from esbench.grids.trial_spec import BudgetSpec
from esbench.policies.policy import POLICIES
from esbench.store.generation_record import GenerationRecord

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "coming-from.md"
P, N, SIGMA = 5, 40, 0.05


def names() -> set[str]:
    """The settings, keys of a grid, algorithms, policies and columns of esbench."""
    models: list[Any] = [
        *(ALGORITHMS.get(name).Settings for name in ALGORITHMS.names()),
        *(POLICIES.get(name).Settings for name in POLICIES.names()),
        EnvironmentFile, BudgetSpec,
    ]  # fmt: skip
    settings = {name for model in models for name in model.model_fields}
    columns = set(GenerationRecord.__dataclass_fields__)
    own = {"algorithm", "kwargs", "screen_size", "stack_size", "template"}
    return settings | columns | own | {*esbench.list_algorithms(), *esbench.list_policies()}


def test_every_setting_on_the_right_exists() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    right = " ".join(cells[1] for cells in rows if len(cells) == 3)
    code = r"`(?:(?:policy|environment|budget)\.)?([a-z][a-z_]*)(?: = [^`(]*)?`"
    found = re.findall(code, right)
    assert len(found) > 80
    assert set(found) - names() == {"make_algorithm", "make_trainer"}


def step(shaping: str = "centered") -> tuple[Any, Any, Any]:
    """A step of plain gradient ascent, the members less the center, and their ranks."""
    settings: dict[str, Any] = {
        "population_size": N, "sigma": SIGMA, "optimizer": "sgd", "learning_rate": 1.0,
        "weight_decay": 0.0, "shaping": shaping,
    }  # fmt: skip
    search = esbench.make_algorithm("openai_es", num_params=P, seed=1, **settings)
    population = search.ask()
    noise = population.members()
    returns = -((noise - 1.0) ** 2).sum(axis=1)
    search.tell(population, returns)
    return search.center, noise, returns.argsort().argsort()


def test_the_gradient_has_the_scale_of_estorch_and_es_torch() -> None:
    moved, noise, ranks = step()
    theirs = (ranks / (N - 1) - 0.5) @ noise / (N * SIGMA)  # their noise has deviation sigma
    np.testing.assert_allclose(moved, theirs, rtol=1e-12)
    np.testing.assert_array_equal(noise[0::2], -noise[1::2])


def test_most_utilities_of_pytorch_es_are_equal() -> None:
    weights = [max(0.0, math.log(N / 2 + 1, 2) - math.log(k), 2.0) for k in range(1, N + 1)]
    assert np.flatnonzero(np.array(weights) == 2.0)[0] == 10


@pytest.mark.parametrize("name", ["pepg", "openai_es"])
def test_equal_returns_move_pepg_es_but_nothing_here(name: str) -> None:
    theirs = pepg.PEPG(N, P, 0.0, SIGMA, 0.3, 0.2, l2_coeff=0.0)
    parameters = theirs.get_parameters()
    np.testing.assert_array_equal(parameters[: N // 2], -parameters[N // 2 :])
    theirs.update([0.0] * N)
    assert np.abs(theirs.mu).max() > 0.1
    ours = esbench.make_algorithm(name, num_params=P, population_size=N)
    ours.tell(ours.ask(), [0.0] * N)
    assert not ours.center.any()
