from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from esbench.results.statistics.curves import (
    ascent,
    mean_interval,
    signal_to_noise,
    trend,
    uniform_band,
    uniform_curve_band,
)
from esbench.results.statistics.health import MEASURES, RunMeasurements, climbs, findings

GENERATIONS = 40


def run(generations: int = GENERATIONS, **given: Any) -> RunMeasurements:
    """Return a run that stands still, and is not otherwise remarkable."""
    random = np.random.default_rng(0)
    noise = random.normal(size=generations)
    values = {
        "population_size": 20.0,
        "population_return_mean": noise / 10,
        "population_return_std": 1.0,
        "population_return_min": noise / 10 - 2,
        "population_return_max": noise / 10 + 2,
        "center_return": noise,
        "center_rank_fraction": np.linspace(0.3, 0.4, generations),
        "non_finite": 0.0,
        "sigma": 0.1,
        "update_norm": 0.3,
        "tied_returns": 0.0,
        "update_cosine": 0.9,
        "split_half_cosine": random.normal(0.2, 0.1, generations),
        "center_norm": 10.0,
        "distance": np.linspace(0.3, 6.0, generations),
        "observation_drift": 0.01,
        "episode_length_mean": 100.0,
        **given,
    }
    rows = {
        name: np.broadcast_to(np.asarray(values[name], np.float64), generations).copy()
        for name in MEASURES
    }
    rest = {key: value for key, value in given.items() if key not in rows}
    return RunMeasurements(rows, **{"num_params": 100.0, **rest})


def test_a_part_of_a_run_has_its_first_and_its_last_generation() -> None:
    part = run(sigma=np.arange(1.0, GENERATIONS + 1), num_params=7.0).part(3, 5)
    assert part["sigma"].tolist() == [3.0, 4.0, 5.0]
    assert (part.generations, part["center_return"].size, part.num_params) == (3, 3, 7.0)


def told(of: RunMeasurements) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings(of)}


@pytest.mark.parametrize(("members", "generations"), [(4, 10), (64, 10), (16, 100)])
def test_the_band_holds_as_many_uniform_ranks_as_it_says(members: int, generations: int) -> None:
    random = np.random.default_rng(0)
    means = random.integers(0, members + 1, (20_000, generations)).mean(axis=1) / members
    low, high = uniform_band(members, generations)
    assert low == pytest.approx(1 - high)
    assert np.mean((low <= means) & (means <= high)) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("members", "runs", "generations"),
    [(200, 1, 1), (32, 4, 1), (2, 3, 5), (20, 10, 12), (20, 8, 13)],
)
def test_the_band_of_a_curve_holds_as_many_points_as_it_says(
    members: int, runs: int, generations: int
) -> None:
    random = np.random.default_rng(1)
    ranks = random.integers(0, members + 1, (runs, 20_000, generations)).mean(axis=2) / members
    points = stats.trim_mean(ranks, 0.25, axis=0)
    low, high = uniform_curve_band(members, runs, generations)
    assert np.mean((low <= points) & (points <= high)) == pytest.approx(0.95, abs=0.02)


def test_the_trend_is_the_median_slope() -> None:
    slope, low, high = trend(np.array([0.0, 1.0, math.nan, 3.0, 100.0]))
    # Of the pairs: 1, 1, 25, 1, 33 and 97, by their distance in generations.
    assert slope == pytest.approx(np.median([1, 1, 25, 1, 33, 97]))
    assert low <= slope <= high
    assert all(map(math.isnan, trend(np.array([1.0, math.nan, 2.0]))))


def test_the_interval_of_a_mean_is_students_and_the_ratio_is_spearman_and_browns() -> None:
    values = np.array([1.0, 2.0, math.nan, 4.0])
    expected = stats.ttest_1samp(values[[0, 1, 3]], 0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((7 / 3, expected.low, expected.high))
    np.testing.assert_equal(mean_interval(np.array([2.0])), (2.0, math.nan, math.nan))
    # The signal-to-noise ratio is Spearman and Brown's.
    r = 0.5  # of the halves; of the whole 2r / (1 + r) = 2/3, so signal to noise is 2/3 to 1/3
    assert signal_to_noise(r) == pytest.approx(2.0)
    assert signal_to_noise(1.0) == math.inf


def test_an_ascent_is_the_share_of_the_way_that_led_upwards() -> None:
    assert ascent(np.arange(10.0)) == 1.0
    assert ascent(-np.arange(10.0)) == -1.0
    # The path begins with the first value again: up 4, down 2, up 4.
    assert ascent(np.array([0.0, 4.0, 2.0, 6.0])) == pytest.approx(6 / 10)
    assert math.isnan(ascent(np.zeros(10)))
    fallen = np.concatenate([[0.0], np.linspace(-100, -50, 99)])
    assert ascent(fallen) < 0  # it climbs, but not to where it came from


def test_a_run_that_stands_still_is_only_described() -> None:
    assert told(run(**NOT_RECORDED)) == {"unclear": "ok"}
    assert told(run()) == {"unclear": "ok", "rank": "ok", "signal_to_noise": "ok"}
    assert not climbs(run())


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        # Solved, with a fall in between.
        ([10.0, *[400.0] * 9, *[50.0] * 5, *[500.0] * 14], "higher than it began, with large"),
        ([10.0, *[500.0, 100.0] * 12, *[500.0] * 4], "not clearly risen.*usually changes by 400"),
    ],
)
def test_a_last_tenth_far_above_the_first_generation_is_explained(
    returns: list[float], words: str
) -> None:
    found = {each.name: each for each in findings(run(29, center_return=returns))}
    finding = found["unclear"]
    assert re.search(words, finding.sentence)
    assert "is 10 in the first generation and 500 in the last tenth" in finding.sentence


def test_a_short_run_is_not_judged() -> None:
    (only,) = findings(run(9, non_finite=20.0))
    assert (only.name, only.level) == ("too_short", "note")
    assert "9 generations" in only.sentence
    assert findings(run(0))[0].name == "too_short"


RISING = np.linspace(0.0, 50.0, GENERATIONS)
SICK: dict[str, dict[str, Any]] = {
    "learning_rate_too_large": {"update_norm": 10.0},  # of a radius of 1, and parameters of 1
    "sigma_too_small": {"sigma": 1e-5, "update_norm": 0.03},
    "learning_rate_too_small": {"update_norm": 1e-5, "distance": 1e-4},
    "sigma_too_large": {"sigma": 100.0, "distance": 6.0},
    "constant_reward": {"population_return_min": 3.0, "population_return_max": 3.0},
    "no_information": {
        "center_rank_fraction": np.random.default_rng(1).integers(0, 21, GENERATIONS) / 20,
        "split_half_cosine": np.random.default_rng(1).normal(0, 0.1, GENERATIONS),
        "center_return": np.random.default_rng(2).normal(0, 0.1, GENERATIONS),
    },
    "tied_returns": {"tied_returns": 0.95},
}


@pytest.mark.parametrize("name", SICK)
def test_a_sickness_is_told_only_of_a_run_that_does_not_climb(name: str) -> None:
    sick = SICK[name]
    assert told(run(**sick))[name] == "warning"
    assert list(told(run(**sick)).values()).count("warning") == 1
    assert "warning" not in told(run(**sick | {"center_return": RISING})).values()
    assert "warning" not in told(run(**sick, seeks_returns=False)).values()


NOT_RECORDED = dict.fromkeys(
    ("tied_returns", "update_cosine", "split_half_cosine", "center_norm", "distance",
     "observation_drift", "center_return", "center_rank_fraction"), math.nan,
)  # fmt: skip
FIRST = np.where(np.arange(GENERATIONS) < 0.8 * GENERATIONS, 0.0, 0.5)
FALLEN = np.concatenate([[90.0], np.linspace(0.0, 4.0, GENERATIONS - 1)])
SOLVED = {
    "center_return": RISING,
    "population_return_min": np.where(RISING < 38, 0.0, 50.0),
    "population_return_max": np.where(RISING < 38, 40.0, 50.0),
}


@pytest.mark.parametrize(
    ("name", "level", "given"),
    [
        # Each of its signs is needed.
        ("learning_rate_too_large", None, {"update_norm": 2.0}),
        ("learning_rate_too_small", None, {"update_norm": 0.02}),
        ("sigma_too_large", None, {"distance": 400.0, "update_norm": 9.5}),
        ("sigma_too_large", "warning", {"sigma": 100.0, "distance": 400.0}),  # moved before
        ("constant_reward", None, {"population_return_min": np.arange(GENERATIONS) * 1.0}),
        ("no_information", None, {"center_rank_fraction": np.linspace(0.3, 0.7, GENERATIONS)}),
        ("no_information", None, {"split_half_cosine": np.linspace(0.1, 0.2, GENERATIONS)}),
        ("tied_returns", None, {"tied_returns": 0.8}),
        # Steps are only judged where their length is set.
        ("learning_rate_too_large", None, {"has_learning_rate": False}),
        ("learning_rate_too_small", None, {"has_learning_rate": False}),
        ("unclear", "ok", {"sigma": 0.0}),  # such as of members that are all equal
        # A center that nothing beats is sick if it takes steps, unlike that of random search.
        ("unclear", "ok", {"center_rank_fraction": FIRST, "update_norm": 0.0}),
        # Nothing is claimed of what was not recorded.
        ("unclear", "ok", {"num_params": math.nan, "update_norm": 10.0}),
        ("learning_rate_too_large", "warning", {**NOT_RECORDED, "update_norm": 10.0}),
        ("not_finite", "warning", {"non_finite": 1.0, "center_return": RISING}),
        ("not_finite", None, {"non_finite": 0.5}),
        ("observation_drift", "note", {"observation_drift": 0.5}),
        ("observation_drift", None, {"observation_drift": np.where(RISING < 25, 5.0, 0.01)}),
        ("falling", "note", {"center_return": -RISING, "population_return_mean": -RISING}),
        # It falls at once and then rises slowly: by thirds it would rise.
        ("falling", "note", {"center_return": FALLEN, "population_return_mean": FALLEN}),
        ("sigma_too_large", "warning", {"center_rank_fraction": FIRST}),
        ("climbing", "ok", {"center_return": -RISING, "population_return_mean": RISING}),
        ("solved", "ok", SOLVED),
    ],
)
def test_what_is_told(name: str, level: str | None, given: dict[str, Any]) -> None:
    sick = SICK.get(name, {}) if level is None else {}
    assert told(run(**sick | given)).get(name) == level


def test_that_nothing_can_be_seen_means_little_in_few_generations() -> None:
    few = {key: values[:29] for key, values in SICK["no_information"].items()}
    assert "no_information" not in told(run(29, **few))


@pytest.mark.parametrize("members", [4, 16, 64])
@pytest.mark.parametrize("generations", [30, 1000])
def test_uniform_ranks_are_seen_in_populations_and_runs_of_any_size(
    members: int, generations: int
) -> None:
    found = 0
    for seed in range(10):
        random = np.random.default_rng([seed, members, generations])
        places = random.integers(0, members + 1, generations)
        noise = {
            "population_size": float(members),
            "center_rank_fraction": places / members,
            "split_half_cosine": random.normal(0, 0.1, generations),
            "center_return": 0.1 * np.sin(np.arange(generations)),
        }
        found += "no_information" in told(run(generations, **noise))
    assert found >= 6  # also needed: a mean rank and a cosine as usual by chance


def test_a_single_member_is_no_constant_reward() -> None:
    alone = {**SICK["constant_reward"], "population_size": 1.0}
    assert "constant_reward" not in told(run(**alone))
    assert "solved" not in told(run(**alone, center_return=RISING))


# Episodes shrink from 60 steps to 8, and the return from 40 to 0: with a shift of 1, it rises.
ENDING: dict[str, Any] = {
    "reward_shift": 1.0,
    "episode_length_mean": np.linspace(60.0, 8.0, GENERATIONS),
    "population_return_mean": np.linspace(40.0, 0.0, GENERATIONS),
    "center_return": np.linspace(90.0, 0.0, GENERATIONS),
}


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, "warning"),
        # The mean of members that are far apart may rise although the center falls.
        ({"population_return_mean": np.linspace(-7.0, -1.0, GENERATIONS)}, "warning"),
        # Each of its signs is needed.
        ({"reward_shift": 0.0}, None),
        ({"seeks_returns": False}, None),
        ({"center_return": RISING}, None),
        ({"episode_length_mean": 60.0}, None),
        ({"population_return_mean": np.linspace(40.0, -40.0, GENERATIONS)}, None),
    ],
)
def test_a_policy_that_ends_its_episodes_because_steps_cost_is_told(
    given: dict[str, Any], level: str | None
) -> None:
    assert told(run(**ENDING | given)).get("ends_early") == level
