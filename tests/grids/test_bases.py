"""A label starts from the table of its algorithm, and ``defaults`` from the code alone.

Each grid is compared with one that is written out in full.
"""

from typing import Any

import pytest

from esbench.grids import grid_file
from esbench.grids.compose import compose_grid
from esbench.grids.expand import expand
from esbench.grids.grid_file import grid_names

TUNED = {"population_size": 32, "sigma": 0.2, "learning_rate": 0.1, "weight_decay": 0.0}
ES = {"algorithm": "openai_es"}


def trained(algorithms: dict[str, Any], label: str, **changes: Any) -> dict[Any, Any]:
    """Environment and seed -> settings and policy of a label, in a grid of two environments."""
    options = {key: changes.pop(key) for key in ("overrides", "skip", "defaults") if key in changes}
    chosen = changes.pop("chosen", ())
    grid = {
        "seeds": [0],
        "environments": ["CartPole-v1", "Acrobot-v1"],
        "algorithms": algorithms,
        **changes,
    }
    return {
        (one.labels["environment"], one.spec.seed): (one.spec.algorithm, one.spec.policy)
        for one in expand(*compose_grid(grid, algorithms=chosen, **options))
        if one.labels["algorithm"] == label
    }


BASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "settings": (
        {"population_size": 64, "sigma": 0.02},
        {"sigma": 0.1},
        {"population_size": 64, "sigma": 0.1},
    ),
    "none": ({}, {"sigma": 0.1}, {"sigma": 0.1}),
    "an alternative": ({"radius": 2.0, "population_size": 8}, {"sigma": 1.0},
                       {"sigma": 1.0, "population_size": 8}),
    "a nested table": (
        {"optimizer": "sgd", "optimizer_settings": {"momentum": 0.5, "nesterov": True}},
        {"optimizer_settings": {"momentum": 0.25}},
        {"optimizer": "sgd", "optimizer_settings": {"momentum": 0.25, "nesterov": True}},
    ),
    "a policy": (
        {"policy": {"template": "linear"}},
        {"sigma": 0.1},
        {"policy": {"template": "linear"}, "sigma": 0.1},
    ),
    "a changed policy": (
        {"policy": {"template": "mlp", "hidden": [3]}},
        {"policy": {"activation": "relu"}},
        {"policy": {"template": "mlp", "hidden": [3], "activation": "relu"}},
    ),
    "another policy": (
        {"policy": {"template": "mlp", "hidden": [3]}},
        {"policy": {"template": "linear"}},
        {"policy": {"template": "linear"}},
    ),
    "seeds": ({"seeds": [4, 5]}, {"sigma": 0.1}, {"seeds": [4, 5], "sigma": 0.1}),
    "environments": (
        {"environments": ["Acrobot-v1"]},
        {"sigma": 0.1},
        {"environments": ["Acrobot-v1"], "sigma": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("chosen", [(), ("wide",)], ids=["all", "chosen alone"])
@pytest.mark.parametrize("kind", BASES)
def test_a_label_changes_only_what_it_names(kind: str, chosen: tuple[str, ...]) -> None:
    base, own, full = BASES[kind]
    found = trained({"openai_es": base, "wide": ES | own}, "wide", chosen=chosen)
    assert found == trained({"wide": ES | full}, "wide") != {}


@pytest.mark.parametrize("chosen", [(), ("wide",)], ids=["all", "chosen alone"])
@pytest.mark.parametrize(
    ("here", "full"),
    [
        ({"openai_es": {"sigma": 1.0, "weight_decay": 0.5}}, {"weight_decay": 0.5}),
        ({"openai_es": {"sigma": 1.0}, "wide": {"sigma": 3.0}}, {"sigma": 3.0}),
        ({"wide": {"weight_decay": 0.25}}, {"weight_decay": 0.25}),
    ],
)
def test_in_an_environment_a_label_starts_from_what_its_algorithm_has_there(
    here: dict[str, Any], full: dict[str, Any], chosen: tuple[str, ...]
) -> None:
    algorithms = {"openai_es": {"learning_rate": 0.5}, "wide": ES | {"sigma": 0.1}}
    own = {"Acrobot-v1": {"algorithms": here}}
    written = ES | {"learning_rate": 0.5, "sigma": 0.1}
    expected = trained({"wide": written}, "wide")
    expected |= trained({"wide": written | full, "x": ES}, "wide", environments=["Acrobot-v1"])
    assert trained(algorithms, "wide", chosen=chosen, environment=own) == expected


@pytest.mark.parametrize(
    ("changes", "population"),
    [
        ({"overrides": ["algorithms.openai_es.population_size=10"]}, 10),
        ({"overrides": ["algorithms.openai_es.population_size=10"], "skip": ["openai_es"]}, 10),
        ({"overrides": ["algorithms.wide.population_size=12"]}, 12),
        ({"overrides": ["algorithms.wide.population_size=12"], "chosen": ["wide"]}, 12),
    ],
)
def test_a_label_starts_from_what_set_makes_of_its_algorithm(
    changes: dict[str, Any], population: int
) -> None:
    algorithms = {"openai_es": {"population_size": 64}, "wide": ES | {"sigma": 0.1}}
    found = trained(algorithms, "wide", **changes).values()
    assert [vars(algorithm.settings)["population_size"] for algorithm, _ in found] == [
        population
    ] * 2


@pytest.mark.parametrize(
    "other", [{"algorithm": "ars"}, {"algorithm": "snes", "sigma": 0.5}], ids=str
)
def test_a_table_of_another_algorithm_is_no_base(other: dict[str, Any]) -> None:
    found = trained({"openai_es": other, "wide": ES}, "wide")
    assert found == trained({"wide": ES}, "wide")


@pytest.mark.parametrize("how", [{"defaults": True}, {"overrides": ["defaults=true"]}], ids=str)
def test_defaults_inherit_nothing_from_the_environments_file(how: dict[str, Any]) -> None:
    def settings(**changes: Any) -> dict[str, Any]:
        (one,) = expand(*compose_grid(None, ["CartPole-v1"], ["openai_es"], "0", **changes))
        values = one.spec.algorithm.settings.model_dump(include={*TUNED})
        assert one.inherited == (tuple(TUNED) if values == TUNED else ())
        return values

    model = type(
        expand(*compose_grid(None, ["CartPole-v1"], ["openai_es"], "0"))[0].spec.algorithm.settings
    )
    assert settings() == TUNED
    assert settings(**how) == {name: model.model_fields[name].get_default() for name in TUNED}


def test_the_named_grids_keep_the_specifications_of_published_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hashes() -> dict[str, list[str]]:
        return {
            name: [one.spec.hash for one in expand(*compose_grid(name, seeds="0"))]
            for name in grid_names()
        }

    found = hashes()
    monkeypatch.setattr(grid_file, "on_bases", lambda algorithms, here, _: (algorithms, here))
    assert hashes() == found
