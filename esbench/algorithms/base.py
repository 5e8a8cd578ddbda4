"""The interface of every algorithm: ``ask`` for a population, ``tell`` its returns.

Returns are maximized: HIGHER IS BETTER, here and everywhere in esbench. An algorithm never sees the
evaluation of its own center, an environment or a policy.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt

from esbench.algorithms.optimizers import Ascent
from esbench.algorithms.search_settings import AlgorithmSettings, DeviationSettings, fitting
from esbench.algorithms.shaping import all_equal
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import TrainingError, UsageError, error_text, shown
from esbench.core.noise import GaussianNoise, Noise
from esbench.core.population import EvaluationPlan, Population, SampledPopulation
from esbench.core.registry import Registry, root_of
from esbench.core.seeding import noise_key
from esbench.core.user_code import import_object

PopulationT = TypeVar("PopulationT", bound=Population)


class Algorithm(ABC, Generic[PopulationT]):
    """A search over parameter vectors.

    A subclass implements the property ``sigma``, ``_ask``, ``_tell``, ``_state_dict`` and
    ``_load_state_dict``. The methods without underscore check their input, count generations and
    are final.

    Attributes:
        Settings: the class of its settings.
        paper: where it was published.
        needs_behaviors: whether ``tell`` requires the behaviors of the members.
        uses_equal_returns: whether ``_tell`` is also called when the returns of several members are
            all equal. By default such a generation changes nothing: no step, no momentum, no decay.
        uses_seed: whether the members depend on the seed, as in every search that draws them;
            False for one that computes them, as the method of Nelder and Mead.
        population_size: members per generation.
        generation: the number of completed generations.
        plan: how the trainer evaluates the next population.
        member_data: what the latest ``tell`` computed, for ``esbench run --record members``: names
            to numbers or arrays, [N] or [N, D].
    """

    Settings: ClassVar[type[AlgorithmSettings]]
    paper: ClassVar[str] = ""
    needs_behaviors: ClassVar[bool] = False
    uses_equal_returns: ClassVar[bool] = False
    uses_seed: ClassVar[bool] = True

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        """Start at ``center`` [P], or at ``center_init`` if the settings have one.

        ``shapes`` are those of the parameter tensors in the vector, one vector by default.

        Raises:
            UsageError: a setting does not fit the number of parameters.
        """
        self.settings = settings
        self.seed = seed
        # By default as in CMA-ES: equation 48 of Hansen, "The CMA evolution strategy: a tutorial",
        # arXiv:1604.00772; rounded up to an even number if members come in pairs.
        size = 4 + int(3 * np.log(center.size))
        self.population_size = settings.population_size or size + (settings.uses_pairs and size % 2)
        self.generation = 0
        self.plan = EvaluationPlan()
        if isinstance(settings, DeviationSettings):
            settings.require_room(self.population_size)
            self.plan = EvaluationPlan(growth=settings.growth)
        self.member_data: dict[str, npt.ArrayLike] = {}
        self.shapes = shapes or ((center.size,),)
        self._center = np.array(center, dtype=np.float64)
        if settings.center_init is not None:
            self._center[:] = fitting("center_init", settings.center_init, center.size)
        self._average = self._center.copy() if settings.center_average > 1 else None

    @property
    def center(self) -> Vector:
        """The parameters of the unperturbed policy, around which the search samples, [P].

        A copy, because a search may update its center in place.
        """
        return self._center.copy()

    @final
    @property
    def averaged_center(self) -> Vector:
        """The moving average of the centers, which the search would return now, [P].

        With ``center_average = 1``, the default, it is the center.
        """
        return self.center if self._average is None else self._average

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The deviation of the population; if it is a vector, its root mean square."""

    @final
    def ask(self) -> PopulationT:
        """The population to evaluate next; the same one until ``tell`` is called."""
        return replace(self._ask(), asked=self._turn)

    @final
    def tell(
        self,
        population: PopulationT,
        returns: npt.ArrayLike,
        behaviors: npt.ArrayLike | None = None,
    ) -> None:
        """Learn from the returns of a population.

        Args:
            population: from ``ask``, or that population ``extended``.
            returns: one per member, [N]; higher is better, and one that is not finite is worst.
            behaviors: what each member did, [N, D]; required if ``needs_behaviors``.

        Raises:
            UsageError: the population is of another generation or algorithm, or the shape of
                ``returns`` or ``behaviors`` is wrong, or they are no numbers.
            TrainingError: no return is finite.
        """
        self._require_current(population)
        values = _numbers("returns", returns)
        if values.shape != (len(population),):
            raise UsageError(f"returns of shape {values.shape}: expected ({len(population)},)")
        told = np.empty((len(values), 0)) if behaviors is None else _numbers("behaviors", behaviors)
        if told.ndim != 2 or len(told) != len(values) or (self.needs_behaviors and not told.size):
            raise UsageError(
                f"behaviors of shape {told.shape}: expected ({len(population)}, D), D at least 1"
            )
        self.member_data = {}
        probe = self.plan.probe
        if not probe and not np.isfinite(values).any():
            why = "a reward, an observation or an output of the policy is not a number"
            if not np.isfinite(self.center).all():
                why = f"the center of {type(self).__name__} is not finite"
            raise TrainingError(
                f"generation {self.generation + 1}: none of the {values.size} returns is finite: "
                f"{why}"
            )
        if probe or self.uses_equal_returns or values.size == 1 or not all_equal(values):
            with np.errstate(all="ignore"):  # the trainer reports a divergence, once
                self._tell(population, values, told)
        if probe:
            return
        self.generation += 1
        if self._average is not None:  # at first, the mean of the centers
            rate = max(2.0 / (self.settings.center_average + 1.0), 1.0 / self.generation)
            self._average = (1.0 - rate) * self._average + rate * self._center

    @final
    def state_dict(self) -> State:
        """A copy of the whole state, made of arrays, numbers and dictionaries."""
        average = {} if self._average is None else {"average": self._average.copy()}
        return {
            "algorithm": type(self).__name__,
            "generation": self.generation,
            "center": self._center.copy(),
            **average,
            **self._state_dict(),
        }

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned; the search continues with the same bits.

        Raises:
            UsageError: it is not a state of this algorithm for as many parameters. Nothing is
                changed then.
        """
        before, name = self.state_dict(), type(self).__name__
        try:
            if state.get("algorithm", name) != name:
                raise ValueError(f"of the algorithm {shown(state['algorithm'])}")
            self._restore(state)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            self._restore(before)
            raise UsageError(f"the state is not one of {name!r}: {error_text(error)}") from error

    @final
    def _restore(self, state: State) -> None:
        rest = {key: value for key, value in state.items() if key != "algorithm"}
        center, average = np.array(rest.pop("center"), dtype=np.float64), self._average
        if average is not None:
            average = np.array(rest.pop("average"), dtype=np.float64)
        for vector in (center, center if average is None else average):
            if vector.shape != self._center.shape:
                raise ValueError(f"{vector.size} parameters: expected {self._center.size}")
        self.generation = int(rest.pop("generation"))
        self._center, self._average = center, average
        self._load_state_dict(rest)

    @final
    @property
    def _turn(self) -> tuple[str, int, int, bool]:
        """What ``asked`` of the next population is."""
        return type(self).__name__, self.seed, self.generation, self.plan.probe

    @final
    def _require_current(self, population: PopulationT) -> None:
        """Raises UsageError if a population is not what ``ask`` returns now."""
        if not isinstance(population, Population):
            raise UsageError(f"population = {shown(population)}: expected that of ask()")
        if population.asked is not None and population.asked != self._turn:
            seen, expected = (
                f"{name} with seed {seed} in generation {generation}{' (a probe)' if probe else ''}"
                for name, seed, generation, probe in (population.asked, self._turn)
            )
            raise UsageError(f"a population of {seen}: expected that of {expected}, from ask()")

    @final
    def gaussian_noise(self) -> GaussianNoise:
        """The standard normal noise of this generation."""
        return GaussianNoise(noise_key(self.seed, self.generation), self._center.size)

    @final
    def sampled(
        self, sigma: float | Matrix, noise: Noise | None = None, center: Vector | None = None
    ) -> SampledPopulation:
        """Members center + sigma * noise, in pairs if the settings say so; sigma [], [P] or [P, P].

        By default with ``gaussian_noise`` around the center of the search.
        """
        return SampledPopulation(
            center=self.center if center is None else center,
            sigma=sigma,
            noise=noise or self.gaussian_noise(),
            size=self.population_size,
            antithetic=self.settings.uses_pairs,
        )

    @abstractmethod
    def _ask(self) -> PopulationT: ...

    @abstractmethod
    def _tell(self, population: PopulationT, returns: Vector, behaviors: Matrix) -> None: ...

    @abstractmethod
    def _state_dict(self) -> State: ...

    @abstractmethod
    def _load_state_dict(self, state: State) -> None: ...


def _numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A copy of an array of numbers; UsageError if it has anything else."""
    try:
        return np.array(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}; expected numbers") from error


def scale_of(sigma: float | Vector) -> float:
    """A deviation as one number: the root mean square of a vector."""
    with np.errstate(over="ignore"):  # the trainer reports a divergence
        return float(np.sqrt(np.mean(np.square(sigma))))


class DecayingSearch(Algorithm[PopulationT], ABC):
    """A search whose standard deviation depends on the generation only.

    Its settings are ``DeviationSettings`` with ``sigma_decay`` and ``sigma_min``.
    """

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = self.settings.initial_sigma(self._center.size)

    @final
    @property
    def sigma(self) -> float:
        """The standard deviation of the noise now (its root mean square, for a vector)."""
        return scale_of(self._decayed_sigma)

    @final
    @property
    def _decayed_sigma(self) -> float | Vector:
        """The standard deviation of the noise now, a number or [P]."""
        now: float | Vector = self._sigma * self.settings.sigma_decay**self.generation
        least = fitting("sigma_min", self.settings.sigma_min or 0.0, self._center.size)
        vector = isinstance(now, np.ndarray) or isinstance(least, np.ndarray)
        return np.maximum(now, least) if vector else max(now, least)


class SeparableSearch(Algorithm[SampledPopulation], ABC):
    """Samples from N(mu, diag(sigma^2)); a subclass implements ``_tell``, which updates both."""

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        size = self._center.size
        self._sigma = np.zeros(size) + self.settings.initial_sigma(size)
        self._ascent = Ascent(self.settings, size)

    @final
    @property
    def sigma(self) -> float:
        """The root mean square of the deviations."""
        return scale_of(self._sigma)

    @final
    def _ask(self) -> SampledPopulation:
        return self.sampled(self._sigma)  # mu + sigma z_i, z_i ~ N(0, I)

    @final
    def _state_dict(self) -> State:
        return {"sigma": self._sigma.copy(), "optimizer": self._ascent.optimizer.state_dict()}

    @final
    def _load_state_dict(self, state: State) -> None:
        self._sigma = np.array(state["sigma"])
        self._ascent.optimizer.load_state_dict(state["optimizer"])


ALGORITHMS: Final[Registry[Algorithm[Any]]] = Registry(
    "algorithm", "esbench.algorithms", "esbench.algorithms"
)
register_algorithm = ALGORITHMS.register


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The class registered as ``name``, or a user's "package.file:Class"; UsageError if none."""
    if ":" not in name:
        return ALGORITHMS.get(name)
    found: Any = import_object("algorithm", name)
    require_algorithm(found, name)
    cls: type[Algorithm[Any]] = found
    return cls


def require_algorithm(found: Any, name: str) -> None:
    """Raises UsageError if an object is no class of an algorithm with settings."""
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UsageError(f"algorithm {name!r} lacks {missing}, which every algorithm defines")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(
            f"algorithm {name!r} is not an algorithm; expected a subclass of esbench.Algorithm "
            "or, for an agent, a class with train(env, env_steps, seed)"
        )
    settings = getattr(found, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, AlgorithmSettings)):
        raise UsageError(
            f"algorithm {name!r} has Settings = {shown(settings)}; expected a subclass of "
            "esbench.algorithms.search_settings.AlgorithmSettings"
        )


def is_builtin(cls: type) -> bool:
    """Whether a class is part of esbench."""
    return root_of(cls.__module__) == "esbench"
