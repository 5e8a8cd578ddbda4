"""The contract of every algorithm: ``ask`` for a population, ``tell`` its returns.

Returns are maximised: HIGHER IS BETTER, here and everywhere in esbench. An algorithm never sees the
evaluation of its own centre, an environment or a policy; it writes only its mathematics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt

from esbench.algorithms.noise import GaussianNoise
from esbench.algorithms.population import Population
from esbench.algorithms.settings import AlgorithmSettings
from esbench.arrays import Matrix, Shapes, Vector
from esbench.errors import TrainingError, UsageError
from esbench.registry import Registry
from esbench.seeding import noise_key

State = dict[str, Any]
PopulationT = TypeVar("PopulationT", bound=Population)


class Algorithm(ABC, Generic[PopulationT]):
    """A search over parameter vectors.

    A family implements ``_ask``, ``_tell``, ``_state_dict`` and ``_load_state_dict``; the methods
    without underscore check their input and count generations, and are final.

    Attributes:
        Settings: its typed settings.
        paper: where it was published.
        population_size: members a generation.
        needs_behaviors: whether ``tell`` must be given the members' behaviours.
        generation: the number of generations it was told.
        center_lineage: the lineage of ``center``, in a meta-population.
    """

    Settings: ClassVar[type[AlgorithmSettings]]
    paper: ClassVar[str] = ""
    needs_behaviors: ClassVar[bool] = False

    def __init__(
        self, settings: Any, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        """Start at ``center`` [P], or at ``center_init`` where the settings have one.

        Args:
            settings: of the class ``Settings``.
            center: [P].
            seed: names the noise streams.
            shapes: of the parameter tensors that lie in the vector; one vector by default.

        Raises:
            UsageError: a setting does not fit the number of parameters.
        """
        self.settings = settings
        self.seed = seed
        self.population_size = settings.population_size or default_size(
            center.size, settings.uses_pairs
        )
        self.generation = 0
        self.center_lineage = 0
        self.shapes = ((center.size,),) if shapes is None else shapes
        self._center = np.array(center, dtype=np.float64)
        if settings.center_init is not None:
            self._center[:] = fitting("center_init", settings.center_init, center.size)

    @property
    def center(self) -> Vector:
        """The parameters the search would return now, [P]; the unperturbed policy."""
        return self._center

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The deviation of the population now (its root mean square, where it is a vector)."""

    @final
    def ask(self) -> PopulationT:
        """Return this generation's population; asking again returns the same one."""
        return self._ask()

    @final
    def tell(
        self,
        population: PopulationT,
        returns: npt.ArrayLike,
        behaviors: npt.ArrayLike | None = None,
    ) -> None:
        """Learn from the returns of a population this algorithm was asked for.

        Args:
            population: from ``ask``, or that one ``extended``.
            returns: [N], one for each member, higher is better; not finite ranks worst.
            behaviors: [N, D], what each member did; only needed by novelty search.

        Raises:
            ValueError: not one return a member, or no behaviours where they are needed.
            TrainingError: no return is finite.
        """
        values = np.array(returns, dtype=np.float64)
        if values.shape != (len(population),):
            raise ValueError(f"returns of shape {values.shape}: expected ({len(population)},)")
        told = np.array(np.empty((values.size, 0)) if behaviors is None else behaviors, np.float64)
        if told.ndim != 2 or len(told) != values.size or (self.needs_behaviors and not told.size):
            raise ValueError(
                f"behaviors of shape {told.shape}: expected ({len(population)}, D), D at least 1"
            )
        if not population.probe and not np.isfinite(values).any():
            raise TrainingError(
                f"generation {self.generation}: none of the {values.size} returns is finite"
            )
        self._tell(population, values, told)
        self.generation += not population.probe

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

    @final
    def gaussian_noise(self) -> GaussianNoise:
        """Return this generation's standard normal noise."""
        return GaussianNoise(noise_key(self.seed, self.generation), self._center.size)

    @abstractmethod
    def _ask(self) -> PopulationT: ...

    @abstractmethod
    def _tell(self, population: PopulationT, returns: Vector, behaviors: Matrix) -> None: ...

    @abstractmethod
    def _state_dict(self) -> State: ...

    @abstractmethod
    def _load_state_dict(self, state: State) -> None: ...


def fitting(name: str, value: float | tuple[float, ...], num_params: int) -> float | Vector:
    """Return a setting that is a number or [P], as such.

    Raises:
        UsageError: it has another length.
    """
    if not isinstance(value, tuple):
        return value
    if len(value) != num_params:
        raise UsageError(
            f"{name} has {len(value)} numbers: expected one, or {num_params} (one a parameter)"
        )
    return np.array(value)


def default_size(num_params: int, pairs: bool) -> int:
    """Return 4 + floor(3 ln P) members (Hansen, "The CMA evolution strategy: a tutorial", eq. 48).

    One more if that is odd and they come in pairs.
    """
    size = 4 + int(3 * np.log(num_params))
    return size + (pairs and size % 2)


def scale_of(sigma: float | Vector) -> float:
    """Return a deviation as one number: the root mean square of a vector."""
    return float(np.sqrt(np.mean(np.square(sigma))))


ALGORITHMS: Final[Registry[Algorithm[Any]]] = Registry(
    "algorithm", "esbench.algorithms", "esbench.algorithms"
)
register_algorithm = ALGORITHMS.register
