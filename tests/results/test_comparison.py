from __future__ import annotations

import math

import numpy as np
import pytest

from esbench.results.statistics.significance import adjusted, compare, compare_across, standings

LOW, HIGH = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0]


def test_a_clear_difference_by_hand() -> None:
    found = compare(HIGH, LOW)
    assert (found.first, found.second, found.runs) == (12.5, 3.0, (4, 5))
    assert found.difference.value == 9.5
    assert found.difference.low < 9.5 < found.difference.high
    assert found.difference.low > 0
    assert found.improvement.value == found.improvement.high == 1.0
    assert 0.5 < found.improvement.low < 0.9
    assert found.p_value == pytest.approx(2 / 126)
    assert found.effect_size > 5
    other = compare(LOW, HIGH)  # the sides are symmetric
    assert other.difference.value == -found.difference.value
    assert other.improvement.value == 1 - found.improvement.value
    assert other.improvement.high == pytest.approx(1 - found.improvement.low)
    assert other.p_value == found.p_value
    assert other.effect_size == -found.effect_size


def test_a_side_beside_itself_is_not_different_and_two_seeds_have_no_interval() -> None:
    found = compare(LOW, LOW)
    assert (found.difference.value, found.improvement.value, found.effect_size) == (0, 0.5, 0)
    assert found.p_value == 1
    assert found.difference.low < 0 < found.difference.high
    found = compare([1.0, 2.0], LOW)
    assert math.isnan(found.difference.low)
    assert math.isnan(found.improvement.high)


def test_across_environments_the_probability_is_the_mean_and_the_difference_pooled() -> None:
    difference, improvement = compare_across([HIGH, LOW], [LOW, LOW])
    assert improvement.value == pytest.approx((1.0 + 0.5) / 2)
    assert improvement.low < improvement.value < improvement.high
    one = compare(HIGH, LOW).improvement  # of one environment, and of the same one twice
    (_, alone), (_, twice) = (compare_across([HIGH] * n, [LOW] * n) for n in (1, 2))
    assert (alone.value, alone.low, alone.high) == pytest.approx((one.value, one.low, one.high))
    assert 1 - twice.low == pytest.approx((1 - one.low) / math.sqrt(2))
    assert difference.value > 0


def test_p_values_are_adjusted_for_their_number() -> None:
    several = [compare(HIGH, LOW), compare(LOW, LOW)]
    np.testing.assert_allclose(adjusted(several), [2 * 2 / 126, 1.0])


def test_standings_by_hand() -> None:
    near = [10.0, 12.0, 12.5, 14.5]
    assert standings([LOW, HIGH, near]) == ["", "best", "tied"]
    assert standings([LOW, HIGH]) == ["", "best"]
    assert standings([[500.0] * 5, [500.0] * 5]) == ["best", "tied"]
    assert standings([LOW[:3], HIGH[:3]]) == ["tied", "best"]  # three seeds tell nothing
    # Holm: 2/126 is enough alone, and not beside three others that are as far away.
    assert standings([HIGH, LOW, LOW, LOW, LOW]) == ["best", *["tied"] * 4]
    # A side without scores stands nowhere.
    assert standings([LOW, [], HIGH]) == ["", "", "best"]
    assert standings([LOW, []]) == ["", ""]
    assert standings([LOW, HIGH, HIGH[:2]]) == [""] * 3  # two seeds are too few
    assert standings([]) == []
    # The best by the interquartile mean may have a mean that is significantly lower.
    failing = [0.0] * 4 + [100.3] * 12
    rising = [99.7] * 12 + [300.0] * 4
    assert compare(rising, failing).p_value < 0.05
    assert standings([failing, rising]) == ["best", "tied"]
