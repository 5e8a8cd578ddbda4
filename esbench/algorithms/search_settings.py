"""The settings that all searches have, and the types of those that several have.

An algorithm lists its own settings in its own file. Below are the fields that it inherits, and
types with a description for fields that several algorithms have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Final, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.shaping import Shaping
from esbench.core.arguments import Arguments
from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, shown
from esbench.core.population import Growth
from esbench.core.search_space import Tune
from esbench.core.settings import Count, CountOrZero, TrainerSettings

MOST_MEMBERS: Final = 10_000_000

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Members: TypeAlias = Annotated[int, Field(ge=1, le=MOST_MEMBERS)]
AtLeastTwo: TypeAlias = Annotated[int, Field(ge=2, le=MOST_MEMBERS)]  # members
# Not strict, because a "before" validator of the model turns the JSON array into a Python list.
Numbers: TypeAlias = Annotated[tuple[float, ...], Field(strict=False)]
PerParameter: TypeAlias = Positive | Annotated[tuple[Positive, ...], Field(strict=False)]


def _about(description: str) -> Any:
    return Field(description=description)


SigmaDecay: TypeAlias = Annotated[
    Fraction, _about("Factor on the standard deviation after every generation.")
]
SmallestDecayed: TypeAlias = Annotated[
    PerParameter | None,
    _about(
        "Smallest standard deviation that the decay reaches, one number or one per parameter; no "
        "limit by default [parameter units]."
    ),
]
SmallestSigma: TypeAlias = Annotated[
    PerParameter | None,
    _about(
        "Smallest standard deviation: one number, or one per parameter [parameter units]. Updates "
        "move a start outside of the bounds to them: from above ``sigma_max`` in one update, from "
        "below ``sigma_min`` by at most ``sigma_max_change`` per update."
    ),
]
LargestSigma: TypeAlias = Annotated[
    PerParameter | None,
    _about("Largest standard deviation: one number, or one per parameter [parameter units]."),
]
SigmaChange: TypeAlias = Annotated[
    Positive | None,
    _about("Largest relative change of a standard deviation in one update, such as 0.2."),
]
SigmaRate: TypeAlias = Annotated[
    NonNegative, _about("Learning rate of the standard deviation; 0 keeps it constant.")
]
SigmaRateDecay: TypeAlias = Annotated[
    Fraction,
    _about("Factor on the learning rate of the standard deviation after every generation."),
]
Antithetic: TypeAlias = Annotated[
    bool, _about("Whether to sample in pairs: the center plus and minus the same noise.")
]
FitnessShaping: TypeAlias = Annotated[
    Shaping,
    _about(
        "Fitness shaping, which turns returns into utilities: centered (ranks in [-0.5, 0.5]), nes "
        "(logarithmic utilities), linear (ranks in [0, 1]), normalized (z-scores) or raw."
    ),
]
LearningRate: TypeAlias = Annotated[Positive, _about("Learning rate of the optimizer.")]
LearningRateDecay: TypeAlias = Annotated[
    Fraction,
    _about("Factor on the learning rate (and on ClipUp's maximum speed) after every generation."),
]
OptimizerName: TypeAlias = Annotated[
    str,
    _about(
        "Name of the optimizer: adam, sgd, clipup or another class of torch.optim, where upper and "
        'lower case are equivalent; or "package.file:Class" with the interface of torch.optim.'
    ),
]
OptimizerSettings: TypeAlias = Annotated[
    Arguments, _about("Further arguments of the optimizer, such as momentum, max_speed or betas.")
]
WeightDecay: TypeAlias = Annotated[
    NonNegative,
    _about("L2 coefficient: this multiple of the center is subtracted from the gradient estimate."),
]


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


class GrowthSettings(AlgorithmSettings, ABC):
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
    def _check_sizes(self) -> GrowthSettings:
        size, most = self.population_size, self.population_size_max
        for name, value in (("population_size", size), ("population_size_max", most)):
            if self.uses_pairs and value is not None and value % 2:
                raise ValueError(
                    f"{name} = {value}: expected an even number, because members come in "
                    "antithetic pairs"
                )
        grows = self.num_interactions or self.min_episodes
        if most is not None and not grows:
            raise ValueError(
                f"population_size_max = {most}: expected num_interactions or min_episodes as well, "
                "without which a population does not grow"
            )
        if size is not None:
            self.require_room(size)
        if hasattr(self, "antithetic") and size == 1 and not (grows and most != 1):
            raise ValueError(
                "population_size = 1: expected at least 2, because a search compares members; or a "
                "population that grows, with num_interactions or min_episodes"
            )
        return self

    @final
    def require_room(self, size: int) -> None:
        """Raise a UsageError if ``population_size_max`` is below the initial size."""
        most = self.population_size_max
        if most is not None and most < size:
            raise UsageError(
                f"population_size_max = {most}: expected at least population_size ({size})"
            )


class SigmaSettings(AlgorithmSettings, ABC):
    """Settings of algorithms that sample around a center.

    If a subclass has the settings ``sigma_min`` or ``sigma_max``, they are checked too.
    """

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("sigma", "radius"),)

    sigma: PerParameter | None = None
    """Standard deviation of the population at the start: one number, or one per parameter
    [parameter units]."""

    radius: Positive | None = None
    """Alternative to sigma: the expected distance between a member and the center, so that sigma is
    radius / sqrt(P) for P parameters [parameter units]."""

    @model_validator(mode="after")  # one "before" would refuse lists for tuples of subclasses
    def _radius_displaces_the_default(self) -> SigmaSettings:
        if self.radius is not None and "sigma" not in self.model_fields_set:
            self.__dict__["sigma"] = None
            self.model_fields_set.add("sigma")
        return self

    @model_validator(mode="after")
    def _check_deviations(self) -> SigmaSettings:
        if (self.sigma is None) == (self.radius is None):
            raise ValueError(
                f"sigma = {self.sigma} and radius = {self.radius}: expected exactly one of them"
            )
        self._require_order("sigma_max", getattr(self, "sigma_max", None))
        if self.sigma is not None:  # a radius needs the number of parameters
            self._require_minimum(self.sigma)
        return self

    @final
    def _require_minimum(self, sigma: PerParameter | Vector) -> None:
        """Raise a UsageError if a deviation that only decays starts below ``sigma_min``."""
        if hasattr(self, "sigma_decay"):
            given = "sigma" if self.radius is None else f"the sigma of radius = {self.radius}"
            self._require_order(given, sigma)

    @final
    def _require_order(self, name: str, value: PerParameter | Vector | None) -> None:
        """Raise a UsageError if ``sigma_min`` exceeds a value."""
        low = getattr(self, "sigma_min", None)
        if low is None or value is None or len({np.size(low), np.size(value)} - {1}) > 1:
            return  # ``fitting`` refuses vectors of two lengths
        if np.any(np.asarray(low) > np.asarray(value)):
            high = np.asarray(value).tolist()
            raise UsageError(f"sigma_min = {shown(low)}: expected at most {name} ({high})")

    @final
    def initial_sigma(self, num_params: int) -> float | Vector:
        """The standard deviation at the start, a number or [P]; UsageError for another length."""
        for name in ("sigma_min", "sigma_max"):
            fitting(name, getattr(self, name, 0.0), num_params)
        if self.radius is not None:
            sigma: float | Vector = float(self.radius / np.sqrt(num_params))
        else:
            assert self.sigma is not None, "validated before"
            sigma = fitting("sigma", self.sigma, num_params)
        self._require_minimum(sigma)
        return sigma

    @final
    def limited(self, old: Vector, new: Vector) -> Vector:
        """``new`` deviations [P], within ``sigma_min``, ``sigma_max`` and ``sigma_max_change``."""
        low: float | Vector = np.asarray(getattr(self, "sigma_min", None) or 0.0)
        high: float | Vector = np.asarray(getattr(self, "sigma_max", None) or np.inf)
        if change := getattr(self, "sigma_max_change", None):
            low = np.maximum(low, old - change * old)
            high = np.minimum(high, old + change * old)
        return np.minimum(np.maximum(new, low), high)


class DeviationSettings(SigmaSettings, GrowthSettings, ABC):
    """Settings of algorithms that sample around a center, in a population that can grow."""


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
