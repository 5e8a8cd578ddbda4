"""The health of one run: rules on the measurements of its generations. Pure functions on arrays.

A rule compares measurements with the thresholds below and gives a finding or None. The thresholds
separate deliberately broken runs from healthy ones, of fifteen algorithms on CartPole, Pendulum and
six test functions. A run whose return climbs gets no warning unless its members fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np

from esbench.analysis.generations import (
    BLOCKS,
    ascent,
    gain,
    mean_interval,
    signal_to_noise,
    thirds,
    trend,
    uniform_band,
)
from esbench.analysis.statistics import Floats

Level: TypeAlias = Literal["ok", "note", "warning"]
LEVELS: Final[tuple[Level, ...]] = ("warning", "note", "ok")  # worst first

MIN_GENERATIONS: Final = 10  # the rank of a run below has a band wider than 0.32 to 0.68
# Of ``ascent``: 0.5 to 1 in healthy runs that climb.
CLIMBING: Final = 0.5
CLEAR_GAIN: Final = 2.0  # median changes from one generation to the next
# Length of an update in radii of the population, sigma sqrt(P): 0.1 to 0.6 in healthy runs. From 3
# on, the centre leaves the population. Up to 0.01, with a total distance below 0.3, the population
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
NOT_FINITE: Final = 0.05  # share of members; 0 in healthy runs
# In the last third: at most 0.09 in healthy runs of ten generations, 0.02 from thirty on.
DRIFTING: Final = 0.3
UNIFORM: Final = 0.01  # significance level of the test that ranks are uniform
# The absence of a signal means little in few generations.
MIN_UNIFORM: Final = 30


@final
@dataclass(frozen=True, eq=False)
class RunMeasurements:
    """The measurements of a run, [generations] each, named as in its rows.

    Attributes:
        num_params: P, or NaN if unknown.
        seeks_returns: whether the search climbs returns; novelty search need not.
        has_learning_rate: whether a setting controls the length of an update.
    """

    population_size: Floats
    population_return_mean: Floats
    population_return_std: Floats
    population_return_min: Floats
    population_return_max: Floats
    center_return: Floats
    center_rank_fraction: Floats
    non_finite: Floats
    sigma: Floats
    update_norm: Floats
    tied_returns: Floats
    update_cosine: Floats
    split_half_cosine: Floats
    center_norm: Floats
    distance: Floats
    observation_drift: Floats
    num_params: float = math.nan
    seeks_returns: bool = True
    has_learning_rate: bool = True

    @property
    def generations(self) -> int:
        """The number of generations."""
        return self.sigma.size

    @property
    def radius(self) -> Floats:
        """The population's radius, sigma sqrt(P), the usual distance of a member; NaN for 0."""
        return np.where(self.sigma > 0, self.sigma, math.nan) * math.sqrt(self.num_params)


@final
@dataclass(frozen=True)
class HealthFinding:
    """A finding about a run.

    Attributes:
        name: of the rule, such as "sigma_too_large".
        level: "warning" for a problem, "note" for something to check, "ok" for information.
        sentence: the finding, with its number.
        advice: what to change; may be empty.
    """

    name: str
    level: Level
    sentence: str
    advice: str = ""


def findings(run: RunMeasurements) -> list[HealthFinding]:
    """The findings about a run, worst first."""
    if run.generations < MIN_GENERATIONS:
        short = (
            f"{run.generations} generations are too few to judge; expected {MIN_GENERATIONS} or "
            "more"
        )
        return [HealthFinding("too_short", "ok", short)]
    found = _first(run, SICKNESSES) if run.seeks_returns and not climbs(run) else []
    found += [finding for rule in ALWAYS if (finding := rule(run))]
    if not any(finding.level == "warning" for finding in found):
        found += _first(run, PROGRESS)
    if not any(finding.name == "no_information" for finding in found):  # it includes them
        found += [finding for rule in SIGNS if (finding := rule(run))]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def climbs(run: RunMeasurements) -> bool:
    """Whether the return of the center or of the population clearly rises.

    Most of its changes are upwards, and its gain exceeds the usual change of one generation.
    """
    return any(
        gain(values) > CLEAR_GAIN * float(np.median(np.abs(np.diff(values))))
        and ascent(values) >= CLIMBING
        for values in _returns(run)
    )


def spread(run: RunMeasurements) -> float:
    """The median deviation of the returns within a generation."""
    return float(np.median(run.population_return_std))


def _returns(run: RunMeasurements) -> list[Floats]:
    """The finite returns: of the population and of the center."""
    given = (run.population_return_mean, run.center_return)
    return [values for values in given if np.isfinite(values).all()]


def _typical_step(run: RunMeasurements) -> float:
    """The median length of the updates in radii; NaN without a learning rate or a known P.

    Updates of length 0 are left out.
    """
    moved = run.update_norm > 0
    if not (run.has_learning_rate and moved.any()):
        return math.nan
    return float(np.median(run.update_norm[moved] / run.radius[moved]))


def _steps_every_time(run: RunMeasurements) -> bool:
    return bool(np.mean(run.update_norm > 0) >= 0.5)


def _nearer_to_scale(run: RunMeasurements) -> Literal["sigma", "step"]:
    """Which of sigma and the step is nearer to its usual ratio to the starting parameters.

    Usual are a sigma of ``USUAL_SIGMA`` of their scale and steps of ``GOOD_STEP`` sigmas, all per
    parameter. Sigma, if the scale is 0 or unknown.
    """
    root = math.sqrt(run.num_params)
    moved = run.update_norm > 0
    scale = float(run.center_norm[0]) / root
    if not scale > 0:
        return "sigma"
    usual = USUAL_SIGMA * scale
    sigma = abs(math.log(float(np.median(run.sigma)) / usual))
    step = abs(math.log(float(np.median(run.update_norm[moved])) / root / (GOOD_STEP * usual)))
    return "sigma" if sigma <= step else "step"


def long_step(run: RunMeasurements) -> HealthFinding | None:
    """Warn of updates that leave the population."""
    step = _typical_step(run)
    if not step >= LONG_STEP:
        return None
    said = (
        f"An update moves the centre by {_times(step)} times the radius of the population, and "
        "the return does not rise"
    )
    factor = _factor(step / GOOD_STEP)
    if _nearer_to_scale(run) == "sigma":
        return HealthFinding(
            "learning_rate_too_large",
            "warning",
            f"{said}: the learning rate is too large.",
            f"Divide learning_rate by about {factor}: an update should stay among the members.",
        )
    return HealthFinding(
        "sigma_too_small",
        "warning",
        f"{said}: sigma is too small, {_beside_start(run)}.",
        "Raise sigma until members act differently from the centre; a tenth of the parameters' own "
        "scale is a start.",
    )


def short_step(run: RunMeasurements) -> HealthFinding | None:
    """Warn of updates too short to move the population."""
    step = _typical_step(run)
    way = float(run.distance[-1] / np.median(run.radius))
    if not (step <= SHORT_STEP and way <= SHORT_WAY):
        return None
    said = (
        f"In {run.generations} generations the centre moved by {way:.2g} of the radius of the "
        "population, and the return does not rise"
    )
    if _nearer_to_scale(run) == "sigma":
        return HealthFinding(
            "learning_rate_too_small",
            "warning",
            f"{said}: the learning rate is too small.",
            f"Multiply learning_rate by about {_factor(GOOD_STEP / step)}.",
        )
    return HealthFinding(
        "sigma_too_large",
        "warning",
        f"{said}: sigma is too large, {_beside_start(run)}.",
        "Lower sigma: members so far out have nothing in common with the centre; a tenth of the "
        "parameters' own scale is a start.",
    )


def mostly_first(run: RunMeasurements) -> HealthFinding | None:
    """Warn of a center that members rarely beat and that does not improve."""
    share = float(np.mean(run.center_rank_fraction == 0))
    if share < MOSTLY_FIRST or not _steps_every_time(run):
        return None
    return HealthFinding(
        "sigma_too_large",
        "warning",
        f"The rank of the centre is 1 in {_percent(share)} of generations, and the return does not "
        "rise: sigma is too large or the population too small.",
        "Halve sigma, or double population_size.",
    )


def same_returns(run: RunMeasurements) -> HealthFinding | None:
    """Warn if all members have the same return."""
    same = run.population_return_min == run.population_return_max
    share = float(np.mean(same))
    if share < SAME_RETURNS:
        return None
    values = np.unique(run.population_return_max[same])
    what = f", always {_number(float(values[0]))}" if values.size == 1 else ""
    return HealthFinding(
        "constant_reward",
        "warning",
        f"All members have the same return in {_percent(share)} of generations{what}: there is "
        "nothing to learn from.",
        "Check that the reward depends on what the policy does; if it does but is never reached, "
        "raise sigma, shape the reward, or try novelty search (ns_es).",
    )


def no_information(run: RunMeasurements) -> HealthFinding | None:
    """Warn if the center is no better than its members and the ranking is random."""
    ranks = run.center_rank_fraction
    mean, (low, high) = float(ranks.mean()), uniform_band(_members(run), run.generations)
    signal = mean_interval(run.split_half_cosine)[1]
    returns = _returns(run)
    still = bool(returns) and all(gain(values) < spread(run) for values in returns)
    if (
        run.generations < MIN_UNIFORM
        or signal > 0
        or not (still and low <= mean <= high and _looks_uniform(ranks))
    ):
        return None
    ratio = (
        f" and the update's signal-to-noise ratio {_ratio(run)}" if math.isfinite(signal) else ""
    )
    return HealthFinding(
        "no_information",
        "warning",
        f"The rank of the centre is uniform (mean {mean:.2f}; chance gives {low:.2f} to {high:.2f})"
        f"{ratio}: sigma is too small, or the episodes are too noisy, for the update to carry "
        "information.",
        "Raise sigma; if that does not help, raise episodes_per_member or population_size.",
    )


def mostly_tied(run: RunMeasurements) -> HealthFinding | None:
    """Warn if almost all returns are tied."""
    share = float(np.nanmean(run.tied_returns)) if np.isfinite(run.tied_returns).any() else 0.0
    if share < MOSTLY_TIED:
        return None
    return HealthFinding(
        "tied_returns",
        "warning",
        f"{_percent(share)} of the members share their return with another one, and the return "
        "does not rise: the ranking tells little.",
        "Raise sigma or episodes_per_member, or give the reward finer steps.",
    )


def not_finite(run: RunMeasurements) -> HealthFinding | None:
    """Warn of members whose returns are not finite."""
    share = float(run.non_finite.sum() / run.population_size.sum())
    if share < NOT_FINITE:
        return None
    return HealthFinding(
        "not_finite",
        "warning",
        f"The return of {_percent(share)} of the members is not finite.",
        "Look for actions or rewards that overflow; lower sigma or the learning rate, or add "
        "weight_decay.",
    )


def drifting(run: RunMeasurements) -> HealthFinding | None:
    """Note that observation statistics still drift."""
    late = thirds(run.observation_drift)[2]
    if not late >= DRIFTING:
        return None
    return HealthFinding(
        "observation_drift",
        "note",
        f"In the last third, a generation still changes what the policy sees by {late:.2g} "
        "deviations of an input.",
        "Look for observations that grow without bounds, or set policy.normalize_observations = "
        "false.",
    )


def novelty(run: RunMeasurements) -> HealthFinding | None:
    """Say that a novelty search is not judged by its returns."""
    if run.seeks_returns:
        return None
    said = "The search follows novelty, so that its returns need not rise: they are not judged."
    return HealthFinding("novelty", "ok", said)


def solved(run: RunMeasurements) -> HealthFinding | None:
    """Say that all members have reached the best return."""
    last = run.generations // BLOCKS
    same = run.population_return_min[-last:] == run.population_return_max[-last:]
    best = float(run.population_return_max.max())
    if not (climbs(run) and same.all() and run.population_return_max[-1] == best):
        return None
    return HealthFinding(
        "solved",
        "ok",
        f"The return has risen until all members have {_number(best)}, the best of the run: "
        "solved, or as good as its episodes can tell.",
    )


def climbing(run: RunMeasurements) -> HealthFinding | None:
    """Say how far the return rises and whether it still does."""
    if not climbs(run):
        return None
    late = run.generations // 2
    flat = [not trend(values[late:])[1] > 0 for values in _returns(run)]
    end = "; it has levelled off in the second half" if all(flat) else ""
    return HealthFinding("climbing", "ok", f"The return rises: {_way(run)}{end}.")


def falling(run: RunMeasurements) -> HealthFinding | None:
    """Note a fall that no other rule explains."""
    returns = _returns(run)
    if not (returns and all(gain(values) < -spread(run) for values in returns)):
        return None
    return HealthFinding(
        "falling",
        "note",
        f"The return falls: {_way(run)}.",
        "Lower learning_rate, or let it decay (learning_rate_decay).",
    )


def unclear(run: RunMeasurements) -> HealthFinding | None:
    """Say that the return has not clearly risen."""
    return HealthFinding(
        "unclear",
        "ok",
        f"The return has not clearly risen in {run.generations} generations: {_way(run)}.",
        "No rule found a cause; more steps may tell.",
    )


def rank(run: RunMeasurements) -> HealthFinding | None:
    """Say how many members beat the center, beside the band of chance."""
    ranks = run.center_rank_fraction
    if not np.isfinite(ranks).all():
        return None
    (low, high), (slope, least, most) = uniform_band(_members(run), run.generations), trend(ranks)
    moving = "rising" if least > 0 else "falling" if most < 0 else "without a trend"
    by = "" if moving == "without a trend" else f" by {abs(slope):.2g} a generation"
    return HealthFinding(
        "rank",
        "ok",
        f"On average {_percent(float(ranks.mean()))} of the members beat the centre, {moving}{by}; "
        f"if perturbing changed nothing, it would be {_percent(low)} to {_percent(high)}.",
    )


def signal(run: RunMeasurements) -> HealthFinding | None:
    """Say the signal-to-noise ratio of the update."""
    low = mean_interval(run.split_half_cosine)[1]
    if not math.isfinite(low):
        return None
    clear = "" if low > 0 else ", which may be chance"
    return HealthFinding(
        "signal_to_noise",
        "ok",
        f"The signal-to-noise ratio of an update is {_ratio(run)}{clear}.",
    )


Rule: TypeAlias = Callable[[RunMeasurements], HealthFinding | None]
# Of ``SICKNESSES`` and ``PROGRESS`` only the first rule that applies counts: later ones may be its
# effects. A step that is too long, for example, soon makes all returns equal.
SICKNESSES: Final[tuple[Rule, ...]] = (
    long_step, short_step, same_returns, mostly_first, no_information, mostly_tied,
)  # fmt: skip
PROGRESS: Final[tuple[Rule, ...]] = (novelty, solved, climbing, falling, unclear)
ALWAYS: Final[tuple[Rule, ...]] = (not_finite, drifting)
SIGNS: Final[tuple[Rule, ...]] = (rank, signal)


def _first(run: RunMeasurements, rules: tuple[Rule, ...]) -> list[HealthFinding]:
    return [finding for rule in rules if (finding := rule(run))][:1]


def _members(run: RunMeasurements) -> float:
    return float(np.median(run.population_size))


def _looks_uniform(fractions: Floats) -> bool:
    """Whether a Kolmogorov-Smirnov test does not reject that rank fractions are uniform.

    The test assumes continuous values; ranks pass it slightly more often.
    """
    from scipy.stats import kstest

    return bool(kstest(fractions, "uniform").pvalue > UNIFORM)


def _ratio(run: RunMeasurements) -> str:
    mean, low, high = map(signal_to_noise, mean_interval(run.split_half_cosine))
    return f"{mean:.2g} (95 % interval {low:.2g} to {high:.2g})"


def _beside_start(run: RunMeasurements) -> str:
    scale = float(run.center_norm[0]) / math.sqrt(run.num_params)
    return f"{float(np.median(run.sigma)):.2g} beside starting parameters of about {scale:.2g}"


def _way(run: RunMeasurements) -> str:
    returns = _returns(run)
    if not returns:
        return "in some of them it is not finite"
    values = returns[-1]
    who = "the centre's" if len(returns) == 2 else "the population's mean"
    start, _, end = thirds(values)
    return f"{who} is {_number(start)} in the first third and {_number(end)} in the last"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _factor(value: float) -> str:
    """A factor with one significant digit."""
    return f"{float(f'{value:.1g}'):g}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
