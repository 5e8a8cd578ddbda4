"""CMA-ES: Hansen, "The CMA Evolution Strategy: A Tutorial", 2016 (arXiv:1604.00772).

And sep-CMA-ES: Ros & Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space
Complexity", PPSN 2008 (doi:10.1007/978-3-540-87700-4_30).

The library ``cmaes`` does the computation (Nomura & Shibata, "cmaes: A Simple yet Practical Python
Library for CMA-ES", 2024, arXiv:2402.01373). This file adds noise that depends on seed and
generation only, ranks in which failed members are the worst, and exact checkpoints. It also limits
BLAS to one thread: the last bits of a decomposition depend on the number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Annotated, Any, Final, final

import numpy as np
from threadpoolctl import ThreadpoolController

from esbench.algorithms.base import Algorithm, register_algorithm
from esbench.algorithms.search_settings import AtLeastTwo, Positive, SigmaSettings
from esbench.algorithms.shaping import ranks
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import UsageError
from esbench.core.population import StoredPopulation
from esbench.core.search_space import Tune
from esbench.core.seeding import noise_key

MOST_PARAMS: Final = 1_000  # the time per generation grows as P^3
MOST_NUMBERS: Final = 250_000_000  # in the library's P x P matrices, two per member: 4 GB
GENERATOR: Final = "_rng"  # of the library; not part of the state: every generation reseeds it


@final
class CMAESSettings(SigmaSettings):
    """Settings of CMA-ES and sep-CMA-ES; everything else has the library's default."""

    population_size: Annotated[AtLeastTwo | None, Tune(low=8, high=128, log=True)] = None
    """Members per generation; by default 4 + floor(3 ln P) for P parameters [members]."""

    sigma: Annotated[Positive | None, Tune(low=0.05, high=2, log=True)] = 0.5
    """Standard deviation of the population at the start, for parameters of order one [parameter
    units]."""


class CmaesAlgorithm(Algorithm[StoredPopulation], ABC):
    """An optimizer of the library ``cmaes``.

    There is no stopping criterion, because a trial ends with its budget. An update is skipped if it
    makes sigma zero or a number infinite, as after sigma has grown beyond 1e32.
    """

    Settings = CMAESSettings
    settings: CMAESSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        sigma = float(self.settings.initial_sigma(self._center.size))
        try:
            with np.errstate(divide="ignore"):  # 2 or 3 members have a rank-mu learning rate of 0
                self._library = self._make_library(sigma)
        except AssertionError as error:  # a center of 1e32 and more
            raise UsageError(f"the library cmaes refuses this start: {error}") from None
        # The library leaves this array uninitialized; a checkpoint must not store random memory.
        self._library._funhist_values.fill(0.0)
        self._threads = ThreadpoolController()

    @property
    def sigma(self) -> float:
        """The root mean square of the parameters' deviations."""
        covariance = self._library._C
        variances = np.diagonal(covariance) if covariance.ndim == 2 else covariance
        return float(self._library._sigma * np.sqrt(np.mean(variances)))

    @abstractmethod
    def _make_library(self, sigma: float) -> Any:
        """The library's optimizer; UsageError if it does not support the size of the problem."""

    def _ask(self) -> StoredPopulation:
        self._library.reseed_rng(noise_key(self.seed, self.generation) & 0xFFFF_FFFF)
        with self._threads.limit(limits=1, user_api="blas"):
            members = [self._library.ask() for _ in range(self.population_size)]
        return StoredPopulation(size=len(members), stored=np.array(members))

    def _tell(self, population: StoredPopulation, returns: Vector, behaviors: Matrix) -> None:
        before = self._state_dict()
        # The library minimizes and uses only the order; ties go to the earlier member.
        losses = (-ranks(returns)).tolist()
        try:
            with self._threads.limit(limits=1, user_api="blas"):
                self._library.tell(list(zip(population.stored, losses, strict=True)))
            finite = all(np.isfinite(value).all() for _, value in _numbers(self._library))
            sound = finite and self._library._sigma > 0.0
        except (AssertionError, np.linalg.LinAlgError):  # a parameter of 1e32 and more
            sound = False
        if sound:
            self._center = np.array(self._library.mean)
        else:
            self._load_state_dict(before)

    def _state_dict(self) -> State:
        # Not the library's __getstate__: that keeps one triangle of C, which is not exactly
        # symmetric between ask and tell, so a restored search would differ in the last bits.
        return {"library": {name: _plain(value) for name, value in _numbers(self._library)}}

    def _load_state_dict(self, state: State) -> None:
        for name in vars(self._library).keys() - {GENERATOR}:
            setattr(self._library, name, _plain(state["library"].get(name)))


@final
@register_algorithm("cma_es")
class CMAES(CmaesAlgorithm):
    """CMA-ES: adapts the full covariance matrix of the population; for up to 1,000 parameters."""

    paper = "Hansen 2016, arXiv:1604.00772"

    def _make_library(self, sigma: float) -> Any:
        from cmaes import CMA  # type: ignore[import-untyped]  # here, because it imports SciPy

        num_params, size = self._center.size, self.population_size
        if num_params > MOST_PARAMS:
            raise UsageError(
                f"cma_es with {num_params:,} parameters: expected at most {MOST_PARAMS:,}, because "
                "the time of a generation grows with their cube; use sep_cma_es, or a policy with "
                "fewer parameters, such as policy.template=linear"
            )
        if size * num_params**2 > MOST_NUMBERS:
            raise UsageError(
                f"population_size = {size} with {num_params:,} parameters: expected at most "
                f"{MOST_NUMBERS // num_params**2}, because the library holds a matrix for each "
                "member; use sep_cma_es"
            )
        return CMA(mean=self._center.copy(), sigma=sigma, population_size=size)


@final
@register_algorithm("sep_cma_es")
class SepCMAES(CmaesAlgorithm):
    """sep-CMA-ES: CMA-ES with a diagonal covariance, for many parameters."""

    paper = "Ros & Hansen 2008, doi:10.1007/978-3-540-87700-4_30"

    def _make_library(self, sigma: float) -> Any:
        from cmaes import SepCMA

        def library(size: int) -> Any:
            return SepCMA(mean=self._center.copy(), sigma=sigma, population_size=size)

        def rate(size: int) -> float:
            fresh = library(size)
            return float(fresh._c1 + fresh._cmu)

        num_params, size = self._center.size, self.population_size
        if num_params < 2:
            raise UsageError("sep_cma_es with 1 parameter: expected at least 2; use cma_es")
        if rate(size) > 1.0:
            # Variances could become negative, and the search diverge.
            most = bisect_right(range(size), 1.0, lo=2, key=rate) - 1
            raise UsageError(
                f"population_size = {size} with {num_params} parameters: expected at most {most}, "
                "because sep_cma_es would learn the variances at a rate above 1; use cma_es"
            )
        return library(size)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.item() if isinstance(value, np.generic) else value


def _numbers(library: Any) -> list[tuple[str, Any]]:
    """The state of the library by name; B and D are None until they are needed."""
    items = vars(library).items()
    return [(name, value) for name, value in items if name != GENERATOR and value is not None]
