"""Search spaces: what algorithms declare, what a grid changes, and what is refused."""

import itertools
from typing import Any

import pytest
from fake_search import GRID

from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import UsageError
from esbench.core.search_space import SettingSpace
from esbench.grids.expand import expand, with_settings
from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import TrialSpec
from esbench.tuning.space import is_integer, nested, search_space, values_of

OWN = ALGORITHMS.builtin_names()


def spec_of(algorithm: str, **settings: Any) -> TrialSpec:
    grid = parse_grid({**GRID, "algorithms": {algorithm: settings}}, "test")
    return expand(grid, "test")[0].spec


def corners(space: dict[str, SettingSpace], integers: set[str]) -> list[dict[str, Any]]:
    """All combinations of the ends of ranges and of the first and last choice."""
    ends: list[list[Any]] = [
        [s.choices[0], s.choices[-1]]
        if s.choices
        else [int(e or 0) if name in integers else e for e in (s.low, s.high)]
        for name, s in space.items()
    ]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*ends)]


@pytest.mark.parametrize("name", OWN)
def test_every_corner_of_a_declared_space_is_a_valid_trial(name: str) -> None:
    spec = spec_of(name)
    model = type(spec.algorithm.settings)
    space = search_space(model, {}, "test", name)
    assert 2 <= len(space) <= 7
    integers = {name for name in space if is_integer(model, name)}
    known = values_of(spec.algorithm.settings)
    for corner in corners(space, integers):
        values = {k: v for k, v in corner.items() if space[k].is_active({**known, **corner})}
        found = values_of(with_settings(spec, nested(values), "test").algorithm.settings)
        assert {key: found[key] for key in values} == values


def test_a_setting_displaces_its_alternatives_and_decides_about_normalization() -> None:
    changed = with_settings(spec_of("openai_es", radius=1.0), {"sigma": 0.3}, "test")
    assert values_of(changed.algorithm.settings)["radius"] is None
    plain = with_settings(spec_of("ars"), {"version": "V1-t"}, "test")
    assert plain.policy is not None
    assert not plain.policy.settings.normalize_observations


def test_a_grid_replaces_adds_and_removes_settings() -> None:
    table = {
        "sigma": {"low": 0.1, "high": 0.2},
        "population_size": [8, 10],
        "weight_decay": False,
        "optimizer": ["adam", "sgd"],
        "optimizer_settings": {"nesterov": [True, False]},
    }
    space = search_space(ALGORITHMS.get("openai_es").Settings, table, "test", "openai_es")
    assert (space["sigma"].low, space["sigma"].log) == (0.1, False)
    assert space["population_size"].choices == (8, 10)
    assert "weight_decay" not in space
    assert space["optimizer_settings.nesterov"].choices == (True, False)
    *_, last = space  # after the settings that its condition names
    assert last == "optimizer_settings.momentum"
    assert not space[last].is_active({"optimizer": "adam"})
    assert space[last].is_active({"optimizer": "sgd"})


def test_a_condition_may_depend_on_another_one() -> None:
    settings = ALGORITHMS.get("openai_es").Settings
    sgd, decays = {"optimizer": "sgd"}, {"sigma_decay": 0.99}
    table: dict[str, Any] = {
        "optimizer": ["adam", "sgd"],
        "sigma_min": {"low": 0.001, "high": 0.01, "when": decays},
        "sigma_decay": {"choices": [0.99, 0.999], "when": sgd},
    }
    order = list(search_space(settings, table, "test", "openai_es"))
    places = [order.index(name) for name in ("optimizer", "sigma_decay", "sigma_min")]
    assert places == sorted(places)
    table["sigma_decay"]["when"] = {"sigma_min": 0.001}
    with pytest.raises(UsageError, match=r"sigma_(min|decay), sigma_(min|decay) depend"):
        search_space(settings, table, "test", "openai_es")


@pytest.mark.parametrize(
    ("setting", "value", "facts"),
    [
        ("sgma", [0.1, 0.2], ("sgma", "'sigma'")),
        ("sigma", {"low": -1.0, "high": 1.0}, ("sigma", "-1", "greater than 0")),
        ("sigma", {"low": 0.5, "high": 0.1}, ("sigma", "0.5", "0.1")),
        ("sigma", 0.1, ("sigma", "0.1")),
        ("population_size", {"low": 1.5, "high": 8.0}, ("population_size", "1.5", "integer")),
        ("shaping", ["raw", "centred"], ("shaping", "centred", "'centered'")),
        ("sigma", {"low": 0.1, "high": 1.0, "when": {"optimiser": "sgd"}}, ("'optimizer'",)),
    ],
)
def test_wrong_spaces_are_refused_in_one_sentence(
    setting: str, value: Any, facts: tuple[str, ...]
) -> None:
    model = ALGORITHMS.get("openai_es").Settings
    with pytest.raises(UsageError) as error:
        search_space(model, {setting: value}, "my.toml", "openai_es")
    message = str(error.value)
    assert "\n" not in message
    assert all(fact in message for fact in ("my.toml", *facts))


def test_an_algorithm_without_anything_to_search_is_refused() -> None:
    table = dict.fromkeys(("population_size", "sigma"), False)
    with pytest.raises(UsageError, match="csa_es"):
        search_space(ALGORITHMS.get("csa_es").Settings, table, "my.toml", "csa_es")
