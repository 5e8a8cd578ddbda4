"""Formats numbers for reading."""

from __future__ import annotations

import math
from typing import Final

NONE: Final = "-"
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float) -> str:
    """A score for reading: 4013, 96.8, -0.0041, -3.2e-09, 1.235e+06; "-" if it is NaN.

    No decimal from 1,000 on, one from 1 on, two significant digits below. Scientific notation
    below 1e-4 and from a million on.
    """
    if math.isnan(value):
        return NONE
    if not value:
        return "0.0"  # and not -0.0
    if abs(value) >= 999_999.5:
        return f"{value:.3e}"
    if abs(value) >= 999.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:#.2g}"


def three_digits(value: float) -> str:
    """A number with three significant digits, all before the point up to a million; "-" if NaN."""
    if math.isnan(value):
        return NONE
    return f"{value:.0f}" if 999.5 <= abs(value) < 999_999.5 else f"{value:.3g}"


def format_steps(steps: float) -> str:
    """A number of steps for reading: 950, 1.5 k, 100 k, 3.0 M; "-" if it is not finite."""
    if not math.isfinite(steps):
        return NONE
    if steps < 999.5:
        return f"{steps:.0f}"
    if steps < 9_950:
        return f"{steps / 1e3:.1f} k"
    if steps < 999_500:
        return f"{steps / 1e3:.0f} k"
    return f"{steps / 1e6:.1f} M" if steps < 999_950_000 else f"{steps / 1e9:.1f} G"


def format_duration(seconds: float) -> str:
    """A duration for reading: 1.2 s, 3 min 5 s, 2 h 5 min; "-" if it is not finite."""
    if not math.isfinite(seconds):
        return NONE
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def format_share(value: float) -> str:
    """A normalized score for reading: two decimals below 1,000, never "-0.00"; "-" if NaN."""
    if math.isnan(value) or abs(value) >= 1000:
        return format_number(value)
    return f"{round(value, 2) + 0.0:.2f}"


def format_percent(share: float) -> str:
    """A share in percent with at most one decimal: 5%, 22.5%."""
    return f"{round(100 * share, 1):g}%"


SMALLEST_P: Final = 0.001


def format_p(p: float) -> str:
    """A p-value for reading: 0.034, 1, < 0.001, but never 0; "-" if it is NaN."""
    if math.isnan(p):
        return NONE
    return f"{p:.2g}" if p >= SMALLEST_P else f"< {SMALLEST_P}"


def p_is(p: float) -> str:
    """A p-value in a sentence: "p = 0.034", "p < 0.001"."""
    text = format_p(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def power_of_ten(value: float) -> str:
    """A power of ten, its negative or 0, with superscript digits: −10³."""
    if not value:
        return "0"
    exponent = str(round(math.log10(abs(value)))).translate(_SUPERSCRIPTS)
    return f"{'−' if value < 0 else ''}10{exponent}"


def counted(number: int, thing: str) -> str:
    """A number with its noun: "1 trial", "2 trials"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
