"""Settings that several algorithms share, under the same names; a family combines what it has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias, overload

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.shaping import Shaping
from esbench.arrays import Vector
from esbench.errors import UsageError
from esbench.settings import Settings

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
# Not strict about tuples: what a validator of the whole model has seen is no JSON array any more.
PerParameter: TypeAlias = Positive | Annotated[tuple[Positive, ...], Field(strict=False)]


class AlgorithmSettings(Settings):
    """Settings that every algorithm has."""

    # Of each group of names only one is set: a stronger layer's one displaces a weaker layer's.
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()

    population_size: Count | None = 64
    """Members a generation [members]."""

    center_init: float | Annotated[tuple[float, ...], Field(strict=False)] | None = None
    """Where the search starts: a number, or one for each parameter; by default the policy's own
    initialisation [parameter units]."""

    reward_shift: float = 0.0
    """Subtracted from every reward in training, on top of the environment's own shift: the alive
    bonus, in ARS [reward]."""

    @property
    def uses_pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are an antithetic pair."""
        return False

    @property
    def normalizes_observations(self) -> bool | None:
        """Whether the policy must normalise its observations; None leaves it to the policy."""
        return None


class GrowingSettings(AlgorithmSettings):
    """Settings of algorithms whose population can grow within a generation."""

    num_interactions: Annotated[int, Field(ge=0)] = 0
    """Environment steps a generation must make at least; the population grows by its own size
    until it has [environment steps]."""

    min_episodes: Annotated[int, Field(ge=0)] = 0
    """Episodes a generation must play at least, by the same growth [episodes]."""

    population_size_max: Count | None = None
    """Where that growth ends; by default nowhere [members]."""

    @property
    def _may_not_use_pairs(self) -> bool:
        return "antithetic" in type(self).model_fields

    @model_validator(mode="after")
    def _check_sizes(self) -> GrowingSettings:
        for name in ("population_size", "population_size_max"):
            size = getattr(self, name)
            if self.uses_pairs and size is not None and size % 2:
                instead = " (or set antithetic = false)" if self._may_not_use_pairs else ""
                raise ValueError(
                    f"{name} = {size}: expected an even number, because members come in "
                    f"antithetic pairs{instead}"
                )
        size, most = self.population_size, self.population_size_max
        if size is not None and most is not None and most < size:
            raise ValueError(
                f"population_size_max = {most}: expected at least population_size ({size})"
            )
        return self


class FirstDeviationSettings(AlgorithmSettings):
    """Settings of algorithms that start with a deviation."""

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("sigma", "radius"),)

    sigma: PerParameter | None = None
    """Deviation of the population: a number, or one for each parameter [parameter units]."""

    radius: Positive | None = None
    """Instead of sigma: the expected distance of a member from the centre, so that sigma is
    radius / sqrt(P) [parameter units]."""

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

    def initial_sigma(self, num_params: int) -> float | tuple[float, ...]:
        """Return the deviation that the search starts with."""
        if self.radius is not None:
            return float(self.radius / np.sqrt(num_params))
        assert self.sigma is not None, "validated above"
        return self.sigma

    def initial_scale(self, num_params: int) -> float:
        """Return ``initial_sigma`` where ``sigma`` is declared to be one number."""
        sigma = self.initial_sigma(num_params)
        assert isinstance(sigma, float), "validated by the field's type"
        return sigma


class DeviationSettings(FirstDeviationSettings, GrowingSettings):
    """Settings of algorithms that sample about a centre."""


class DecayingDeviationSettings(DeviationSettings):
    """Settings of algorithms that do not learn the deviation."""

    sigma_decay: Fraction = 1.0
    """What the deviation is multiplied by after every generation."""

    sigma_min: Positive | None = None
    """Where that ends; by default at nothing [parameter units]."""

    @model_validator(mode="after")
    def _starts_above_its_minimum(self) -> DecayingDeviationSettings:
        least, sigma = self.sigma_min, self.sigma
        if least is not None and sigma is not None and least > np.min(sigma):
            raise ValueError(f"sigma_min = {least}: expected at most sigma ({np.min(sigma)})")
        return self

    def initial_sigma(self, num_params: int) -> float | tuple[float, ...]:
        """Return the deviation that the search starts with.

        Raises:
            UsageError: that of the radius is below the smallest.
        """
        sigma, least = super().initial_sigma(num_params), self.sigma_min
        if least is not None and least > np.min(sigma):
            raise UsageError(
                f"sigma_min = {least}: expected at most the deviation at the start "
                f"({np.min(sigma):.3g} with radius = {self.radius} and {num_params} parameters)"
            )
        return sigma

    @overload
    def decayed(self, sigma: float, generation: int) -> float: ...

    @overload
    def decayed(self, sigma: Vector, generation: int) -> Vector: ...

    def decayed(self, sigma: float | Vector, generation: int) -> float | Vector:
        """Return the deviation, a number or [P], after so many generations.

        Args:
            sigma: the one that the search starts with.
            generation: how often it has decayed.
        """
        now, least = sigma * self.sigma_decay**generation, self.sigma_min or 0.0
        return np.maximum(now, least) if isinstance(now, np.ndarray) else max(now, least)


class AdaptiveDeviationSettings(DeviationSettings):
    """Settings of algorithms that adapt a deviation for each parameter."""

    sigma_min: Positive | None = None
    """Smallest deviation [parameter units]."""

    sigma_max: Positive | None = None
    """Largest deviation [parameter units]."""

    sigma_max_change: Positive | None = None
    """Largest relative change of a deviation in one update, such as 0.2."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> AdaptiveDeviationSettings:
        low, high = self.sigma_min, self.sigma_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"sigma_min = {low}: expected at most sigma_max ({high})")
        return self

    def controlled(self, old: Vector, new: Vector) -> Vector:
        """Return ``new`` deviations [P] within the bounds, and near enough to the ``old`` ones."""
        low = np.full_like(old, 0.0 if self.sigma_min is None else self.sigma_min)
        high = np.full_like(old, np.inf if self.sigma_max is None else self.sigma_max)
        if self.sigma_max_change is not None:
            low = np.maximum(low, old - self.sigma_max_change * old)
            high = np.minimum(high, old + self.sigma_max_change * old)
        return np.minimum(np.maximum(new, low), high)


class SigmaRateSettings(Settings):
    """Settings of algorithms that learn the deviation with a rate."""

    sigma_learning_rate: NonNegative | None = None
    """Learning rate of the deviation."""

    sigma_learning_rate_decay: Fraction = 1.0
    """What the deviation's learning rate is multiplied by after every generation."""

    def sigma_rate(self, generation: int, default: float = 0.0) -> float:
        """Return the deviation's learning rate after so many generations."""
        given = self.sigma_learning_rate
        return (default if given is None else given) * self.sigma_learning_rate_decay**generation


class AscentSettings(Settings):
    """Settings of algorithms that climb a gradient estimate with an optimizer."""

    learning_rate: Positive = 0.01
    """Learning rate of the optimizer."""

    learning_rate_decay: Fraction = 1.0
    """What the learning rate (and ClipUp's largest speed) is multiplied by after every
    generation."""

    optimizer: str = "adam"
    """adam, sgd, clipup or another class of torch.optim, in any case."""

    optimizer_settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the optimizer, such as momentum, max_speed or betas."""

    weight_decay: NonNegative = 0.0
    """L2 coefficient: this much of the centre is subtracted from the gradient estimate."""


class ShapingSettings(Settings):
    """Settings of algorithms that shape the returns."""

    shaping: Shaping = "centered"
    """What returns are turned into before they are averaged: centered (ranks in [-0.5, 0.5]), nes
    (logarithmic utilities), linear (ranks in [0, 1]), normalized (z-scores) or raw."""


class PairSettings(GrowingSettings):
    """Settings of algorithms that may sample in mirrored pairs."""

    antithetic: bool = True
    """Whether to sample in pairs, centre plus and minus the same noise."""

    @property
    def uses_pairs(self) -> bool:
        """Whether the noise is mirrored."""
        return self.antithetic
