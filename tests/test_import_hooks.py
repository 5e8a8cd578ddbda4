import importlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import finished

from esbench.core import import_hooks

TABLE: dict[str, str] = json.loads(
    Path(import_hooks.__file__).with_name("moved_modules.json").read_text(encoding="utf-8")
)


def test_every_moved_module_has_a_new_place() -> None:
    assert [new for new in set(TABLE.values()) if find_spec(new) is None] == []


@pytest.mark.parametrize("old", ["esbench.api", "esbench.errors", "esbench.rollouts"])
def test_an_import_of_an_old_path_names_the_new_one(old: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{old} is now {TABLE[old]};"):
        importlib.import_module(old)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'esbench\.nosuch'"):
        importlib.import_module("esbench.nosuch")


@pytest.mark.parametrize("modules", ["esbench, gymnasium", "gymnasium, esbench"])
def test_gymnasium_knows_the_environments_in_either_order_of_imports(modules: str) -> None:
    code = f"import {modules}; print(gymnasium.make('esbench/Sphere-v0').action_space.shape)"
    assert finished("-W", "ignore", "-c", code) == (0, "(10,)\n", "")


def test_importing_esbench_does_not_import_gymnasium() -> None:
    code = "import esbench, sys; print('gymnasium' in sys.modules)"
    assert finished("-c", code) == (0, "False\n", "")
