"""The names on the page for users of other libraries."""

import re
from typing import Any

from checkout import ROOT

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.grids.environment_files import EnvironmentFile
from esbench.grids.trial_spec import BudgetSpec, trainer_settings
from esbench.policies.policy import POLICIES
from esbench.store.generation_record import GenerationRecord

PAGE = ROOT / "docs" / "how-to" / "coming-from.md"


def names() -> set[str]:
    """The settings, keys of a grid, algorithms, policies and columns of esbench."""
    models: list[Any] = [
        *(ALGORITHMS.get(name).Settings for name in ALGORITHMS.names()),
        *(POLICIES.get(name).Settings for name in POLICIES.names()),
        *map(trainer_settings, ("ppo", "td3")),
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
