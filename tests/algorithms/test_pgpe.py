import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.algorithms.shaping import SHAPINGS
from esbench.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated
    import evotorch
    from evotorch.algorithms import PGPE

P, SIZE = 7, 20
TARGET = np.linspace(-0.5, 0.8, P)
START = np.linspace(0.5, -0.9, P)


def fitness(members):
    """Return values that are distinct with probability 1: evotorch breaks ties by order."""
    values = -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)
    assert len(np.unique(values)) == len(members)
    return values


def make(**given):
    given = {"population_size": SIZE, "center_init": START, **given}
    return esbench.make_algorithm("pgpe", **{"num_params": P, "seed": 3, **given})


def make_with(sigma):
    """Make the algorithm with a deviation for each parameter."""
    cls = ALGORITHMS.get("pgpe")
    return lambda **given: cls(
        cls.Settings(sigma=tuple(sigma), population_size=SIZE, **given), START, 3
    )


def deviations(algorithm):
    return algorithm.state_dict()["sigma"]


def signed_noise(population):
    """Return the z of every member, [N, P]."""
    rows = [population.noise.row(population.row(i)) for i in range(len(population))]
    return np.array([population.sign(i) * row for i, row in enumerate(rows)])


class Oracle:
    """evotorch's PGPE in float64, given our noise and our members' returns.

    The members it is given are its own mu + sigma z: at first they are ours bit for bit. Ours
    themselves would feed the rounding error of the centres back in, since evotorch takes members
    minus mu for the noise, and a hundred updates make 1e-8 of that.
    """

    def __init__(self, sigma=0.1, **given):
        self.problem = evotorch.Problem(
            "max",
            lambda members: members.sum(dim=1),
            solution_length=P,
            initial_bounds=(-1, 1),
            dtype=torch.float64,
            vectorized=True,
        )
        self.search = PGPE(
            self.problem,
            popsize=SIZE,
            center_init=torch.tensor(START),
            stdev_init=torch.tensor(np.broadcast_to(sigma, P).copy()),
            **{"center_learning_rate": 0.15, "stdev_learning_rate": 0.1, **given},
        )
        self.search.step()  # the first step only samples

    def tell(self, noise, returns):
        batch = evotorch.SolutionBatch(self.problem, popsize=len(noise))
        batch.access_values()[:] = torch.tensor(self.center + self.sigma * noise)
        batch.set_evals(torch.tensor(returns))
        self.search._population = batch
        self.search.step()

    @property
    def center(self):
        return self.search.status["center"].numpy()

    @property
    def sigma(self):
        return self.search.status["stdev"].numpy()


def compare(algorithm, oracle, updates=100, *, growth=1, before_update=lambda t: None):
    """Tell both the same; return the deviations after every update, [updates, P]."""
    seen = []
    for t in range(updates):
        population = algorithm.ask()
        population = population.extended(growth * len(population))
        returns = fitness(population.members())
        before_update(t)
        algorithm.tell(population, returns)
        oracle.tell(signed_noise(population), returns)
        np.testing.assert_allclose(algorithm.center, oracle.center, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(deviations(algorithm), oracle.sigma, rtol=1e-9)
        seen.append(deviations(algorithm))
    assert np.abs(algorithm.center - START).max() > 0.01
    return np.array(seen)


OPTIMIZERS = {
    "clipup": ({}, {}),
    "clipup-slow": (
        {"optimizer_settings": {"max_speed": 0.1, "momentum": 0.8}},
        {"optimizer_config": {"max_speed": 0.1, "momentum": 0.8}},
    ),
    "adam": ({"optimizer": "adam"}, {"optimizer": "adam"}),
    "plain": ({"optimizer": "sgd"}, {"optimizer": None}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("antithetic", [True, False])
def test_a_hundred_updates_are_evotorchs(optimizer, antithetic):
    ours, theirs = OPTIMIZERS[optimizer]
    oracle = Oracle(symmetric=antithetic, **theirs)
    seen = compare(make(antithetic=antithetic, **ours), oracle)
    assert np.ptp(seen[-1]) > 0.005  # the deviations went apart


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "change"),
    [
        (None, None, None),
        (0.09, None, None),
        (None, 0.101, None),
        (None, None, 0.01),
        (0.08, 0.101, 0.02),
        (0.15, None, 0.02),  # starts out of bounds
    ],
)
def test_bounds_and_limits_of_the_deviations_are_evotorchs(low, high, change, antithetic):
    ours = {"antithetic": antithetic, "sigma_learning_rate": 0.4}
    theirs = {"symmetric": antithetic, "stdev_learning_rate": 0.4}
    bounds = {"sigma_min": low, "sigma_max": high, "sigma_max_change": change}
    oracle = Oracle(stdev_min=low, stdev_max=high, stdev_max_change=change, **theirs)
    seen = compare(make(**bounds, **ours), oracle, 40)
    changes = np.abs(np.diff(seen, axis=0) / seen[:-1]).max()
    # Each bound was met.
    assert low is None or seen.min() == low or (low > 0.1 and seen[-1].min() == low)
    assert high is None or seen.max() == high
    assert change is None or changes == pytest.approx(change, rel=1e-12)


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("shaping", sorted(set(SHAPINGS) - {"normalized"}))
def test_shapings_are_centred_as_evotorchs(shaping, antithetic):
    rates = {"learning_rate": 0.15, "sigma_learning_rate": 0.1}
    if shaping == "raw":
        rates = {"learning_rate": 0.02, "sigma_learning_rate": 0.002}
    oracle = Oracle(
        symmetric=antithetic,
        optimizer=None,
        ranking_method=shaping,
        center_learning_rate=rates["learning_rate"],
        stdev_learning_rate=rates["sigma_learning_rate"],
    )
    compare(make(antithetic=antithetic, optimizer="sgd", shaping=shaping, **rates), oracle, 30)


@pytest.mark.parametrize("antithetic", [True, False])
def test_z_scores_are_evotorchs_up_to_the_kind_of_deviation(antithetic):
    # Ours divide by the deviation with N below the sum of squares, evotorch's with N - 1.
    factor = math.sqrt((SIZE - 1) / SIZE)
    ours = {"learning_rate": 0.05 * factor, "sigma_learning_rate": 0.1 * factor}
    oracle = Oracle(
        symmetric=antithetic,
        optimizer=None,
        ranking_method="normalized",
        center_learning_rate=0.05,
    )
    algorithm = make(antithetic=antithetic, optimizer="sgd", shaping="normalized", **ours)
    compare(algorithm, oracle, 30)


@pytest.mark.parametrize("antithetic", [True, False])
def test_a_deviation_for_each_parameter_and_a_grown_population_are_evotorchs(antithetic):
    sigma = np.linspace(0.05, 0.3, P)
    oracle = Oracle(sigma, symmetric=antithetic)
    compare(make_with(sigma)(antithetic=antithetic), oracle, 10, growth=3)


@pytest.mark.parametrize("optimizer", ["clipup", "adam"])
def test_decaying_rates_are_evotorchs_with_a_schedule(optimizer):
    oracle = Oracle(optimizer=optimizer)
    group = oracle.search.optimizer.param_groups[0]

    def schedule(t):
        group["lr"] = 0.15 * 0.97**t
        if optimizer == "clipup":
            group["max_speed"] = 0.3 * 0.97**t
        oracle.search._stdev_learning_rate = 0.1 * 0.95**t

    decays = {"learning_rate_decay": 0.97, "sigma_learning_rate_decay": 0.95}
    compare(make(optimizer=optimizer, **decays), oracle, 40, before_update=schedule)


def run(algorithm, updates=20, function=fitness):
    centers = []
    for _ in range(updates):
        population = algorithm.ask()
        algorithm.tell(population, function(population.members()))
        centers.append(algorithm.center.copy())
    return np.array(centers)


@pytest.mark.parametrize("antithetic", [True, False])
def test_with_a_constant_deviation_the_centre_is_that_of_openai_es(antithetic):
    # PGPE's estimate is OpenAI-ES's times sigma, so under plain ascent a rate of lr / sigma and a
    # decay of sigma * decay make the same steps; ClipUp sees no scale at all.
    def both(ours, theirs):
        shared = {"antithetic": antithetic, "sigma": 0.05}
        other = esbench.make_algorithm(
            "openai_es",
            num_params=P,
            seed=3,
            center_init=START,
            population_size=SIZE,
            **shared,
            **theirs,
        )
        algorithm = make(sigma_learning_rate=0.0, **shared, **ours)
        np.testing.assert_allclose(run(algorithm), run(other), rtol=1e-10, atol=1e-14)
        assert algorithm.sigma == pytest.approx(0.05, rel=1e-15)

    both(
        {"optimizer": "sgd", "learning_rate": 0.1 / 0.05, "weight_decay": 0.05 * 0.02},
        {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.02},
    )
    both({}, {"optimizer": "clipup", "learning_rate": 0.15, "weight_decay": 0.0})


def test_weight_decay_pulls_the_centre_by_this_much_of_itself():
    plain, decayed = (
        make(optimizer="sgd", learning_rate=0.5, weight_decay=weight) for weight in (0.0, 0.04)
    )
    run(plain, 1)
    run(decayed, 1)
    np.testing.assert_allclose(decayed.center, plain.center - 0.5 * 0.04 * START, rtol=1e-12)


def test_the_defaults_are_those_of_pgpelib():
    given = make().settings
    assert (given.learning_rate, given.optimizer, given.optimizer_settings) == (0.15, "clipup", {})
    assert (given.sigma, given.sigma_learning_rate, given.sigma_max_change) == (0.1, 0.1, 0.2)
    assert (given.shaping, given.antithetic, given.weight_decay) == ("centered", True, 0.0)


def test_a_radius_is_the_length_of_the_deviations():
    algorithm = make(radius=0.27)
    assert np.linalg.norm(deviations(algorithm)) == pytest.approx(0.27, rel=1e-15)
    assert algorithm.sigma == pytest.approx(0.27 / math.sqrt(P), rel=1e-15)


distinct = st.lists(st.integers(-1000, 1000), min_size=SIZE, max_size=SIZE)


@settings(max_examples=25, deadline=None)
@given(returns=distinct, shift=st.integers(-(10**6), 10**6), antithetic=st.booleans())
def test_only_the_order_of_the_returns_counts(returns, shift, antithetic):
    one, shifted, bent = (make(antithetic=antithetic) for _ in range(3))
    values = np.array(returns, dtype=float)
    for algorithm, told in ((one, values), (shifted, values + shift), (bent, values**3)):
        algorithm.tell(algorithm.ask(), told)
    for algorithm in (shifted, bent):
        np.testing.assert_array_equal(algorithm.center, one.center)
        np.testing.assert_array_equal(deviations(algorithm), deviations(one))


@settings(max_examples=10, deadline=None)
@given(power=st.integers(-8, 8))
def test_another_unit_of_the_parameters_changes_nothing(power):
    # Powers of two, so that no product is rounded and the bits must agree.
    unit = 2.0**power
    one = make()
    other = make(center_init=START * unit, sigma=0.1 * unit, learning_rate=0.15 * unit)
    centers = run(other, function=lambda members: fitness(members / unit))
    np.testing.assert_array_equal(centers / unit, run(one))
    np.testing.assert_array_equal(deviations(other) / unit, deviations(one))


@settings(max_examples=10, deadline=None)
@given(shift=st.floats(-100, 100))
def test_another_origin_of_the_parameters_changes_nothing(shift):
    one, moved = make(), make(center_init=START + shift)
    centers = run(moved, function=lambda members: fitness(members - shift))
    np.testing.assert_allclose(centers - shift, run(one), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(deviations(moved), deviations(one), rtol=1e-9)


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("antithetic", [True, False])
# Of the second, `raw` makes equal utilities, whose mean is off by rounding.
@pytest.mark.parametrize("values", [[-21.3] * SIZE, [0.1, 0.1, math.nan] + [0.1] * (SIZE - 3)])
def test_equal_utilities_move_nothing(shaping, antithetic, values):
    algorithm = make(shaping=shaping, antithetic=antithetic)
    run(algorithm, 3)
    before = algorithm.state_dict()
    algorithm.tell(algorithm.ask(), values)
    after = algorithm.state_dict()
    if shaping in {"raw", "normalized"} or not np.isnan(values).any():
        np.testing.assert_array_equal(after["center"], before["center"])
        np.testing.assert_array_equal(after["sigma"], before["sigma"])
        np.testing.assert_array_equal(
            after["optimizer"]["velocity"], before["optimizer"]["velocity"]
        )
    else:
        assert not np.array_equal(after["center"], before["center"])
    assert algorithm.generation == 4


def test_a_constant_function_is_a_walk_to_nowhere():
    algorithm = make()
    run(algorithm, 10, lambda members: np.full(len(members), 0.3))
    np.testing.assert_array_equal(algorithm.center, START)
    np.testing.assert_array_equal(deviations(algorithm), 0.1)


def test_a_failed_member_counts_as_the_worst():
    failing, worst = make(population_size=6), make(population_size=6)
    failing.tell(failing.ask(), [1, 2, math.nan, 3, 4, 5])
    worst.tell(worst.ask(), [1, 2, -1e9, 3, 4, 5])
    np.testing.assert_array_equal(failing.center, worst.center)
    np.testing.assert_array_equal(deviations(failing), deviations(worst))


def test_one_pair_moves_the_centre_only():
    algorithm = make(population_size=2)
    population = algorithm.ask()
    algorithm.tell(population, [0.0, 1.0])
    step = population.member(1) - START
    np.testing.assert_allclose(algorithm.center, START + 0.15 * step / np.linalg.norm(step))
    np.testing.assert_array_equal(deviations(algorithm), 0.1)


@pytest.mark.parametrize("antithetic", [True, False])
def test_one_parameter(antithetic):
    algorithm = make(num_params=1, center_init=1.0, antithetic=antithetic, learning_rate=0.05)
    centers = run(algorithm, 60, lambda members: -(members[:, 0] ** 2))
    assert np.abs(centers[-10:]).max() < 0.2


@pytest.mark.parametrize("change", [None, 5.0])
@pytest.mark.parametrize("antithetic", [True, False])
def test_a_deviation_stays_positive_where_plain_ascent_would_pass_zero(change, antithetic):
    algorithm = make(
        antithetic=antithetic, shaping="raw", sigma_learning_rate=5.0, sigma_max_change=change
    )
    old, falls = deviations(algorithm), 0
    for _ in range(10):
        run(algorithm, 1)
        new = deviations(algorithm)
        assert (new >= 0.01 * old).all()
        falls += (new == 0.01 * old).sum()
        old = new
    assert falls > 0
    assert (new > 0).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"population_size": 7}, "population_size = 7: expected an even number"),
        ({"sigma": 0.1, "radius": 1.0}, "expected exactly one of them"),
        ({"sigma_learning_rate": -0.1}, "sigma_learning_rate = -0.1"),
        ({"sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min = 0.2: expected at most sigma_max"),
        ({"optimizer": "clip_up"}, "did you mean 'clipup'"),
        ({"max_speed": 0.3}, "unknown key max_speed"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        make(**given)


def test_a_deviation_for_each_parameter_must_fit():
    with pytest.raises(UsageError, match="sigma has 2 numbers: expected one, or 7"):
        make_with([0.1, 0.2])()
