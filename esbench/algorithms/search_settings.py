"""Settings that several algorithms share; the settings of an algorithm combine these classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.shaping import Shaping
from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, shown
from esbench.core.population import Growth
from esbench.core.search_space import Tune
from esbench.core.settings import Count, CountOrZero, Settings, TrainerSettings

MOST_MEMBERS: Final = 10_000_000

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Members: TypeAlias = Annotated[int, Field(ge=1, le=MOST_MEMBERS)]
AtLeastTwo: TypeAlias = Annotated[int, Field(ge=2, le=MOST_MEMBERS)]  # members
# Not strict, because a "before" validator of the model turns the JSON array into a Python list.
Numbers: TypeAlias = Annotated[tuple[float, ...], Field(strict=False)]
PerParameter: TypeAlias = Positive | Annotated[tuple[Positive, ...], Field(strict=False)]


class AlgorithmSettings(TrainerSettings, ABC):
    """Settings that every algorithm has."""

    # Whether members always come in antithetic pairs; else the setting ``antithetic`` decides.
    always_uses_pairs: ClassVar[bool] = False

    population_size: Annotated[Members | None, Tune(choices=(16, 32, 64, 128))] = 64
    """Members per generation [members]."""

    center_init: float | Numbers | None = None
    """Where the search starts: one number, or one per parameter; by default the initial parameters
    of the policy [parameter units]."""

    reward_shift: float = 0.0
    """Subtracted from every training reward, in addition to the shift of the environment, such as
    the alive bonus in ARS [reward]."""

    center_average: Annotated[Count, Field(exclude_if=lambda span: span == 1)] = 1
    """The scored policy is an exponential moving average of the centers with this span; 1 is the
    last center [generations]."""

    @final
    @property
    def uses_pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are an antithetic pair."""
        return self.always_uses_pairs or bool(getattr(self, "antithetic", False))


class NormalizationSettings(AlgorithmSettings, ABC):
    """Settings of algorithms that decide whether the policy normalizes its observations.

    Attributes:
        normalization_setting: the name of the setting that decides.
    """

    normalization_setting: ClassVar[str]

    @property
    @abstractmethod
    def normalizes_observations(self) -> bool:
        """Whether the policy normalizes its observations."""


class GrowingSettings(AlgorithmSettings, ABC):
    """Settings of algorithms whose population can grow within a generation."""

    num_interactions: CountOrZero = 0
    """Minimum number of environment steps per generation: the population grows by its initial size
    until they are reached [environment steps]."""

    min_episodes: CountOrZero = 0
    """Minimum number of episodes per generation, reached by the same growth [episodes]."""

    population_size_max: Members | None = None
    """Largest size to which the population may grow; unlimited by default [members]."""

    @final
    @property
    def growth(self) -> Growth:
        """How the population grows within a generation."""
        return Growth(self.num_interactions, self.min_episodes, self.population_size_max)

    @model_validator(mode="after")
    def _check_sizes(self) -> GrowingSettings:
        size, most = self.population_size, self.population_size_max
        for name, value in (("population_size", size), ("population_size_max", most)):
            if self.uses_pairs and value is not None and value % 2:
                instead = "" if self.always_uses_pairs else " (or set antithetic = false)"
                raise ValueError(
                    f"{name} = {value}: expected an even number, because members come in "
                    f"antithetic pairs{instead}"
                )
        if most is not None and not (self.num_interactions or self.min_episodes):
            raise ValueError(
                f"population_size_max = {most}: expected num_interactions or min_episodes as well, "
                "without which a population does not grow"
            )
        if size is not None:
            self.require_room(size)
        return self

    @final
    def require_room(self, size: int) -> None:
        """Raise a UsageError if ``population_size_max`` is below the initial size."""
        most = self.population_size_max
        if most is not None and most < size:
            raise UsageError(
                f"population_size_max = {most}: expected at least population_size ({size})"
            )


class PairSettings(GrowingSettings, ABC):
    """Settings of algorithms that can sample antithetic pairs."""

    antithetic: bool = True
    """Whether to sample in pairs: the center plus and minus the same noise."""

    @model_validator(mode="after")
    def _compares_members(self) -> PairSettings:
        grows = (self.num_interactions or self.min_episodes) and self.population_size_max != 1
        if self.population_size == 1 and not grows:
            raise ValueError(
                "population_size = 1: expected at least 2, because a search compares members; or a "
                "population that grows, with num_interactions or min_episodes"
            )
        return self


class FirstDeviationSettings(AlgorithmSettings, ABC):
    """Settings of algorithms that start with a given standard deviation."""

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("sigma", "radius"),)

    sigma: PerParameter | None = None
    """Standard deviation of the population at the start: one number, or one per parameter
    [parameter units]."""

    radius: Positive | None = None
    """Alternative to sigma: the expected distance between a member and the center, so that sigma
    is radius / sqrt(P) for P parameters [parameter units]."""

    @model_validator(mode="before")
    @classmethod
    def _radius_displaces_the_default(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("radius") is not None and "sigma" not in values:
            return {**values, "sigma": None}
        return values

    @model_validator(mode="after")
    def _one_deviation(self) -> FirstDeviationSettings:
        if (self.sigma is None) == (self.radius is None):
            given = f"sigma = {self.sigma} and radius = {self.radius}"
            raise ValueError(f"{given}: expected exactly one of them")
        return self

    @final
    def initial_sigma(self, num_params: int) -> float | Vector:
        """The standard deviation at the start, a number or [P]; UsageError for another length."""
        for name in ("sigma_min", "sigma_max"):  # of subclasses
            fitting(name, getattr(self, name, 0.0), num_params)
        if self.radius is not None:
            return float(self.radius / np.sqrt(num_params))
        assert self.sigma is not None, "validated above"
        return fitting("sigma", self.sigma, num_params)


class DeviationSettings(FirstDeviationSettings, GrowingSettings, ABC):
    """Settings of algorithms that sample around a center."""


class DecayingDeviationSettings(DeviationSettings, ABC):
    """Settings of algorithms that do not learn the standard deviation."""

    sigma_decay: Fraction = 1.0
    """Factor on the standard deviation after every generation."""

    sigma_min: PerParameter | None = None
    """Smallest standard deviation that the decay reaches, one number or one per parameter; no limit
    by default [parameter units]."""

    @model_validator(mode="after")
    def _starts_above_its_minimum(self) -> DecayingDeviationSettings:
        if self.sigma is not None:  # a radius needs the number of parameters
            self.check_minimum(self.sigma)
        return self

    @final
    def check_minimum(self, sigma: float | Sequence[float] | Vector) -> None:
        """Raise a UsageError if the deviation at the start is below ``sigma_min``."""
        if self.sigma_min is not None and _exceeds(self.sigma_min, sigma):
            given = "sigma" if self.radius is None else f"the sigma of radius = {self.radius}"
            raise UsageError(_out_of_order("sigma_min", self.sigma_min, given, sigma))


class AdaptiveDeviationSettings(DeviationSettings, ABC):
    """Settings of algorithms that adapt one standard deviation per parameter."""

    sigma_min: PerParameter | None = None
    """Smallest standard deviation: one number, or one per parameter [parameter units].

    Updates move a start outside of the bounds to them: from above ``sigma_max`` in one update, from
    below ``sigma_min`` by at most ``sigma_max_change`` per update.
    """

    sigma_max: PerParameter | None = None
    """Largest standard deviation: one number, or one per parameter [parameter units]."""

    sigma_max_change: Positive | None = None
    """Largest relative change of a standard deviation in one update, such as 0.2."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> AdaptiveDeviationSettings:
        low, high = self.sigma_min, self.sigma_max
        if low is not None and high is not None and _exceeds(low, high):
            raise ValueError(_out_of_order("sigma_min", low, "sigma_max", high))
        return self

    @final
    def controlled(self, old: Vector, new: Vector) -> Vector:
        """``new`` deviations [P], clipped to the bounds and to the largest change from ``old``."""
        low: float | Vector = np.asarray(self.sigma_min or 0.0)
        high: float | Vector = np.asarray(self.sigma_max or np.inf)
        if self.sigma_max_change is not None:
            low = np.maximum(low, old - self.sigma_max_change * old)
            high = np.minimum(high, old + self.sigma_max_change * old)
        return np.minimum(np.maximum(new, low), high)


class SigmaRateSettings(Settings, ABC):
    """Settings of algorithms that learn the standard deviation with a learning rate."""

    sigma_learning_rate: NonNegative | None = None
    """Learning rate of the standard deviation."""

    sigma_learning_rate_decay: Fraction = 1.0
    """Factor on the learning rate of the standard deviation after every generation."""

    @final
    def sigma_rate(self, generation: int, default: float = 0.0) -> float:
        """The learning rate of the standard deviation after ``generation`` decays."""
        given = self.sigma_learning_rate
        return (default if given is None else given) * self.sigma_learning_rate_decay**generation


class AscentSettings(Settings, ABC):
    """Settings of algorithms that follow a gradient estimate with an optimizer."""

    learning_rate: Positive = 0.01
    """Learning rate of the optimizer."""

    learning_rate_decay: Fraction = 1.0
    """Factor on the learning rate (and on ClipUp's maximum speed) after every generation."""

    optimizer: str = "adam"
    """Name of the optimizer: adam, sgd, clipup or another class of torch.optim, where upper and
    lower case are equivalent; or "package.file:Class" with the interface of torch.optim."""

    optimizer_settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the optimizer, such as momentum, max_speed or betas."""

    weight_decay: NonNegative = 0.0
    """L2 coefficient: this multiple of the center is subtracted from the gradient estimate."""


class ShapingSettings(Settings, ABC):
    """Settings of algorithms that transform returns into utilities."""

    shaping: Shaping = "centered"
    """Fitness shaping, which turns returns into utilities: centered (ranks in [-0.5, 0.5]), nes
    (logarithmic utilities), linear (ranks in [0, 1]), normalized (z-scores) or raw."""


def _exceeds(low: float | Sequence[float] | Vector, high: float | Sequence[float] | Vector) -> bool:
    """Whether a limit exceeds another anywhere; vectors of two lengths are refused elsewhere."""
    low, high = np.atleast_1d(low), np.atleast_1d(high)
    return (low.size == high.size or 1 in {low.size, high.size}) and bool(np.any(low > high))


def _out_of_order(
    low_name: str,
    low: float | Sequence[float],
    high_name: str,
    high: float | Sequence[float] | Vector,
) -> str:
    """The first parameter for which a lower limit exceeds an upper one, as a message."""
    lows, highs = np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high))
    first = int(np.argmax(lows > highs))
    of = f" of parameter {first}" if lows.size > 1 else ""
    least, most = float(lows[first]), float(highs[first])
    return f"{low_name}{of} = {least}: expected at most {high_name}{of} ({most})"


def fitting(name: str, value: float | tuple[float, ...], num_params: int) -> float | Vector:
    """A setting that is one number, or one per parameter as [P]; UsageError for another length."""
    if not isinstance(value, tuple):
        return value
    if len(value) != num_params:
        raise UsageError(
            f"{name} = {shown(list(value))}: expected a number, or a list of {num_params}, one per "
            "parameter"
        )
    return np.array(value)
