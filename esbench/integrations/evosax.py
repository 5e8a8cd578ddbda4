"""evosax's strategies: Lange, "evosax: JAX-based Evolution Strategies", 2022 (arXiv:2212.04180).

evosax minimizes, so the adapter reverses the sign of the returns. It computes in float32, unless
JAX is configured otherwise; members and center are its numbers, converted to float64.

The adapter converts a strategy's state to NumPy after every update, so that a running search
continues from the same arrays as a restored one (JAX gives a value that began as a Python number a
weaker type). A strategy without a center gets its first population from the adapter; its center is
the best member so far.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.shaping import all_equal, raw
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import UsageError, suggestion
from esbench.core.noise import UniformNoise
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

jax: Any = LazyModule("jax")
jnp: Any = LazyModule("jax.numpy")
optax: Any = LazyModule("optax")
distribution_based: Any = LazyModule("evosax.algorithms.distribution_based")
population_based: Any = LazyModule("evosax.algorithms.population_based")

# RandomSearch needs a sampling function; the Stein variational strategies have several centers.
_NOT_SUPPORTED: Final = {"RandomSearch", "SV_CMA_ES", "SV_Open_ES"}
_DEVIATIONS: Final = {"std_init", "std_max"}
_LARGEST: Final = float(np.finfo(np.float32).max)


@final
class EvosaxSettings(ExternalSettings):
    """Settings of an evosax strategy."""

    strategy: str = "SNES"
    """Name in evosax, such as Open_ES, PGPE, SNES, CMA_ES, Sep_CMA_ES or SimpleGA."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Fields of the strategy's params, such as std_init, and options of its constructor. The option
    std_schedule is a number, fitness_shaping_fn a name such as centered_rank, and optimizer a table
    such as {name = "adam", learning_rate = 0.01}."""

    @model_validator(mode="after")
    def _fits_the_strategy(self) -> EvosaxSettings:
        name = self.strategy
        if name not in strategies():
            near = suggestion(name, strategies())
            raise ValueError(f"strategy = {name!r}: expected a strategy of evosax; {near}")
        allowed = options_of(strategies()[name]) | fields_of(strategies()[name])
        check_arguments(name, self.arguments, allowed, {"population_size": "population_size"})
        return self


@final
@register_algorithm("evosax")
class Evosax(ExternalAlgorithm):
    """A strategy of evosax, run by the library itself."""

    Settings = EvosaxSettings
    paper = "Lange 2022, arXiv:2212.04180"
    settings: EvosaxSettings

    def __init__(
        self, settings: EvosaxSettings, center: Vector, seed: int, shapes: Shapes = ()
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._origin = self._center.copy()
        self._has_center = settings.strategy in distribution_based.distribution_based_algorithms
        possible = options_of(strategies()[settings.strategy])
        options = {key: value for key, value in settings.arguments.items() if key in possible}
        self._strategy = make_strategy(
            settings.strategy, self.population_size, center.size, json.dumps(options)
        )
        self._params = make_params(settings, self._strategy)
        self._state = None
        if self._has_center:
            self._state = jax.tree.map(np.array, self._initial_state())
        self._draw(0)

    @property
    def sigma(self) -> float:
        """The standard deviation of the members about their mean."""
        return spread(self._members)

    def _tell(self, population: StoredPopulation, returns: Vector, behaviors: Matrix) -> None:
        told = np.asarray(jnp.asarray(np.clip(raw(returns), -_LARGEST, _LARGEST)))
        if not all_equal(told):
            self._learn(told)
        self._draw(self.generation + 1)

    def _state_dict(self) -> State:
        leaves = jax.tree_util.tree_leaves_with_path(self._state)
        return {
            "origin": self._origin.copy(),
            "search": {_name_of(path): np.array(leaf) for path, leaf in leaves},
        }

    def _load_state_dict(self, state: State) -> None:
        self._origin = np.array(state["origin"])
        search = state["search"]
        self._state = None  # before the first update of a strategy without a center
        if search:
            self._state = jax.tree_util.tree_map_with_path(
                lambda path, _: np.array(search[_name_of(path)]),
                jax.eval_shape(self._initial_state),
            )
        self._draw(self.generation)

    def _initial_state(self) -> Any:
        """The first state; only its structure, for a strategy without a center."""
        key, _ = keys(self.seed)
        if self._has_center:
            return self._strategy.init(key, jnp.asarray(self._origin), self._params)
        members = jnp.zeros((self.population_size, self._origin.size))
        return self._strategy.init(key, members, members[:, 0], self._params)

    def _draw(self, generation: int) -> None:
        if self._state is None:
            noise = UniformNoise(noise_key(self.seed, generation), self._origin.size)
            rows = np.array([noise.row(member) for member in range(self.population_size)])
            self._sampled = jnp.asarray(self._origin + self.settings.initial_width * rows)
        else:
            key, _ = keys(self.seed, generation)
            self._sampled, self._asked = self._strategy.ask(key, self._state, self._params)
        self._members = np.array(self._sampled, dtype=np.float64)
        self._members.flags.writeable = False

    def _learn(self, told: Vector) -> None:
        _, key = keys(self.seed, self.generation)
        fitness = jnp.asarray(-told)  # evosax minimizes
        if self._state is None:
            state = self._strategy.init(key, self._sampled, fitness, self._params)
        else:
            state, _ = self._strategy.tell(key, self._sampled, fitness, self._asked, self._params)
        self._state = jax.tree.map(np.array, state)
        center = state.mean if self._has_center else state.best_solution
        self._center = np.array(center, dtype=np.float64)


@functools.cache
def strategies() -> dict[str, Any]:
    """The supported strategies by name."""
    known = {
        **distribution_based.distribution_based_algorithms,
        **population_based.population_based_algorithms,
    }
    return {name: cls for name, cls in known.items() if name not in _NOT_SUPPORTED}


@functools.cache
def optimizers() -> dict[str, Any]:
    """The functions that create an optimizer: those of optax with a learning rate, and clipup."""
    return {"clipup": imported("evosax.core.optimizer").clipup} | {
        name: make
        for name, make in vars(imported("optax")).items()
        if inspect.isfunction(make)
        and not name.startswith(("_", "scale_by_"))
        and next(iter(inspect.signature(make).parameters), "") == "learning_rate"
    }


def keys(seed: int, *indices: int) -> tuple[Any, Any]:
    """The JAX keys of a generation: one to ask with, and one to tell with."""
    words = [noise_key(seed, *indices) >> shift & 0xFFFF_FFFF for shift in (0, 32, 64, 96)]
    pairs = np.array(words, np.uint32).reshape(2, 2)
    ask, tell = (jax.random.wrap_key_data(pair, impl="threefry2x32") for pair in pairs)
    return ask, tell


@functools.lru_cache(maxsize=16)
def make_strategy(name: str, population_size: int, num_params: int, options: str) -> Any:
    """The strategy with its options, as JSON; equal ones share one object, compiled only once.

    Raises:
        UsageError: the strategy does not accept its options.
    """
    cls, table = strategies()[name], json.loads(options)
    try:
        given = {option: _converted(cls, option, value) for option, value in table.items()}
        return cls(population_size=population_size, solution=jnp.zeros(num_params), **given)
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(
            f"evosax {name} with population_size = {population_size}, {num_params} parameters and "
            f"{table}: {error}"
        ) from None


def make_params(settings: EvosaxSettings, strategy: Any) -> Any:
    """The strategy's default params, updated; UsageError if a value has another type or shape."""
    params, changes = strategy.default_params, {}
    for name in fields_of(type(strategy)) & settings.arguments.keys():
        value, default = np.asarray(settings.arguments[name]), jnp.asarray(getattr(params, name))
        castable = np.can_cast(value.dtype, default.dtype, "same_kind")
        if value.shape != default.shape or not castable:
            raise UsageError(
                f"arguments.{name} = {settings.arguments[name]}: evosax {settings.strategy} "
                f"expected {default.dtype} of shape {default.shape}"
            )
        if name in _DEVIATIONS and np.any(value <= 0):
            raise UsageError(f"arguments.{name} = {value}: expected a number above 0")
        changes[name] = jnp.asarray(value, default.dtype)
    return params.replace(**changes)


def options_of(cls: Any) -> set[str]:
    """The options of a strategy's constructor that a table can hold."""
    defaults = {n: p.default for n, p in inspect.signature(cls).parameters.items()}
    plain = {name for name, default in defaults.items() if isinstance(default, int)}
    return plain | (defaults.keys() & _CONVERTERS.keys())


def fields_of(cls: Any) -> set[str]:
    """The numeric fields of a strategy's params; ``params`` belongs to a network."""
    params = typing.get_type_hints(cls._default_params.fget)["return"]
    return set(params.__dataclass_fields__) - {"params"}


def _converted(cls: Any, option: str, value: Any) -> Any:
    """An option as evosax takes it; the errors of all conversions are reported alike."""
    if option in _CONVERTERS:
        return _CONVERTERS[option](value)
    default = inspect.signature(cls).parameters[option].default
    if type(value) is not type(default):
        raise ValueError(f"{option} = {value}: expected a value such as {default}")
    return value


def _optimizer(table: Any) -> Any:
    given = dict(table) if isinstance(table, dict) else {"name": table}
    optimizer = _chosen("optimizer", given.pop("name", ""), optimizers())(**given)
    params = jnp.zeros(1)
    jax.eval_shape(optimizer.update, params, optimizer.init(params), params)  # a dry update
    return optimizer


def _std_schedule(value: float) -> Any:
    if not value > 0:
        raise ValueError(f"std_schedule = {value}: expected a number above 0")
    return optax.constant_schedule(value)


def _fitness_shaping_fn(name: str) -> Any:
    end, functions = "_fitness_shaping_fn", vars(imported("evosax.core.fitness_shaping"))
    known = {key.removesuffix(end): make for key, make in functions.items() if key.endswith(end)}
    return _chosen("fitness_shaping_fn", name, known)


def _chosen(option: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise ValueError(f"{option} = {name!r}: {suggestion(name, known)}")
    return known[name]


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "optimizer": _optimizer,
    "std_schedule": _std_schedule,
    "fitness_shaping_fn": _fitness_shaping_fn,
}


def _name_of(path: Any) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="."))
