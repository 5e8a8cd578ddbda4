from __future__ import annotations

import math

import numpy as np
import pytest

from esbench.analysis.comparison import adjusted, compare, compare_across, standings
from esbench.errors import UsageError

LOW, HIGH = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0]


def test_a_clear_difference_by_hand() -> None:
    found = compare(HIGH, LOW)
    assert (found.first, found.second, found.runs) == (12.5, 3.0, (4, 5))
    assert found.difference.value == 9.5
    assert found.difference.low < 9.5 < found.difference.high
    assert found.difference.low > 0
    assert (found.improvement.value, found.improvement.low) == (1.0, 1.0)
    assert found.p_value == pytest.approx(2 / 126)
    assert found.effect_size > 5


def test_the_sides_are_symmetric() -> None:
    one, other = compare(HIGH, LOW, seed=1), compare(LOW, HIGH, seed=1)
    assert other.difference.value == -one.difference.value
    assert other.improvement.value == 1 - one.improvement.value
    assert other.p_value == one.p_value
    assert other.effect_size == -one.effect_size


def test_a_side_beside_itself_is_not_different() -> None:
    found = compare(LOW, LOW)
    assert (found.difference.value, found.improvement.value, found.effect_size) == (0, 0.5, 0)
    assert found.p_value == 1
    assert found.difference.low < 0 < found.difference.high


def test_two_seeds_have_no_interval() -> None:
    found = compare([1.0, 2.0], LOW)
    assert math.isnan(found.difference.low)
    assert math.isnan(found.improvement.high)


def test_across_environments_the_probability_is_the_mean_and_the_difference_pooled() -> None:
    difference, improvement = compare_across([HIGH, LOW], [LOW, LOW])
    assert improvement.value == pytest.approx((1.0 + 0.5) / 2)
    assert improvement.low < improvement.value < improvement.high
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


def test_a_side_without_scores_stands_nowhere() -> None:
    assert standings([LOW, [], HIGH]) == ["", "", "best"]
    assert standings([LOW, []]) == ["", ""]
    assert standings([]) == []


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="expected finite numbers"):
        compare([], LOW)
    with pytest.raises(UsageError, match="expected finite numbers"):
        compare([math.nan], LOW)
    with pytest.raises(UsageError, match="2 and 1 environments"):
        compare_across([LOW, LOW], [LOW])
