from __future__ import annotations

import math

import pytest

from esbench.units import format_duration, format_number, format_steps


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4013.4321, "4013.4"),
        (-83.1, "-83.1"),
        (500, "500.0"),
        (1.0, "1.0"),
        (0.996, "1.0"),
        (0.994, "0.99"),
        (0.5, "0.50"),
        (-0.0041, "-0.0041"),
        (0.000123, "0.00012"),
        (-3.2e-9, "-3.2e-09"),
        (9.94e-5, "9.9e-05"),
        (1e-300, "1.0e-300"),
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (-999_999.9, "-999999.9"),
        (999_999.96, "1.000e+06"),
        (-3_172_801.01, "-3.173e+06"),
        (math.nan, "-"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers(value: float, expected: str) -> None:
    assert format_number(value) == expected


def test_numbers_are_read_back_to_two_digits_or_a_decimal() -> None:
    for exponent in range(-12, 12):
        for digits in (1.0, 1.234, 5.678, 9.96):
            value = digits * 10.0**exponent
            assert float(format_number(value)) == pytest.approx(value, rel=0.05)
            assert format_number(-value) == f"-{format_number(value)}"


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
