import copy
import math

import numpy as np
import pytest
from searches import centered_ranks, dense_noise

import esbench
from esbench.algorithms.novelty import novelties
from esbench.algorithms.shaping import SHAPINGS
from esbench.core.seeding import Purpose, noise_key, stream

ALL = ("ns_es", "nsr_es", "nsra_es")
P, SIZE, SIGMA, RATE = 5, 12, 0.1, 0.05
TARGET = np.linspace(-0.5, 0.8, P)

every_search = pytest.mark.parametrize("name", ALL)


def fitness(members):
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def behavior(members):
    return np.stack([np.sin(members[:, 0]) + members[:, 1], members[:, 2] * members[:, 3]], axis=1)


def make(name, *, seed=0, num_params=P, **changes):
    changes = {"population_size": SIZE, "sigma": SIGMA, "learning_rate": RATE, **changes}
    return esbench.make_algorithm(
        name, num_params=num_params, seed=seed, **{"center_init": 0.25, **changes}
    )


def answer(algorithm, returns=fitness, behaviors=behavior):
    """Tell the probe that is pending."""
    assert algorithm.plan.probe
    step(algorithm, returns, behaviors)


def step(algorithm, returns=fitness, behaviors=behavior):
    """Tell what is asked now, a probe or a generation; return its members."""
    population = algorithm.ask()
    members = population.members()
    algorithm.tell(population, returns(members), behaviors(members))
    return members


def run(algorithm, generations, returns=fitness, behaviors=behavior):
    """Return the centers [generations, P], and the parent of every generation."""
    centers, parents = [], []
    for _ in range(generations):
        answer(algorithm, returns, behaviors)
        step(algorithm, returns, behaviors)
        centers.append(algorithm.center.copy())
        parents.append(algorithm.plan.lineage)
    return np.array(centers), parents


def constant(value):
    """Return a function of members that gives each of them the same number or row."""
    return lambda members: np.broadcast_to(value, (len(members), *np.shape(value)))


def adam():
    m, v, t = np.zeros(P), np.zeros(P), 0

    def climb(theta, gradient):
        nonlocal m, v, t
        m, v, t = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2, t + 1
        return theta + RATE * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

    return climb


def paper(name, iterations, *, seed, M, k, delta_w=0.2, t_w=2, spread=5.0):  # noqa: N803
    """Conti et al. 2018, algorithms 1 to 3: centers and archive at the end, and every w."""

    def novelty(point):
        return np.mean(sorted(math.dist(point, a) for a in A)[:k])

    theta = [np.full(P, 0.25)]
    for m in range(1, M):
        z = stream(seed, Purpose.INITIALIZATION, m).standard_normal(P)
        theta.append(theta[0] + spread * SIGMA * z)
    b = list(behavior(np.array(theta)))
    A = list(b)  # noqa: N806
    climbs = [adam() for _ in range(M)]
    w, f_best, t_best = {"ns_es": 0.0, "nsr_es": 0.5, "nsra_es": 1.0}[name], -np.inf, 0
    weights = []
    for t in range(iterations):
        N = np.array([novelty(b_m) for b_m in b])  # noqa: N806
        chances = N / N.sum() if N.any() else np.full(M, 1 / M)
        m = stream(seed, Purpose.CHOICE, t).choice(M, p=chances)
        epsilon = dense_noise(noise_key(seed, t), SIZE, P)
        members = theta[m] + SIGMA * epsilon
        f = centered_ranks(fitness(members))
        n = centered_ranks([novelty(point) for point in behavior(members)])
        gradient = (w * f + (1 - w) * n) @ epsilon / SIZE
        theta[m] = climbs[m](theta[m], gradient - 0.005 * theta[m])
        b[m] = behavior(theta[m][None])[0]
        A.append(b[m])
        updated = fitness(theta[m][None])[0]
        t_best += 1
        if updated > f_best:
            w, f_best, t_best = min(1.0, w + delta_w * (name == "nsra_es")), updated, 0
        elif t_best == t_w:
            w, t_best = max(0.0, w - delta_w * (name == "nsra_es")), 0
        weights.append(w)
    return np.array(theta), np.array(A), weights


@every_search
@pytest.mark.parametrize(("seed", "size", "k"), [(0, 1, 3), (1, 3, 1), (2, 4, 10), (3, 5, 4)])
def test_fifty_generations_are_the_papers(name, seed, size, k):
    own = {"weight_patience": 2, "weight_delta": 0.2} if name == "nsra_es" else {}
    algorithm = make(name, seed=seed, meta_population_size=size, k=k, **own)
    run(algorithm, 50)
    answer(algorithm)
    theta, archive, w = paper(name, 50, seed=seed, M=size, k=k)
    state = algorithm.state_dict()
    np.testing.assert_allclose(state["centers"], theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(state["archive"], archive, rtol=0, atol=1e-12)
    assert algorithm.state_dict()["novelty_weight"] == pytest.approx(1 - w[-1], abs=1e-12)
    if (name, seed) == ("nsra_es", 2):  # it really adapts
        assert min(w) < 0.7
        assert (np.diff(w) > 0).any()
    assert len(archive) == size + 50
    assert np.ptp(theta - 0.25, axis=0).max() > 0.1 or size == 1
    best = int(np.argmax(fitness(theta)))
    assert algorithm.plan.center_lineage == best
    np.testing.assert_array_equal(algorithm.center, state["centers"][best])


def test_a_behavior_that_is_not_finite_has_no_novelty():
    behaviors = np.array([[math.nan, 0.0], [0.0, math.inf], [1.0, 0.0]])
    for archive in (np.zeros((2, 2)), np.empty((0, 2))):
        assert np.isfinite(novelties(behaviors, archive, 3)).tolist() == [False, False, True]
    assert np.isnan(novelties(behaviors[:2], np.zeros((2, 2)), 3)).all()


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_without_novelty_it_is_openai_es(shaping):
    common = {"shaping": shaping, "seed": 7, "learning_rate_decay": 0.9}
    plain = make("openai_es", **common)
    search = make("nsra_es", **common, meta_population_size=1, weight_delta=0.0, k=3)
    centers, _ = run(search, 30)
    for center in centers:
        population = plain.ask()
        plain.tell(population, fitness(population.members()))
        np.testing.assert_array_equal(center, plain.center)


@pytest.mark.parametrize(
    ("returns", "best"),
    [
        ([1, 3, 2], 1),
        ([3, 3, 2], 0),
        ([1, 2, 2], 1),
        ([math.nan, 1, math.inf], 1),
        ([math.nan, math.inf, math.nan], 0),
    ],
)
def test_the_center_is_the_one_with_the_best_probe(returns, best):
    algorithm = make("ns_es", meta_population_size=3)
    probe = algorithm.ask()
    members = probe.members()
    algorithm.tell(probe, returns, behavior(members))
    assert algorithm.plan.center_lineage == best
    np.testing.assert_array_equal(algorithm.center, members[best])


@pytest.mark.parametrize("most", [1, 4])  # below and above the size of the meta-population
def test_the_archive_drops_its_oldest(most):
    algorithm = make("ns_es", meta_population_size=3, archive_size_max=most)
    seen = list(behavior(algorithm.ask().members()))
    answer(algorithm)
    for _ in range(5):
        np.testing.assert_array_equal(algorithm.state_dict()["archive"], seen[-most:])
        step(algorithm)
        seen += list(behavior(algorithm.ask().members()))
        answer(algorithm)


def told_once(name, returns, behaviors, **changes):
    """Return a search after one generation, and where its parent was before."""
    algorithm = make(name, meta_population_size=1, **changes)
    answer(algorithm, constant(0.0), constant([0.0, 0.0]))
    population = algorithm.ask()
    algorithm.tell(population, returns, behaviors)
    return algorithm, population.center


SAME, APART = np.zeros((SIZE, 2)), np.arange(2.0 * SIZE).reshape(SIZE, 2)


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize(
    ("name", "returns", "behaviors", "moves"),
    [
        ("ns_es", np.full(SIZE, -21.0), APART, True),
        ("nsr_es", np.full(SIZE, -21.0), APART, True),
        ("nsra_es", np.full(SIZE, -21.0), APART, False),  # at first it looks at returns alone
        ("ns_es", np.arange(SIZE), SAME, False),
        ("nsr_es", np.arange(SIZE), SAME, True),
        ("nsra_es", np.arange(SIZE), SAME, True),
        ("ns_es", np.full(SIZE, -21.0), SAME, False),
        ("nsr_es", np.full(SIZE, -21.0), SAME, False),
        ("nsra_es", np.full(SIZE, -21.0), SAME, False),
        ("nsr_es", np.arange(SIZE), np.full((SIZE, 2), math.nan), False),
    ],
)
def test_equal_returns_or_behaviors_move_nothing(name, returns, behaviors, moves, shaping):
    algorithm, before = told_once(name, returns, behaviors, shaping=shaping)
    assert np.array_equal(algorithm.center, before) != moves
    assert (algorithm.state_dict()["optimizers"]["0"] == {}) != moves
    assert algorithm.generation == 1


@every_search
@pytest.mark.parametrize("asked", [0, 3, 6, 7])
def test_a_state_between_probe_and_generation_goes_on_bit_for_bit(name, asked):
    own = {"weight_patience": 2} if name == "nsra_es" else {}
    changes = {"meta_population_size": 3, "archive_size_max": 6, "learning_rate_decay": 0.9, **own}

    def proceed(search):  # returns fall, so that the weight counts and rises
        return step(search, lambda members: fitness(members) - 100 * search.generation)

    algorithm = make(name, **changes)
    for _ in range(asked):
        proceed(algorithm)
    state = algorithm.state_dict()
    kept = copy.deepcopy(state)
    restored = make(name, **changes, center_init=-3.0)
    restored.load_state_dict(state)
    for _ in range(16):
        assert algorithm.plan == restored.plan
        np.testing.assert_array_equal(proceed(algorithm), proceed(restored))
    np.testing.assert_equal(algorithm.state_dict(), restored.state_dict())
    np.testing.assert_equal(state, kept)
