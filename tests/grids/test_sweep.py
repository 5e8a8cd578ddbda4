"""A list in an algorithm's table is the same as one table per value, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial, grid_trials, open_grid
from esbench.grids.grid_file import parse_grid


def trials_of(algorithms: dict[str, Any], **table: Any) -> list[Trial]:
    base = {"name": "t", "environments": ["CartPole-v1"], "seeds": [0, 1]}
    grid = parse_grid({**base, "algorithms": algorithms, **table}, "t.toml")
    return grid_trials(grid, Path("out"), "t.toml")


def specs(trials: list[Trial]) -> dict[tuple[str, int], str]:
    return {(trial.labels["algorithm"], trial.spec.seed): trial.spec.hash for trial in trials}


def values(trials: list[Trial], *keys: str) -> list[Any]:
    settings = [trial.spec.as_json()["algorithm"]["settings"] for trial in trials]
    return [tuple(each[key] for key in keys) for each in settings[::2]]  # two seeds each


def test_two_lists_are_the_product_and_each_has_the_trials_of_its_own_table() -> None:
    swept = {"learning_rate": [0.02, 1], "shaping": ["raw", "nes"], "population_size": 8}
    tables = {
        f"wide learning_rate={rate} shaping={shaping}": {
            "algorithm": "openai_es", "learning_rate": rate, "shaping": shaping,
            "population_size": 8,
        }
        for rate in (0.02, 1) for shaping in ("raw", "nes")
    }  # fmt: skip
    trials = trials_of({"wide": {"algorithm": "openai_es", **swept}, "snes": {}})
    assert specs(trials) == specs(trials_of({**tables, "snes": {}}))
    assert str(trials[0].folder.path) == (
        "out/CartPole-v1/wide_learning_rate_0.02_shaping_raw/seed-0"
    )


def test_a_nested_list_is_one_value_and_a_list_of_one_value_is_no_sweep() -> None:
    trials = trials_of({"openai_es": {"sigma": [[0.1, 0.2]], "center_init": [[1, 2], 3]}})
    assert values(trials, "sigma", "center_init") == [([0.1, 0.2], [1, 2]), ([0.1, 0.2], 3)]
    assert {t.labels["algorithm"] for t in trials} == {
        "openai_es center_init=[1.0,2.0]", "openai_es center_init=3"
    }  # fmt: skip
    (label, _), *_ = specs(trials_of({"openai_es": {"learning_rate": [0.5]}}))
    assert label == "openai_es"


@pytest.mark.parametrize(
    ("value", "one"),
    [([1, "episode"], '[[1, "episode"]]'), (["episode", 4], '[["episode", 4]]')],
)
def test_a_sweep_that_was_to_be_one_value_is_told_how_to_write_it(
    value: list[Any], one: str
) -> None:
    pytest.importorskip("stable_baselines3")
    with pytest.raises(UsageError) as refused:
        trials_of({"sac": {"train_freq": value}}, environments=["Pendulum-v1"])
    assert "a list is a sweep" in str(refused.value)
    assert one in str(refused.value)
    (trial, _) = trials_of({"td3": {"train_freq": [[1, "episode"]]}}, environments=["Pendulum-v1"])
    assert trial.spec.as_json()["algorithm"]["settings"]["train_freq"] == [1, "episode"]


def test_tables_and_long_values_are_swept_too() -> None:
    settings = [{"momentum": 0.5}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.001}]
    trials = trials_of({"openai_es": {"optimizer": "sgd", "optimizer_settings": settings}})
    assert values(trials, "optimizer_settings") == [(settings[0],), (settings[1],)]
    short, long = dict.fromkeys(t.labels["algorithm"] for t in trials)
    assert short == 'openai_es optimizer_settings={"momentum":0.5}'
    assert len(long) < 50


def test_an_environments_own_value_replaces_the_sweep_or_is_one() -> None:
    own = {"Acrobot-v1": {"algorithms": {"openai_es": {"sigma": 0.3, "learning_rate": [1, 2]}}}}
    trials = trials_of(
        {"openai_es": {"sigma": [0.1, 0.2]}},
        environments=["CartPole-v1", "Acrobot-v1"],
        environment=own,
    )
    labels = [(t.spec.environment.id, t.labels["algorithm"]) for t in trials[::2]]
    assert labels == [
        ("CartPole-v1", "openai_es sigma=0.1"),
        ("CartPole-v1", "openai_es sigma=0.2"),
        ("Acrobot-v1", "openai_es learning_rate=1"),
        ("Acrobot-v1", "openai_es learning_rate=2"),
    ]


def test_a_sweep_on_the_command_line() -> None:
    trials = open_grid(
        None,
        environments=["CartPole-v1"],
        algorithms=["openai_es"],
        overrides=["algorithms.openai_es.sigma=[0.05, 0.1]"],
    )[1]
    assert [label for label, seed in specs(trials) if seed == 0] == [
        "openai_es sigma=0.05", "openai_es sigma=0.1"
    ]  # fmt: skip
