"""The health of one run: rules on the measurements of its generations. Pure functions on arrays.

A rule compares measurements with the thresholds below and gives a finding or None. The thresholds
separate deliberately broken runs from healthy ones, of fifteen algorithms on CartPole, Pendulum and
six test functions. A run whose return climbs gets no warning unless its members fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import counted, three_digits
from esbench.results.statistics.curves import (
    BLOCKS,
    ascent,
    gain,
    mean_interval,
    signal_to_noise,
    thirds,
    trend,
    uniform_band,
)

Level: TypeAlias = Literal["ok", "note", "warning"]
LEVELS: Final[tuple[Level, ...]] = ("warning", "note", "ok")  # worst first

MIN_GENERATIONS: Final = 10  # the rank of a run below has a band wider than 0.32 to 0.68
# Of ``ascent``: 0.5 to 1 in healthy runs that climb.
CLIMBING: Final = 0.5
CLEAR_GAIN: Final = 2.0  # median changes from one generation to the next
# Length of an update in radii of the population, sigma sqrt(P): 0.1 to 0.6 in healthy runs. From 3
# on, the center leaves the population. Up to 0.01, with a total distance below 0.3, the population
# does not move.
LONG_STEP: Final = 3.0
SHORT_STEP: Final = 0.01
SHORT_WAY: Final = 0.3
GOOD_STEP: Final = 0.3
USUAL_SIGMA: Final = 0.1  # beside the root mean square of the starting parameters
# At most 0.6 in healthy runs that climb, except random search, whose rank is 1 by design.
MOSTLY_FIRST: Final = 0.8
SAME_RETURNS: Final = 0.5  # share of generations with equal returns of all members
MOSTLY_TIED: Final = 0.9  # mean share; at most 0.75 in healthy runs
SHORTENED: Final = 0.5  # share of the first length of episodes
NOT_FINITE: Final = 0.05  # share of members; 0 in healthy runs
# In the last third: at most 0.09 in healthy runs of ten generations, 0.02 from thirty on.
DRIFTING: Final = 0.3
UNIFORM: Final = 0.01  # significance level of the test that ranks are uniform
# The absence of a signal means little in few generations.
MIN_UNIFORM: Final = 30


MEASURES: Final = (
    *("population_size", "population_return_mean", "population_return_std"),
    *("population_return_min", "population_return_max", "center_return", "center_rank_fraction"),
    *("non_finite", "sigma", "update_norm", "tied_returns", "update_cosine", "split_half_cosine"),
    *("center_norm", "distance", "observation_drift", "episode_length_mean"),
)


@final
@dataclass(frozen=True, eq=False)
class RunMeasurements:
    """The measurements of a run.

    Attributes:
        rows: ``MEASURES`` by name, [generations] each.
        num_params: of the policy; NaN if unknown.
        reward_shift: what training subtracts from every reward.
        seeks_returns: whether the search maximizes returns; novelty search need not.
        has_learning_rate: whether a setting controls the length of an update.
        has_population: whether the algorithm has members; an agent has none.
    """

    rows: Mapping[str, Floats]
    num_params: float = math.nan
    reward_shift: float = 0.0
    seeks_returns: bool = True
    has_learning_rate: bool = True
    has_population: bool = True

    def __getitem__(self, name: str) -> Floats:
        return self.rows[name]

    @property
    def generations(self) -> int:
        """The number of generations."""
        return self["sigma"].size

    def part(self, first: int, last: int) -> RunMeasurements:
        """The measurements of generations ``first`` to ``last``, counted from 1."""
        return replace(self, rows={k: values[first - 1 : last] for k, values in self.rows.items()})

    @property
    def radius(self) -> Floats:
        """The population's radius, sigma sqrt(P), the usual distance of a member; NaN for 0."""
        return np.where(self["sigma"] > 0, self["sigma"], math.nan) * math.sqrt(self.num_params)


@final
@dataclass(frozen=True)
class HealthFinding:
    """A finding about a run: a "warning" is a problem, a "note" to be checked, "ok" information."""

    name: str
    level: Level
    sentence: str
    advice: str = ""


Rule: TypeAlias = Callable[[RunMeasurements], Iterator[HealthFinding]]


def findings(run: RunMeasurements) -> list[HealthFinding]:
    """The findings about a run, worst first."""
    if run.generations < MIN_GENERATIONS:
        few = f"{counted(run.generations, 'generation')}: too few to judge"
        return [HealthFinding("too_short", "note", f"{few}; expected {MIN_GENERATIONS} or more")]
    if not run.has_population:
        return [_progress(run)]
    judged = run.seeks_returns and not climbs(run)
    found = [*islice(_applying(PROBLEM_RULES, run), 1)] if judged else []
    found += _applying(SAFETY_RULES, run)
    if not any(finding.level == "warning" for finding in found):
        found.append(_progress(run))
    if not any(finding.name == "no_information" for finding in found):  # it includes them
        found += _applying(INFORMATION_RULES, run)
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def climbs(run: RunMeasurements) -> bool:
    """Whether the return of the center or of the population clearly rises."""
    return any(map(_climbs, _returns(run).values()))


def _climbs(returns: Floats) -> bool:
    return _ends_higher(returns) and ascent(returns) >= CLIMBING


def _ends_higher(returns: Floats) -> bool:
    """Whether a return gains more than it usually changes, even if it fell in between."""
    return gain(returns) > CLEAR_GAIN * _usual_change(returns)


def _usual_change(returns: Floats) -> float:
    return float(np.median(np.abs(np.diff(returns))))


def _applying(rules: Sequence[Rule], run: RunMeasurements) -> Iterator[HealthFinding]:
    return (finding for rule in rules for finding in rule(run))


def _returns(run: RunMeasurements) -> dict[str, Floats]:
    """The known curves of returns by whose they are, the most important one first."""
    given = {
        "the center's": run["center_return"],
        "the population's mean": run["population_return_mean"],
    }
    return {who: values for who, values in given.items() if np.isfinite(values).all()}


def _wrong_step(run: RunMeasurements) -> Iterator[HealthFinding]:
    moved = run["update_norm"] > 0
    if not (run.has_learning_rate and moved.any()):
        return
    step = float(np.median(run["update_norm"][moved] / run.radius[moved]))
    # In a part of a run, the distance is still that from the start of the run.
    way = float(min(run["distance"][-1], run["update_norm"].sum()) / np.median(run.radius))
    if step >= LONG_STEP:
        times = f"{step:.0f}" if step >= 10 else f"{step:.1f}"
        said = f"An update moves the center by {times} times the radius of the population"
        rate, sigma = "large", "small"
        factor = _factor(step / GOOD_STEP)
        change = f"Divide learning_rate by about {factor}: an update should stay among the members."
        other = "Raise sigma until members act differently from the center"
    elif step <= SHORT_STEP and way <= SHORT_WAY:
        moves = f"In {run.generations} generations the center moved by at most {way:.2g}"
        said = f"{moves} of the radius of the population"
        rate, sigma = "small", "large"
        change = f"Multiply learning_rate by about {_factor(GOOD_STEP / step)}."
        other = "Lower sigma: members so far out have nothing in common with the center"
    else:
        return
    said += ", and the return does not rise"
    scale = float(run["center_norm"][0]) / math.sqrt(run.num_params)
    if _sigma_is_usual(run, scale):
        said += f": the learning rate is too {rate}."
        yield HealthFinding(f"learning_rate_too_{rate}", "warning", said, change)
        return
    beside = f"{float(np.median(run['sigma'])):.2g} beside parameters of about {scale:.2g}"
    said += f": sigma is too {sigma}, {beside}."
    start = "a tenth of the parameters' own scale is a start."
    yield HealthFinding(f"sigma_too_{sigma}", "warning", said, f"{other}; {start}")


def _sigma_is_usual(run: RunMeasurements, scale: float) -> bool:
    """Whether sigma is nearer than the step to its usual ratio to the starting parameters.

    Usual are a sigma of ``USUAL_SIGMA`` of their scale and steps of ``GOOD_STEP`` sigmas, all per
    parameter. True if the scale is 0 or unknown.
    """
    if not scale > 0:
        return True
    usual = USUAL_SIGMA * scale
    moved = run["update_norm"] > 0
    sigma = abs(math.log(float(np.median(run["sigma"][moved])) / usual))
    length = float(np.median(run["update_norm"][moved])) / math.sqrt(run.num_params)
    return sigma <= abs(math.log(length / (GOOD_STEP * usual)))


def _same_returns(run: RunMeasurements) -> Iterator[HealthFinding]:
    same = run["population_return_min"] == run["population_return_max"]
    share = float(np.mean(same))
    if np.median(run["population_size"]) > 1 and share >= SAME_RETURNS:
        values = np.unique(run["population_return_max"][same])
        what = f", always {three_digits(float(values[0]))}" if values.size == 1 else ""
        yield HealthFinding(
            "constant_reward",
            "warning",
            f"All members have the same return in {_percent(share)} of generations{what}: there is "
            "nothing to learn from.",
            "Check that the reward depends on what the policy does; if it does but is never "
            "reached, raise sigma, shape the reward, or try novelty search (ns_es).",
        )


def _mostly_first(run: RunMeasurements) -> Iterator[HealthFinding]:
    share = float(np.mean(run["center_rank_fraction"] == 0))
    moves = np.mean(run["update_norm"] > 0) >= 0.5  # random search takes no steps
    if share >= MOSTLY_FIRST and moves:
        yield HealthFinding(
            "sigma_too_large",
            "warning",
            f"The rank of the center is 1 in {_percent(share)} of generations, and the return does "
            "not rise: sigma is too large or the population too small.",
            "Halve sigma, or double population_size.",
        )


def _no_information(run: RunMeasurements) -> Iterator[HealthFinding]:
    from scipy.stats import kstest

    ranks, low, high = run["center_rank_fraction"], *_chance(run)
    mean, signal = float(ranks.mean()), mean_interval(run["split_half_cosine"])[1]
    spread, returns = float(np.median(run["population_return_std"])), _returns(run)
    still = bool(returns) and all(gain(values) < spread for values in returns.values())
    if run.generations < MIN_UNIFORM or signal > 0 or not (still and low <= mean <= high):
        return
    if not kstest(_spread(ranks, run["population_size"]), "uniform").pvalue > UNIFORM:
        return
    ratio = (
        f" and the update's signal-to-noise ratio {_ratio(run)}" if math.isfinite(signal) else ""
    )
    yield HealthFinding(
        "no_information",
        "warning",
        f"The rank of the center is uniform (mean {mean:.2f}; chance gives {low:.2f} to {high:.2f})"
        f"{ratio}: sigma is too small, the episodes are too noisy, or all actions are at a bound, "
        "for the update to carry information.",
        "Raise sigma; if that does not help, raise episodes_per_member or population_size. If the "
        "bounds of the actions are far from 0, rescale them.",
    )


def _spread(ranks: Floats, sizes: Floats) -> Floats:
    """Ranks as fractions, spread evenly over the interval that stands for each of them.

    Uniform ranks among N members stand for N + 1 intervals of equal length. The test for
    uniformity assumes continuous values, and would see the ties among many ranks.
    """
    cells = np.stack([ranks, sizes], axis=1)
    _, cell, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(cell, kind="stable")
    number = np.empty(ranks.size)
    number[order] = np.arange(ranks.size) - np.repeat(np.cumsum(counts) - counts, counts)
    spread: Floats = (ranks * sizes + (number + 0.5) / counts[cell]) / (sizes + 1)
    return spread


def _mostly_tied(run: RunMeasurements) -> Iterator[HealthFinding]:
    known = run["tied_returns"][np.isfinite(run["tied_returns"])]
    if known.size and (share := float(known.mean())) >= MOSTLY_TIED:
        yield HealthFinding(
            "tied_returns",
            "warning",
            f"{_percent(share)} of the members share their return with another one, and the return "
            "does not rise: the ranking tells little.",
            "Raise sigma or episodes_per_member, or give the reward finer steps.",
        )


def _not_finite(run: RunMeasurements) -> Iterator[HealthFinding]:
    share = float(run["non_finite"].sum() / run["population_size"].sum())
    if share >= NOT_FINITE:
        yield HealthFinding(
            "not_finite",
            "warning",
            f"The return of {_percent(share)} of the members is not finite.",
            "Look for actions or rewards that overflow; lower sigma or the learning rate, or add "
            "weight_decay.",
        )


def _ending_early(run: RunMeasurements) -> Iterator[HealthFinding]:
    """Whether the shifted return rises because episodes become short, and the return falls."""
    lengths = run["episode_length_mean"]
    shifted = run["population_return_mean"] - run.reward_shift * lengths
    if not (run.seeks_returns and run.reward_shift > 0 and np.isfinite(shifted).all()):
        return
    first, last = _ends(lengths)
    who, returns = next(iter(_returns(run).items()))
    if not (last < SHORTENED * first and gain(shifted) > 0 and gain(returns) < 0):
        return
    yield HealthFinding(
        "ends_early",
        "warning",
        f"The policy has learned to end its episodes: their mean length is {three_digits(first)} "
        f"steps in the first generation and {three_digits(last)} in the last tenth, and the return "
        f"falls: {_way(who, returns)}. Training subtracts reward_shift = {run.reward_shift:g} "
        "from every reward, so every step costs.",
        "Compare with reward_shift = 0, of the environment or the algorithm: no step costs then.",
    )


def _drifting(run: RunMeasurements) -> Iterator[HealthFinding]:
    late = thirds(run["observation_drift"])[2]
    if late >= DRIFTING:
        yield HealthFinding(
            "observation_drift",
            "note",
            f"In the last third, a generation still changes what the policy sees by {late:.2g} "
            "deviations of an input.",
            "Look for observations that grow without bounds, or set policy.normalize_observations "
            "= false.",
        )


def _progress(run: RunMeasurements) -> HealthFinding:
    if not run.seeks_returns:
        said = "The search follows novelty, so that its returns need not rise: they are not judged."
        return HealthFinding("novelty", "ok", said)
    returns = _returns(run)
    way = _way(*max(returns.items(), key=lambda each: _climbs(each[1]))) if returns else ""
    if climbs(run):
        last = run.generations // BLOCKS
        best = run["population_return_max"]
        same = run["population_return_min"][-last:] == best[-last:]
        several = run.has_population and np.median(run["population_size"]) > 1
        if several and same.all() and best[-1] == best.max():
            said = f"The return has risen until all members have {three_digits(float(best.max()))}"
            end = "the best of the run: solved, or as good as its episodes can tell."
            return HealthFinding("solved", "ok", f"{said}, {end}")
        half = run.generations // 2
        flat = all(not trend(values[half:])[1] > 0 for values in returns.values())
        end = "; it has leveled off in the second half" if flat else ""
        return HealthFinding("climbing", "ok", f"The return rises: {way}{end}.")
    spread = float(np.median(run["population_return_std"]))
    if returns and all(gain(values) < -spread for values in returns.values()):
        advice = "Lower learning_rate, or let it decay (learning_rate_decay)."
        return HealthFinding("falling", "note", f"The return falls: {way}.", advice)
    return _unclear(run.generations, returns)


def _unclear(generations: int, returns: Mapping[str, Floats]) -> HealthFinding:
    """What is true of returns that neither climb nor fall clearly."""
    for who, values in returns.items():
        if _ends_higher(values):
            way = _way(who, values)
            said = f"The return ends higher than it began, with large swings in between: {way}."
            advice = "More steps may tell whether it stays there."
            return HealthFinding("unclear", "ok", said, advice)
    why = "in some of them it is not finite"
    if returns:
        who, values = next(iter(returns.items()))
        change = three_digits(_usual_change(values))
        why = f"{_way(who, values)}, and usually changes by {change} from one to the next"
    said = f"The return has not clearly risen in {generations} generations: {why}."
    return HealthFinding("unclear", "ok", said, "No rule found a cause; more steps may tell.")


def _rank(run: RunMeasurements) -> Iterator[HealthFinding]:
    ranks = run["center_rank_fraction"]
    if np.isfinite(ranks).all():
        (low, high), (slope, least, most) = _chance(run), trend(ranks)
        by = f" by {abs(slope):.2g} per generation"
        moving = f"rising{by}" if least > 0 else f"falling{by}" if most < 0 else "without a trend"
        yield HealthFinding(
            "rank",
            "ok",
            f"On average {_percent(float(ranks.mean()))} of the members beat the center, {moving}; "
            f"if perturbing changed nothing, it would be {_percent(low)} to {_percent(high)}.",
        )


def _signal(run: RunMeasurements) -> Iterator[HealthFinding]:
    low = mean_interval(run["split_half_cosine"])[1]
    if math.isfinite(low):
        clear = "" if low > 0 else ", which may be chance"
        said = f"The signal-to-noise ratio of an update is {_ratio(run)}{clear}."
        yield HealthFinding("signal_to_noise", "ok", said)


# Of ``PROBLEM_RULES`` only the first rule that applies counts: later ones may be its effects. A
# step that is too long, for example, soon makes all returns equal.
PROBLEM_RULES: Final[tuple[Rule, ...]] = (
    _wrong_step, _same_returns, _mostly_first, _no_information, _mostly_tied,
)  # fmt: skip
SAFETY_RULES: Final[tuple[Rule, ...]] = (_not_finite, _ending_early, _drifting)
INFORMATION_RULES: Final[tuple[Rule, ...]] = (_rank, _signal)


def _chance(run: RunMeasurements) -> tuple[float, float]:
    return uniform_band(float(np.median(run["population_size"])), run.generations)


def _ratio(run: RunMeasurements) -> str:
    mean, low, high = map(signal_to_noise, mean_interval(run["split_half_cosine"]))
    return f"{mean:.2g} (95 % interval {low:.2g} to {high:.2g})"


def _way(who: str, returns: Floats) -> str:
    first, last = map(three_digits, _ends(returns))
    return f"{who} is {first} in the first generation and {last} in the last tenth"


def _ends(values: Floats) -> tuple[float, float]:
    """The first value and the mean of the last tenth, which ``gain`` compares."""
    return float(values[0]), float(values[0]) + gain(values)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _factor(value: float) -> str:
    """A factor with one significant digit."""
    return f"{float(f'{value:.1g}'):g}"
