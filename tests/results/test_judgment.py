from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from simulated_checks import DISTRIBUTIONS, normal, rates, with_failures

from esbench.core.errors import UsageError
from esbench.results.statistics.judgment import (
    MARGIN,
    MOST_RESAMPLES,
    RESAMPLES_PER_LEVEL,
    GateRules,
    Judgment,
    Sample,
    Verdict,
    judge,
    looks,
    resamples_needed,
    seeds_needed,
    shares_of_looks,
)
from esbench.results.statistics.significance import OMNIBUS

RULES = GateRules()


def sample(baseline: Sequence[float], scores: Sequence[float], span: float = 1.0) -> Sample:
    return Sample(np.asarray(baseline, dtype=float), np.asarray(scores, dtype=float), span)


def judged(*samples: Sample, rules: GateRules = RULES) -> list[Judgment]:
    return [item for item in judge(samples, rules) if item is not None]


# Verdicts

EIGHT = np.linspace(0.9, 1.0, 8)
NEAR = np.linspace(0.900, 0.901, 8)


@pytest.mark.parametrize(
    ("baseline", "scores", "verdict"),
    [
        (EIGHT, EIGHT - 0.3, Verdict.REGRESSION),
        (EIGHT, EIGHT + 0.3, Verdict.IMPROVEMENT),
        (EIGHT, EIGHT, Verdict.NO_WORSE),
        (NEAR, NEAR - 0.049, Verdict.NO_WORSE),  # certain, and below the margin
        (NEAR, NEAR - 0.051, Verdict.REGRESSION),
        ([1.0, 0.2, 0.9, 0.1], [0.1, 0.8, 0.0, 0.3], Verdict.INCONCLUSIVE),  # may be chance
        ([1.0, 0.99, 0.98], [0.0, 0.01, 0.02], Verdict.INCONCLUSIVE),  # three seeds cannot fail
        ([1.0] * 8, [1.0] * 3, Verdict.NO_WORSE),
        ([1.0], [1.0], Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts(baseline: Sequence[float], scores: Sequence[float], verdict: Verdict) -> None:
    (found,) = judged(sample(baseline, scores))
    assert found.verdict is verdict
    assert found.change == pytest.approx(np.mean(scores) - np.mean(baseline))


def test_p_values_and_seeds_by_hand() -> None:
    drop, gain, _ = judged(*(sample(EIGHT, EIGHT + change) for change in (-0.3, 0.3, 0.0)))
    assert drop.p_drop == gain.p_gain == pytest.approx(3 / math.comb(16, 8))
    (three,) = judged(sample([1.0, 0.99, 0.98], [0.0, 0.01, 0.02]))
    assert three.p_drop == pytest.approx(1 / 20)
    assert three.seeds_needed == 5  # 1 in 252, the first below 1 in 100
    (unequal,) = judged(sample([1.0] * 8, [1.0] * 3))
    assert unequal.p_margin == pytest.approx(1 / math.comb(11, 3))
    (single,) = judged(sample([1.0], [1.0]))
    assert math.isinf(single.seeds_needed)


def test_cells_and_looks_share_the_level() -> None:
    base = np.linspace(0.9, 1.0, 5)
    bad, good = sample(base, base - 0.5), sample(base, base)  # bad: p = 1/252
    half = GateRules(share=0.5)
    assert (half.level, half.noninferiority_level) == (0.005, 0.025)
    for cells, rules, verdict in (
        ([bad], RULES, Verdict.REGRESSION),
        ([bad, good], RULES, Verdict.REGRESSION),
        ([bad, good, good], RULES, Verdict.INCONCLUSIVE),
        ([bad, None, None], RULES, Verdict.INCONCLUSIVE),  # not measured, and take their share
        ([bad, good], half, Verdict.INCONCLUSIVE),
    ):
        first, *others = judge(cells, rules)
        assert first is not None
        assert first.verdict is verdict
        assert [other is None for other in others] == [cell is None for cell in cells[1:]]


def test_a_rise_of_most_seeds_does_not_hide_that_more_seeds_fail() -> None:
    base = np.linspace(0.88, 0.92, 16)
    scores = np.concatenate([np.linspace(0.98, 1.0, 12), np.linspace(0.0, 0.1, 4)])
    (found,) = judged(sample(base, scores))
    assert found.change < -MARGIN < MARGIN < found.iqm_change
    assert found.p_gain <= RULES.level
    assert found.verdict is Verdict.INCONCLUSIVE
    (mirrored,) = judged(sample(-base, -scores))
    assert mirrored.verdict is Verdict.REGRESSION  # of the interquartile mean


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(32, (8, 16, 32)), (8, (8,)), (24, (8, 16, 24)), (100, (8, 16, 32, 64, 100))],
)
def test_looks_double_and_spend_the_levels_once(most: int, sizes: tuple[int, ...]) -> None:
    assert looks(most) == sizes
    shares = shares_of_looks(sizes)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
    # The spending function of Lan and DeMets near Pocock's boundaries, at a quarter of the seeds.
    if sizes[-1] == 32:
        assert shares[0] == pytest.approx(math.log(1 + (math.e - 1) / 4))


def test_verdicts_do_not_depend_on_scale_shift_or_the_order_of_seeds() -> None:
    rng = np.random.default_rng(0)
    base, scores = rng.normal(size=7), rng.normal(-0.2, size=9)
    plain = judged(sample(base, scores, 4.0))[0]
    moved = judged(sample(1000 + 50 * base[::-1], 1000 + 50 * scores[::-1], 200.0))[0]
    assert moved.verdict is plain.verdict
    assert moved.change == pytest.approx(plain.change)
    assert moved.p_drop == pytest.approx(plain.p_drop)
    assert moved.p_margin == pytest.approx(plain.p_margin)


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", 0.0), ("alpha", 1.5), ("margin", 0.0), ("margin", 5.0), ("margin", math.nan)],
)
def test_rules_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} = {value}"):
        dataclasses.replace(RULES, **{name: value})


# Error rates, by simulation

quick = partial(judge, resamples=2000)


def test_unchanged_cells_rarely_fail_and_clear_drops_are_always_caught() -> None:
    common: dict[str, Any] = {"runs": 8, "rules": RULES, "repetitions": 300}
    unchanged = rates(quick, [*DISTRIBUTIONS.values(), normal], drop=0.0, **common)
    assert unchanged.failed <= 0.03
    assert unchanged.passed >= 0.3
    broken = rates(quick, [normal] * 3, drop=0.2, **common)
    assert broken.caught >= 0.9
    assert broken.passed == 0


def test_the_number_of_seeds_it_asks_for_is_enough_four_times_in_five() -> None:
    rng = np.random.default_rng(2)
    advised = seeds_needed(sample(normal(rng, 200, 0.0), normal(rng, 200, 0.0)), RULES)
    assert 8 < advised < 20
    runs = int(advised)
    found = rates(quick, [normal], runs=runs, drop=0.0, rules=RULES, repetitions=300, seed=3)
    assert 0.72 < found.passed < 0.92


def test_a_seed_that_fails_in_both_sides_does_not_hide_a_drop() -> None:
    power = {}
    for name, statistics in (("mean", ("mean",)), ("omnibus", OMNIBUS)):
        rules = dataclasses.replace(RULES, statistics=statistics)
        common: dict[str, Any] = {"runs": 16, "rules": rules, "repetitions": 100}
        power[name] = rates(quick, [with_failures], drop=0.1, **common).caught
    assert power["omnibus"] > power["mean"] + 0.3


def test_the_largest_change_of_mean_and_interquartile_mean_counts_as_the_drop() -> None:
    steady = np.linspace(0.95, 1.05, 16)
    (found,) = judged(sample(np.r_[0.0, steady[1:]], steady - 0.08))
    assert found.change > -0.05 > found.iqm_change
    assert found.verdict is Verdict.REGRESSION
    only_mean = dataclasses.replace(RULES, statistics=("mean",))
    (found,) = judged(sample(np.r_[0.0, steady[1:]], steady - 0.08), rules=only_mean)
    assert found.verdict is not Verdict.REGRESSION


@pytest.mark.parametrize("cells", [1, 4, 40])
def test_more_cells_need_more_permutations(cells: int) -> None:
    rules = GateRules(alpha=0.001)
    smallest = cells / (resamples_needed(rules, cells) + 1)  # p, corrected for the cells
    assert smallest == pytest.approx(rules.level / RESAMPLES_PER_LEVEL, rel=0.01)
    least = GateRules(alpha=1.5 * RESAMPLES_PER_LEVEL * cells / MOST_RESAMPLES)
    resamples_needed(least, cells)
    with pytest.raises(UsageError, match=f"for {2 * cells} cells"):
        resamples_needed(least, 2 * cells)
