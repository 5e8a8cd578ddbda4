import math
from collections.abc import Callable

import pytest

from esbench.core.units import format_duration, format_number, format_share, format_steps


def test_numbers_are_read_back_to_two_digits_or_a_decimal() -> None:
    assert format_number(-0.0) == "0.0"
    for exponent in range(-12, 12):
        for digits in (1.0, 1.234, 5.678, 9.96):
            value = digits * 10.0**exponent
            assert float(format_number(value)) == pytest.approx(value, rel=0.05)
            assert format_number(-value) == f"-{format_number(value)}"


NUMBERS = {
    4013.4321: "4013", -83.1: "-83.1", 0.996: "1.0", 0.994: "0.99", -0.0041: "-0.0041",
    0.000123: "0.00012", -3.2e-9: "-3.2e-09", 1e-300: "1.0e-300", 0.0: "0.0", -999.94: "-999.9",
    999.96: "1000", -999_999.4: "-999999", 999_999.6: "1.000e+06", -3_172_801.01: "-3.173e+06",
    math.nan: "-", -math.inf: "-inf",
}  # fmt: skip
SHARES = {0.504: "0.50", -0.001: "0.00", 999.0: "999.00", -1e300: "-1.000e+300", math.nan: "-"}
STEPS = {
    0: "0", 999.4: "999", 999.5: "1.0 k", 9_949: "9.9 k", 9_950: "10 k", 999_499: "999 k",
    999_500: "1.0 M", 999_950_000: "1.0 G", math.nan: "-", math.inf: "-",
}  # fmt: skip
SECONDS = {
    0: "0.0 s", 59.94: "59.9 s", 59.96: "1 min 0 s", 185: "3 min 5 s", 3599.6: "1 h 0 min",
    90_000: "25 h 0 min", math.nan: "-", math.inf: "-",
}  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "texts"),
    [
        (format_number, NUMBERS),
        (format_share, SHARES),
        (format_steps, STEPS),
        (format_duration, SECONDS),
    ],
)
def test_the_texts_of_values(unit: Callable[[float], str], texts: dict[float, str]) -> None:
    assert {value: unit(value) for value in texts} == texts
