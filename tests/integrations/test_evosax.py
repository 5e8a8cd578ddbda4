"""evosax inside our loop is evosax alone, and keeps the contract of an algorithm."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from adapter_contract import SIZE, START, AdapterContract, Make, P, maker_of, resumed

from esbench.core.arrays import Matrix
from esbench.core.errors import UsageError
from esbench.core.seeding import noise_key
from esbench.engine.worker_pool import WorkerPool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations in what it imports
    pytest.importorskip("evosax")
    import jax
    import jax.numpy as jnp
    import optax
    from evosax.algorithms import Open_ES
    from evosax.core.fitness_shaping import standardize_fitness_shaping_fn

    from esbench.integrations import evosax as plugin

CASES: dict[str, dict[str, Any]] = {
    "SNES": {"std_init": 0.3},
    "Open_ES": {"std_schedule": 0.1, "optimizer": {"name": "adam", "learning_rate": 0.1}},
    "MR15_GA": {"std_init": 0.2},  # without a center
}


make_evosax = maker_of("evosax", "strategy", CASES)


def ellipsoid(members: Matrix) -> Any:
    return -np.sum(np.asarray(members, np.float64) ** 2 * np.arange(1, P + 1), axis=1)


def key(seed: int, *place: int) -> Any:
    """Return the key whose two words are 64 bits of a stream: (generation, 0 ask or 1 tell)."""
    words = noise_key(seed, *place[:-1]) >> 64 * place[-1]
    data = np.array([words % 2**32, (words >> 32) % 2**32], np.uint32)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def compiled(name: str) -> Any:
    """A strategy without options: the adapter's own object, because compiling it takes seconds."""
    strategy = plugin.make_strategy(name, SIZE, P, "{}")
    assert type(strategy).__name__ == name
    return strategy


OWN_OPTIONS = {
    "use_antithetic_sampling": False,
    "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.5},
    "std_schedule": 0.1,
    "fitness_shaping_fn": "standardize",
}


def open_es() -> Any:
    """The strategy with these options, made by hand."""
    optimizer, schedule = optax.sgd(0.05, momentum=0.5), optax.constant_schedule(0.1)
    shaping = standardize_fitness_shaping_fn
    return Open_ES(SIZE, jnp.zeros(P), False, optimizer, schedule, shaping)


@pytest.mark.parametrize(
    ("name", "arguments"), [("SNES", {"std_init": 0.3}), ("Open_ES", OWN_OPTIONS)]
)
def test_a_strategy_is_evosax_alone_bit_for_bit(name: str, arguments: dict[str, Any]) -> None:
    algorithm = make_evosax(name, seed=3, arguments=arguments)
    strategy = open_es() if name == "Open_ES" else compiled(name)
    params = strategy.default_params
    if name == "SNES":
        params = params.replace(std_init=jnp.float32(0.3))
    state = strategy.init(key(3, 0), jnp.asarray(START, jnp.float32), params)
    for generation in range(8):
        _, state = same_step(algorithm, strategy, generation, state, params)
        np.testing.assert_array_equal(algorithm.center, np.asarray(state.mean, np.float64))
    assert sphere_value(algorithm.center) > sphere_value(START)


def same_step(algorithm: Any, strategy: Any, generation: int, state: Any, params: Any) -> Any:
    """Compare the members of a generation; return their returns and the strategy's next state."""
    members, state = strategy.ask(key(3, generation, 0), state, params)
    population = algorithm.ask()
    np.testing.assert_array_equal(population.members(), np.asarray(members, np.float64))
    fitness = jnp.asarray(-ellipsoid(members), jnp.float32)
    state, _ = strategy.tell(key(3, generation, 1), members, fitness, state, params)
    returns = ellipsoid(population.members())
    algorithm.tell(population, returns)
    return returns, state


def sphere_value(center: Any) -> float:
    return float(ellipsoid(center[None])[0])


def test_a_strategy_without_a_center_is_evosax_alone() -> None:
    algorithm = make_evosax("MR15_GA", seed=3, arguments={"std_init": 0.3})
    strategy = compiled("MR15_GA")
    params = strategy.default_params.replace(std_init=jnp.float32(0.3))
    first = algorithm.ask().members()
    assert (np.abs(first - START) <= 1.0).all()
    assert np.ptp(first - START) > 1.5
    state = strategy.init(key(3, 0, 1), first.astype(np.float32), -ellipsoid(first), params)
    algorithm.tell(algorithm.ask(), ellipsoid(first))
    best = ellipsoid(first).max()
    for generation in range(1, 6):
        returns, state = same_step(algorithm, strategy, generation, state, params)
        best = max(best, returns.max())
        assert sphere_value(algorithm.center) == best


class TestContract(AdapterContract):
    @pytest.fixture(params=CASES)
    def make(self, request: pytest.FixtureRequest) -> Make:
        return partial(make_evosax, request.param)


def test_an_unknown_argument_of_any_strategy_is_refused() -> None:
    for name in plugin.strategies():
        with pytest.raises(UsageError, match=f"{name}.*'params_path'"):
            make_evosax(name, arguments={"params_path": "x"})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("SNES", {"strategy": "SNS"}, "did you mean 'SNES'"),
        ("SNES", {"arguments": {"std_int": 0.1}}, "'std_int' .*did you mean 'std_init'"),
        ("SNES", {"arguments": {"population_size": 4}}, "set population_size instead"),
        ("SNES", {"arguments": {"std_init": "a"}}, "arguments.std_init = a: .*expected float32"),
        ("Open_ES", {"arguments": {"std_schedule": -1}}, "std_schedule = -1: expected a number"),
        ("Open_ES", {"arguments": {"optimizer": {"name": "adm"}}}, "did you mean 'adam'"),
        ("Open_ES", {"arguments": {"fitness_shaping_fn": "centered"}}, "'centered_rank'"),
        ("Open_ES", {"population_size": 7}, "evosax Open_ES with population_size = 7.*even"),
    ],
)
def test_a_bad_setting_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_evosax(name, **settings)


def test_a_resumed_trial_equals_an_uninterrupted_one(make_spec: Any, pool: WorkerPool) -> None:
    settings = {"strategy": "Open_ES", "population_size": 8, "arguments": CASES["Open_ES"]}
    resumed(make_spec(algorithms={"evosax": settings}), pool)
