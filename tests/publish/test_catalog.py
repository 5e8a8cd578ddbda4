import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from command_line import Run
from pydantic import Field

from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import UsageError
from esbench.core.settings import Settings, parse
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS
from esbench.experiment.trials import grid_trials
from esbench.grids.compose import compose_grid
from esbench.grids.environment_files import environment_names
from esbench.grids.grid_file import grid_names, parse_grid
from esbench.policies.policy import POLICIES
from esbench.publish.catalog import (
    REQUIRED,
    SettingRow,
    catalog,
    example,
    setting_rows,
    settings_of,
)

REGISTRIES: dict[str, Any] = {
    "algorithms": ALGORITHMS,
    "policies": POLICIES,
    "behaviors": BEHAVIORS,
}
NAMES = {
    **{kind: registry.names() for kind, registry in REGISTRIES.items()},
    "environments": environment_names(),
    "backends": BACKENDS.names(),
    "grids": grid_names(),
}
EVERY_NAME = [(kind, name) for kind in REGISTRIES for name in NAMES[kind]]


@pytest.mark.parametrize("kind", NAMES)
def test_everything_is_listed_with_one_line(kind: str) -> None:
    listed = list(catalog(kind))
    assert [entry.name for entry in listed] == list(NAMES[kind])
    assert listed
    for entry in listed:
        assert entry.text
        assert "\n" not in entry.text + entry.paper
        assert kind == "algorithms" or not entry.paper


@pytest.mark.parametrize(("kind", "name"), EVERY_NAME)
def test_settings_have_a_meaning_true_defaults_and_an_example_that_works(
    kind: str, name: str, tmp_path: Path
) -> None:
    try:
        cls = REGISTRIES[kind].get(name)
    except UsageError as error:
        pytest.skip(str(error))  # it needs a package that is not installed
    if kind == "algorithms":
        assert cls.paper or cls.__module__.partition(".")[0] != "esbench"
    rows = setting_rows(cls.Settings)
    for row in rows:
        assert row.meaning.endswith((".", "...")), row
        assert "[]" not in row.meaning
        assert "value" not in row.type, row
    required = {row.name: "x" for row in rows if row.default == REQUIRED}
    shown = {
        row.name: json.loads(row.default)
        for row in rows
        if row.default not in {"-", REQUIRED} and "." not in row.name
    }
    assert parse(cls.Settings, {**required, **shown}, "test") == parse(
        cls.Settings, required, "test"
    )
    if name == "module":
        return  # its example names a module that does not exist
    command, _, toml = example(kind, name, rows).replace("ENV", "CartPole-v1").partition("\n\n")
    algorithm = name if kind == "algorithms" else "openai_es"
    plain = {"name": "x", "environments": ["CartPole-v1"], "algorithms": {algorithm: {}}}
    assignments = [word for word in shlex.split(command)[3:] if word != "--set"]
    overridden, _ = compose_grid(plain, overrides=assignments)
    written = parse_grid({**plain, **tomllib.loads(toml)}, "example")
    assert overridden == written
    assert grid_trials(written, tmp_path, "example")


class Layer(Settings):
    width: int = 64
    """Its size [units]."""


class Model(Settings):
    steps: int
    """How far to go
    [environment steps]."""

    sigma: Annotated[float, Field(gt=0)] | tuple[Annotated[float, Field(gt=0)], ...] | None = 0.02
    """Deviation of the noise [parameter units]."""

    shaping: Literal["centered", "nes", "raw"] = "centered"
    """What returns are turned into, ranks in [0, 1]."""

    size: Annotated[int, Field(ge=2, lt=100)] | None = None
    """By default twice
    the number of parameters."""

    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=8)], ...], Field(min_length=1)] = (4, 4)
    """Of each layer [units]."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], float] = (0.9, 0.999)
    """Two of them."""

    label: Annotated[str, Field(pattern="^[a-z]")] | float = ""
    """Text or number."""

    bounds: dict[str, dict[str, Annotated[float, Field(le=1)]]] = Field(default_factory=dict)
    """By two names."""

    layer: Layer = Layer()
    """One."""

    layers: dict[str, Layer] = Field(default_factory=dict)
    """Several."""

    undocumented: list[Any] = Field(default_factory=list)


ROWS = [
    ("steps", "integer", "required", "environment steps", "How far to go."),
    ("sigma", "number > 0 or [number > 0, ...]", "0.02", "parameter units",
     "Deviation of the noise."),
    ("shaping", "centered | nes | raw", '"centered"', "",
     "What returns are turned into, ranks in [0, 1]."),
    ("size", "integer >= 2 and < 100", "-", "", "By default twice the number of parameters."),
    ("hidden", "[integer >= 1 and <= 8, ...] of length >= 1", "[4, 4]", "units", "Of each layer."),
    ("betas", "[number >= 0 and < 1, number]", "[0.9, 0.999]", "", "Two of them."),
    ("label", "string matching ^[a-z] or number", '""', "", "Text or number."),
    ("bounds", "table of table of number <= 1", "{}", "", "By two names."),
    ("layer", "table", '{"width": 64}', "", "One."),
    ("layer.width", "integer", "64", "units", "Its size."),
    ("layers", "table of table", "{}", "", "Several."),
    ("layers.NAME.width", "integer", "64", "units", "Its size."),
    ("undocumented", "[value, ...]", "[]", "", ""),
]  # fmt: skip


def test_a_row_has_type_default_unit_and_meaning() -> None:
    assert setting_rows(Model) == [SettingRow(*row) for row in ROWS]


def test_a_setting_that_is_overridden_keeps_its_meaning() -> None:
    class Other(Model):
        sigma: float = 0.5

    meaning = "Deviation of the noise."
    assert setting_rows(Other)[1] == SettingRow(
        "sigma", "number", "0.5", "parameter units", meaning
    )


def test_a_module_has_its_own_arguments_first(esbench: Run, tmp_path: Path) -> None:
    (tmp_path / "polynomial.py").write_text(
        "import torch\n"
        "class Polynomial(torch.nn.Module):\n"
        "    def __init__(self, inputs, outputs, degree: int = 2, name='x', *, root): ...\n"
        "number = 1\n"
    )
    code, out, _ = esbench("list", "--settings", "polynomial:Polynomial")
    assert code == 0
    assert 'template = "polynomial:Polynomial"' in out
    rows = settings_of("policies", "polynomial:Polynomial")
    assert [(row.name, row.type, row.default) for row in rows[:3]] == [
        ("degree", "integer", "2"),
        ("name", "string", '"x"'),
        ("root", "value", "required"),
    ]
    assert {"normalize_observations", "reference_size"} < {row.name for row in rows}
    assert not {"factory", "arguments"} & {row.name for row in rows}
    assert esbench("list", "policies", "--settings", "polynomial:number")[0] == 2


PLUGINS = {
    "hare": "import a_library_nobody_has.parts",
    "ox": "raise OSError('libox.so: cannot open')",
    "hen": """
from esbench.algorithms.base import Algorithm, register_algorithm

@register_algorithm("hen")
class Hen(Algorithm):
    '''Lays eggs.'''
""",
}
LISTED = {
    "hare": ("'a_library_nobody_has' is not installed", "pip install 'Zoo.Plugins[hare]'"),
    "ox": ("'zoo_ox:Ox' cannot be imported", "OSError: libox.so: cannot open"),
    "gone": ("'zoo_gone:Gone' cannot be imported", "No module named 'zoo_gone'"),
    "hen": ("Lays eggs.",),
}


def test_plugins_that_cannot_be_imported_are_listed_with_the_reason(
    install: Callable[..., None],
) -> None:
    lines = [f"{name} = zoo_{name}:{name.title()}" for name in [*PLUGINS, "gone"]]
    modules = {f"zoo_{name}": source for name, source in PLUGINS.items()}
    install(modules, "\n".join(["[esbench.algorithms]", *lines]), "Provides-Extra: hare\n")
    listed = {entry.name: entry for entry in catalog("algorithms")}
    for name, facts in LISTED.items():
        assert [fact for fact in facts if fact not in listed[name].text] == [], name
    assert listed["openai_es"].paper
    assert listed["hen"].paper == ""  # a plugin need not have one
    with pytest.raises(UsageError) as caught:
        settings_of("algorithms", "hare")
    assert str(caught.value) == f"algorithm 'hare': {listed['hare'].text}"
