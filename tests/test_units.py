from __future__ import annotations

import math

import pytest

from esbench.units import format_duration, format_steps


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, "0"),
        (999.4, "999"),
        (999.5, "1.0 k"),
        (1500, "1.5 k"),
        (9_949, "9.9 k"),
        (9_950, "10 k"),
        (100_000, "100 k"),
        (999_499, "999 k"),
        (999_500, "1.0 M"),
        (3_000_000, "3.0 M"),
        (999_950_000, "1.0 G"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_steps(steps: float, expected: str) -> None:
    assert format_steps(steps) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"),
        (1.24, "1.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (185, "3 min 5 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90_000, "25 h 0 min"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected
