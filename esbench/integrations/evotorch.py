"""evotorch's search algorithms: Toklu, Atkinson, Micka, Liskowski & Srivastava, "EvoTorch: Scalable
Evolutionary Computation in Python", 2023 (arXiv:2302.12600).

evotorch evaluates inside ``step()``; esbench evaluates between ``ask`` and ``tell``. Therefore a
step always runs on a copy of the search. Its problem answers with the returns known so far and then
interrupts the step: the members it was asked to evaluate are our population. When their returns
arrive, the step runs again from its beginning, with the same random numbers, and gets further. The
search sees exactly what it would see alone, but its updates take two to four times as long.

One evaluation is one generation: the first step of Cosyne evaluates twice, so it is two. Gaussian
algorithms update at the beginning of a step, so between generations the search is in the middle of
a step and has learnt from all returns.

A search cannot be serialized, so the state is the history of all returns: 8 bytes per member and
generation. Restoring replays it through a new search, which reaches the same bits; that takes the
time of all updates, without the evaluations. After equal returns, which move nothing, the step goes
back to its latest evaluation and continues from there with another seed.

Numbers are float64; nothing is distributed, and no ray actor starts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import warnings
from collections.abc import Iterator
from typing import Any, Final, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.base import register_algorithm, scale_of
from esbench.algorithms.search_settings import Members
from esbench.algorithms.shaping import all_equal, raw
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import TrainingError, UsageError, suggestion
from esbench.core.global_streams import torch_stream
from esbench.core.population import StoredPopulation
from esbench.core.seeding import noise_key
from esbench.integrations.library import (
    ExternalAlgorithm,
    ExternalSettings,
    LazyModule,
    check_arguments,
    imported,
    spread,
)

evotorch: Any = LazyModule("evotorch")
evotorch_algorithms: Any = LazyModule("evotorch.algorithms")
torch: Any = LazyModule("torch")

# The others need operators or feature grids, which are objects, or, as PyCMAES, draw from NumPy's
# global generator.
_SUPPORTED: Final = ("CEM", "CMAES", "Cosyne", "PGPE", "SNES", "XNES")
# Arguments that settings of the adapter replace, and arguments that need evotorch's own
# environments, several objectives or actors.
_OURS: Final = {"popsize": "population_size", "center_init": "center_init"}
_DEVIATIONS: Final = {"mutation_stdev", "radius_init", "stdev_init", "stdev_max"}
_NOT_PASSED: Final = {
    "problem", "num_interactions", "popsize_max", "obj_index", "distributed",
    "popsize_weighted_grad_avg",
}  # fmt: skip


@final
class EvotorchSettings(ExternalSettings):
    """Settings of an evotorch algorithm."""

    search_algorithm: str = "SNES"
    """Class name in evotorch: PGPE, SNES, XNES, CEM, CMAES or Cosyne."""

    population_size: Members | None = None
    """Members per generation (popsize in evotorch); by default evotorch's own choice, which PGPE,
    CEM and Cosyne do not have [members]."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the constructor, such as center_learning_rate or optimizer_config. Most
    searches need stdev_init or radius_init; Cosyne needs mutation_stdev."""

    @model_validator(mode="after")
    def _fits_the_constructor(self) -> EvotorchSettings:
        name, given = self.search_algorithm, self.arguments
        if name not in search_algorithms():
            near = suggestion(name, search_algorithms())
            raise ValueError(f"search_algorithm = {name!r}: expected one of evotorch; {near}")
        allowed = parameters_of(name).keys() - {*_OURS, *_NOT_PASSED}
        check_arguments(name, given, allowed, _OURS)
        # What evotorch accepts, but cannot train with.
        for key in sorted(_DEVIATIONS & given.keys()):
            numbers = np.ravel(given[key])
            if numbers.dtype.kind in "if" and (numbers <= 0).any():
                raise ValueError(f"arguments.{key} = {given[key]}: expected numbers above 0")
        known = imported("evotorch.tools.ranking").rankers
        if (method := given.get("ranking_method")) not in [None, *known]:
            near = suggestion(str(method), known)
            raise ValueError(f"arguments.ranking_method = {method!r}: {near}")
        return self


@final
@register_algorithm("evotorch")
class Evotorch(ExternalAlgorithm):
    """A search algorithm of evotorch, run by the library itself.

    The center is the search's own, or the best member so far if the search has none. Most searches
    need ``stdev_init`` or ``radius_init`` among the arguments.
    """

    Settings = EvotorchSettings
    paper = "Toklu et al. 2023, arXiv:2302.12600"
    settings: EvotorchSettings

    def __init__(
        self, settings: EvotorchSettings, center: Vector, seed: int, shapes: Shapes = ()
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._origin = self._center.copy()
        self._start()
        self.population_size = len(self._members)

    @property
    def sigma(self) -> float:
        """The root mean square of the search's deviations; of the members', if it has none."""
        deviations = self._running.status.get("stdev")
        if deviations is None or deviations.ndim != 1:  # XNES has a matrix
            return spread(self._members)
        return scale_of(deviations.numpy())

    def _tell(self, population: StoredPopulation, returns: Vector, behaviors: Matrix) -> None:
        told = raw(returns)
        self._hear(np.empty(0) if all_equal(told) else told)

    def _state_dict(self) -> State:
        return {
            "origin": self._origin.copy(),
            "sizes": np.array([told.size for told in self._history], np.int64),
            "returns": np.concatenate([np.empty(0), *self._history]),
        }

    def _load_state_dict(self, state: State) -> None:
        reached = self._center
        self._origin = np.array(state["origin"])
        self._start()
        for told in np.split(state["returns"], np.cumsum(state["sizes"]))[:-1]:
            self._hear(told.copy())
        if not np.array_equal(self._center, reached):
            raise TrainingError(
                f"the replay of {len(state['sizes'])} generations did not arrive at the saved "
                "center; expected the seed, evotorch and torch that it was saved with"
            )

    def _start(self) -> None:
        self._center = self._origin.copy()
        self._best_return = -np.inf
        self._history: list[Vector] = []  # returns of each generation; empty if all were equal
        self._build()

    def _build(self) -> None:
        def evaluate(values: Any) -> Any:  # not a method, which a copy of the search would copy
            return self._evaluate(values)

        with _isolated():
            self._search = make_search(self.settings, self._origin, self._seed(), evaluate)
        self._answers: list[Vector] = []  # to the evaluations of the current step
        self._seeds: dict[int, int] = {}  # seeds by the number of evaluations before them
        self._advance()

    def _seed(self) -> int:
        return noise_key(self.seed, len(self._history)) & 0xFFFF_FFFF_FFFF_FFFF

    def _hear(self, told: Vector) -> None:
        """Learn from the returns, if there are any, and advance to the next population."""
        self._history.append(told)
        if told.size:
            self._learn(told)
        elif self._search.step_count or self._answers:
            self._seeds[len(self._answers)] = self._seed()
            self._advance()
        else:
            self._build()  # because the constructor may have drawn the first population

    def _learn(self, told: Vector) -> None:
        best = int(np.argmax(told))
        member = self._members[best].copy()
        self._answers.append(told)
        self._advance()
        status = self._running.status
        if "center" in status:
            self._center = status["center"].numpy().astype(np.float64)
        elif told[best] > self._best_return:
            self._best_return, self._center = float(told[best]), member

    def _advance(self) -> None:
        """Run the search until it evaluates members without an answer."""
        with _isolated():
            while True:
                self._running = copy.deepcopy(self._search)
                self._given = 0
                self._set_seed()
                try:
                    self._running.step()
                except _Interruption as interruption:
                    self._members = interruption.members
                    return
                self._search, self._answers, self._seeds = self._running, [], {}

    def _evaluate(self, values: Any) -> Any:
        if self._given == len(self._answers):
            raise _Interruption(values)
        self._given += 1
        self._set_seed()
        return torch.from_numpy(self._answers[self._given - 1])

    def _set_seed(self) -> None:
        if self._given in self._seeds:
            self._running.problem.manual_seed(self._seeds[self._given])


@final
class _Interruption(Exception):  # noqa: N818
    """Ends a step at an evaluation without an answer; ``members`` [N, P] are a copy."""

    def __init__(self, values: Any) -> None:
        self.members: Matrix = np.array(values.numpy(), dtype=np.float64)
        self.members.flags.writeable = False


@functools.cache
def search_algorithms() -> dict[str, Any]:
    """The supported search algorithms by name."""
    return {name: getattr(evotorch_algorithms, name) for name in _SUPPORTED}


def parameters_of(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a search algorithm's constructor."""
    return dict(inspect.signature(search_algorithms()[name]).parameters)


def make_search(settings: EvotorchSettings, center: Vector, seed: int, evaluate: Any) -> Any:
    """The search algorithm, which starts at ``center`` [P]; UsageError for a wrong argument.

    ``seed`` is of the problem's own generator; ``evaluate`` gives members [N, P] returns [N].
    """
    name, width = settings.search_algorithm, settings.initial_width
    arguments = copy.deepcopy(settings.arguments)
    if settings.population_size is not None:
        arguments["popsize"] = settings.population_size
    if "center_init" in parameters_of(name):
        arguments["center_init"] = center.tolist()
    problem = evotorch.Problem(
        "max",
        evaluate,
        solution_length=center.size,
        initial_bounds=((center - width).tolist(), (center + width).tolist()),
        dtype=torch.float64,
        eval_dtype=torch.float64,
        seed=seed,
        num_actors=0,
        store_solution_stats=False,
        vectorized=True,
    )
    try:
        return search_algorithms()[name](problem, **arguments)
    except (TypeError, ValueError, IndexError, RuntimeError, AssertionError) as error:
        raise UsageError(
            f"evotorch {name} with {settings.arguments}: {str(error).rstrip('.')} "
            "(algorithms.evotorch.arguments takes arguments such as stdev_init = 0.5)"
        ) from None


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Suppress evotorch's messages and warnings, and protect torch's global generator.

    evotorch makes some draws from that generator that have no effect on the search.
    """
    logger = logging.getLogger("evotorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with torch_stream(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
