"""What must not matter to an algorithm: equal returns, the scale of returns, units and origins."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import SIZE, START, P, assert_same, climb, maker, quadratic, tell, told

from esbench.algorithms.shaping import SHAPINGS

SHAPED = ["openai_es", "eggroll", "pgpe", "pepg", "snes", "xnes"]  # with a choice of shapings
BY_RANK = ["centered", "linear", "nes"]
OTHERS = ["ars", "cem", "cma_es", "sep_cma_es", "genetic"]
RANKED = [(name, {"shaping": shaping}) for name in SHAPED for shaping in BY_RANK] + [
    ("pgpe", {"antithetic": False}), ("snes", {"antithetic": True}), ("cem", {}), ("cma_es", {}),
    ("sep_cma_es", {}), ("genetic", {"elite_episodes": 0}), ("genetic", {"elite_episodes": 3}),
]  # fmt: skip
WITH_SHAPINGS = [(name, {"shaping": shaping}) for name in SHAPED for shaping in SHAPINGS]

integers = st.lists(st.integers(-1000, 1000).map(float), min_size=SIZE, max_size=SIZE)
few = settings(max_examples=10, deadline=None)


def state_of(algorithm):
    state = algorithm.state_dict()
    del state["generation"]
    return state


@pytest.mark.parametrize(("name", "given_"), [*WITH_SHAPINGS, *((name, {}) for name in OTHERS)])
@pytest.mark.parametrize("before", [0, 3])
def test_equal_returns_change_nothing_at_all(name, given_, before):
    algorithm = maker(name)(**given_)
    if name in SHAPED:  # an optimizer with moments and a decay that could move
        algorithm = maker(name, optimizer="adam", weight_decay=0.1)(**given_)
    climb(algorithm, before)
    if name == "genetic" and before:  # answers its probe first
        tell(algorithm, population := algorithm.ask(), quadratic(population.members()))
    for value in (-21.3, -1e300):
        population, state = algorithm.ask(), state_of(algorithm)
        algorithm.tell(population, np.full(SIZE, value))
        assert_same(state_of(algorithm), state)
        # The next members are different.
        assert (algorithm.ask().members() != population.members()).any()
    assert algorithm.generation == before + 2


@pytest.mark.parametrize(
    ("name", "given_"), [*WITH_SHAPINGS, *((name, {}) for name in OTHERS), *RANKED[-3:]]
)
def test_a_failed_member_counts_as_the_worst(name, given_):
    by_value = given_.get("shaping") in {"raw", "normalized"} or name == "ars"
    returns = np.random.default_rng(0).permutation(SIZE).astype(float)
    failed, worst = returns.copy(), returns.copy()
    failed[[4, 9]] = math.nan, math.inf
    worst[[4, 9]] = np.delete(returns, [4, 9]).min() if by_value else -1e9
    make = maker(name, **given_)
    assert_same(told(make(), failed), told(make(), worst))


@pytest.mark.parametrize(("name", "given_"), RANKED)
@few
@given(returns=integers, seed=st.integers(0, 1000))
def test_only_the_order_of_the_returns_counts(name, given_, returns, seed):
    make, returns = maker(name, seed=seed, **given_), np.array(returns)
    expected = told(make(), returns)
    for bent in (returns**3, np.exp(returns / 100), 1e6 * returns - 1e9, np.arctan(returns / 1e3)):
        assert_same(told(make(), bent), expected)


# What is in units of the parameters, and what makes the search see no unit otherwise.
UNITS = {
    "ars": {"sigma": 0.03, "learning_rate": 0.02, "num_best": 3},
    "pgpe": {"sigma": 0.1, "learning_rate": 0.15},
    "pepg": {
        "sigma": 2.0, "learning_rate": 0.3, "weight_decay": 0.0, "optimizer_settings": {"eps": 0.0}
    },
    "openai_es": {"sigma": 0.1, "learning_rate": 0.1, "optimizer": "clipup", "weight_decay": 0.0},
    "cma_es": {"sigma": 0.5},
    "sep_cma_es": {"sigma": 0.5},
    "genetic": {"sigma": 0.1, "sigma_init": 0.4, "elite_episodes": 0},
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
@few
@given(power=st.integers(-12, 12), seed=st.integers(0, 1000))
def test_another_unit_of_the_parameters_changes_nothing(name, power, seed):
    # Powers of two, so that no product is rounded and the bits must agree.
    unit, plain = 2.0**power, UNITS[name]
    scaled = {
        key: plain[key] * unit for key in {"sigma", "sigma_init", "learning_rate"} & set(plain)
    }
    one = maker(name, seed=seed, **plain)()
    other = maker(name, seed=seed, **(plain | scaled))(center_init=START * unit)
    centers = climb(other, 8, lambda members: quadratic(members / unit))
    np.testing.assert_array_equal(centers / unit, climb(one, 8))


@pytest.mark.parametrize(("name", "sigma"), [("snes", 0.3), ("cem", 1.0)])
@few
@given(exponents=st.lists(st.integers(-8, 8), min_size=P, max_size=P), seed=st.integers(0, 100))
def test_the_unit_of_one_coordinate_changes_nothing(name, sigma, exponents, seed):
    scale, sigma = 2.0 ** np.array(exponents), sigma * np.linspace(0.5, 1.5, P)
    one = maker(name, seed=seed)(sigma=sigma)
    other = maker(name, seed=seed)(sigma=sigma * scale, center_init=START * scale)
    centers = climb(other, 10, lambda members: quadratic(members / scale))
    np.testing.assert_array_equal(centers, climb(one, 10) * scale)
    np.testing.assert_array_equal(other.state_dict()["sigma"], one.state_dict()["sigma"] * scale)


# Not CMA-ES, step by step: the axes of equal eigenvalues are what rounding makes them.
@pytest.mark.parametrize("name", ["ars", "pgpe", "snes", "cem", "sep_cma_es"])
@few
@given(offset=st.lists(st.floats(-10, 10), min_size=P, max_size=P), seed=st.integers(0, 100))
def test_another_origin_of_the_parameters_changes_nothing(name, offset, seed):
    offset, make = np.array(offset), maker(name, seed=seed)
    centers = climb(make(center_init=START + offset), 5, lambda m: quadratic(m - offset))
    np.testing.assert_allclose(centers - offset, climb(make(), 5), rtol=0, atol=1e-9)
