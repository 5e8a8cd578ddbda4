"""Bounds of the deviation may be one number per parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from searches import P, climb, maker

from esbench.core.errors import UsageError

LOW, HIGH = np.linspace(0.05, 0.18, P), np.linspace(0.21, 0.3, P)


@pytest.mark.parametrize("name", ["pgpe", "pepg", "snes", "cem"])
def test_every_deviation_stays_within_its_own_bounds(name: str) -> None:
    faster = {} if name == "cem" else {"sigma_learning_rate": 5.0}
    make = maker(name, sigma=0.2, **faster)
    searches = [
        make(sigma_min=LOW.tolist(), sigma_max=HIGH.tolist()),
        make(sigma_min=[0.15] * P, sigma_max=[0.25] * P),
        make(sigma_min=0.15, sigma_max=0.25),
    ]
    for algorithm in searches:
        climb(algorithm, 30)
    own, equal, one = (algorithm.state_dict()["sigma"] for algorithm in searches)
    assert ((own >= LOW) & (own <= HIGH)).all()
    assert ((own == LOW) | (own == HIGH)).any()
    np.testing.assert_array_equal(equal, one)
    capped = make(sigma_max=LOW.tolist())
    climb(capped, 1)
    assert (capped.state_dict()["sigma"] <= LOW).all()


@pytest.mark.parametrize("name", ["openai_es", "ars", "ns_es"])
def test_a_decay_stops_at_each_parameters_own_minimum(name: str) -> None:
    algorithm = maker(name, sigma=0.4)(sigma_decay=0.5, sigma_min=LOW.tolist())
    climb(algorithm, 2)
    expected = np.sqrt(np.mean(np.maximum(0.1, LOW) ** 2))
    assert algorithm.sigma == pytest.approx(expected, rel=1e-12)
    assert algorithm.ask().members().shape[1] == P


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("pgpe", {"sigma_max": [0.5, 0.6]}, f"sigma_max = .* list of {P}"),
        ("openai_es", {"sigma": 0.5, "sigma_min": [0.1, 0.2]}, f"sigma_min = .* list of {P}"),
        ("snes", {"sigma_min": [0.1] * (P - 1) + [0.4], "sigma_max": 0.3}, "sigma_min.*sigma_max"),
        ("ars", {"sigma": 0.3, "sigma_min": [0.1] * (P - 1) + [0.4]}, "sigma_min"),
        ("eggroll", {"sigma_min": [0.1] * P}, "sigma_min"),
    ],
)
def test_bounds_that_do_not_fit(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        maker(name)(**settings)
