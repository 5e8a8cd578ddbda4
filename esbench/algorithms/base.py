"""The contract of every algorithm: ``ask`` for a population, ``tell`` its returns.

Returns are maximised: HIGHER IS BETTER, here and everywhere in esbench. An algorithm never sees the
evaluation of its own centre, an environment or a policy; it writes only its mathematics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from esbench.errors import TrainingError
from esbench.population import Population, Vector
from esbench.settings import Settings

State = dict[str, Any]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class AlgorithmSettings(Settings):
    """Settings that every algorithm has.

    Attributes:
        population_size: members a generation.
        num_interactions: environment steps a generation must make at least; the population grows
            by ``population_size`` members at a time until it has (evotorch's name).
        min_episodes: episodes a generation must play at least, by the same growth.
        population_size_max: members at which that growth ends; none by default.
    """

    population_size: Count = 64
    num_interactions: Annotated[int, Field(ge=0)] = 0
    min_episodes: Annotated[int, Field(ge=0)] = 0
    population_size_max: Count | None = None

    @property
    def uses_pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are an antithetic pair."""
        return False

    @model_validator(mode="after")
    def _check_sizes(self) -> AlgorithmSettings:
        for name in ("population_size", "population_size_max"):
            size = getattr(self, name)
            if self.uses_pairs and size is not None and size % 2:
                raise ValueError(
                    f"{name} = {size}: expected an even number, because members come in "
                    "antithetic pairs (or set antithetic = false)"
                )
        if self.population_size_max is not None and self.population_size_max < self.population_size:
            raise ValueError(
                f"population_size_max = {self.population_size_max}: expected at least "
                f"population_size ({self.population_size})"
            )
        return self


class Algorithm(ABC):
    """A search over parameter vectors.

    A family implements ``_ask``, ``_tell``, ``_state_dict`` and ``_load_state_dict``; the methods
    without underscore check their input and count generations, and are final.
    """

    Settings: ClassVar[type[AlgorithmSettings]]

    def __init__(self, settings: Any, center: Vector, seed: int) -> None:
        """Start at ``center`` [P]; ``seed`` names the noise streams."""
        self.settings = settings
        self.seed = seed
        self.generation = 0
        self._center = np.array(center, dtype=np.float64)

    @property
    def center(self) -> Vector:
        """The parameters the search would return now, [P]; the unperturbed policy."""
        return self._center

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The deviation of the population now (its mean, where it is a vector)."""

    @final
    def ask(self) -> Population:
        """Return this generation's population; asking again returns the same one."""
        return self._ask()

    @final
    def tell(self, population: Population, returns: npt.ArrayLike) -> None:
        """Learn from the returns of a population this algorithm was asked for.

        Args:
            population: from ``ask``, or that one ``extended``.
            returns: [N], one for each member, higher is better; not finite ranks worst.

        Raises:
            ValueError: not one return a member.
            TrainingError: no return is finite.
        """
        values = np.array(returns, dtype=np.float64)
        if values.shape != (len(population),):
            raise ValueError(f"returns of shape {values.shape}: expected ({len(population)},)")
        if not np.isfinite(values).any():
            raise TrainingError(
                f"generation {self.generation}: none of the {values.size} returns is finite"
            )
        self._tell(population, values)
        self.generation += 1

    @final
    def state_dict(self) -> State:
        """Return the whole state: arrays, numbers and tables of them; a copy."""
        return {
            "generation": self.generation,
            "center": self._center.copy(),
            **self._state_dict(),
        }

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned; the search goes on bit for bit.

        Raises:
            ValueError: the state is of another number of parameters.
        """
        rest = dict(state)
        center = np.array(rest.pop("center"), dtype=np.float64)
        if center.shape != self._center.shape:
            raise ValueError(f"state of {center.size} parameters: expected {self._center.size}")
        self.generation = int(rest.pop("generation"))
        self._center = center
        self._load_state_dict(rest)

    @abstractmethod
    def _ask(self) -> Population: ...

    @abstractmethod
    def _tell(self, population: Population, returns: Vector) -> None: ...

    @abstractmethod
    def _state_dict(self) -> State: ...

    @abstractmethod
    def _load_state_dict(self, state: State) -> None: ...
