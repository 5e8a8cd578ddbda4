import pickle
from collections import Counter

import numpy as np
import pytest

import esbench
from esbench.algorithms import genetic
from esbench.core.noise import GaussianNoise
from esbench.core.seeding import Purpose, noise_key, stream

P, SIZE, PARENTS, CANDIDATES, EPISODES = 5, 30, 6, 4, 3
SIGMA, SIGMA_INIT, SEED = 0.05, 0.4, 11
START = np.linspace(-1.0, 1.0, P)


def fitness(members):
    return -np.sum((members - 0.3) ** 2 * np.arange(1, P + 1), axis=1)


def luck(generation, episode, size):
    """Return the noise in each member's return of one episode, [size]."""
    return 0.5 * np.random.default_rng([generation, episode]).standard_normal(size)


def make(**changes):
    given = {"num_params": P, "seed": SEED, "center_init": START, "population_size": SIZE}
    given |= {"sigma": SIGMA, "sigma_init": SIGMA_INIT, "num_parents": PARENTS}
    given |= {"elite_candidates": CANDIDATES, "elite_episodes": EPISODES} | changes
    return esbench.make_algorithm("genetic", **given)


def score(population, generation):
    """Return noisy returns; the mean over the episodes of a probe, or one episode's."""
    values = fitness(population.members())
    if not population.copies:
        return values + luck(generation, 0, len(population))
    episodes = range(1, EPISODES + 1)
    return values + np.mean([luck(generation, e, len(population)) for e in episodes], axis=0)


def step(algorithm):
    """Answer probes and tell one generation; return its population."""
    while (population := algorithm.ask()) and algorithm.plan.probe:
        algorithm.tell(population, score(population, algorithm.generation))
    algorithm.tell(population, score(population, algorithm.generation))
    return population


def fresh(monkeypatch):
    """Forget what this process has decoded, as another process would have."""
    monkeypatch.setattr(genetic, "DECODER", genetic.Decoder())


def papers(generations, elite_episodes, num_parents):
    """Yield the population of each generation of Such et al. 2017, algorithm 1, as a matrix."""
    key = noise_key(SEED)
    population, returns, elite = np.empty((0, P)), np.empty(0), START
    for g in range(generations):
        if g > 0:
            order = np.argsort(-returns, kind="stable")  # sort in descending order
            population = population[order]
            others = population[order != 0]
            if elite_episodes:
                candidates = np.vstack([elite, others[: CANDIDATES - 1]])
                lucks = [luck(g, e, CANDIDATES) for e in range(1, elite_episodes + 1)]
                best = np.argmax(fitness(candidates) + np.mean(lucks, axis=0))
                elite = candidates[best]
            else:
                elite = population[0]
            population = np.vstack([elite, population[(population != elite).any(axis=1)]])
        children = [elite]  # copy the elite
        for i in range(1, SIZE):
            philox = np.random.Philox(key=key, counter=[0, 0, g * 2**32 + i, 0])
            epsilon = np.random.Generator(philox).standard_normal(P)
            if g == 0:
                children.append(START + SIGMA_INIT * epsilon)  # initialize random DNN
                continue
            parent = population[stream(SEED, Purpose.CHOICE, g, i).integers(num_parents)]
            random_again = (parent == START).all()
            children.append(parent + (SIGMA_INIT if random_again else SIGMA) * epsilon)
        population = np.array(children)
        yield population
        returns = fitness(population) + luck(g, 0, SIZE)


@pytest.mark.parametrize(
    ("elite_episodes", "num_parents"),
    [(0, PARENTS), (EPISODES, PARENTS), (EPISODES, CANDIDATES // 2)],
)
def test_the_populations_are_the_papers(elite_episodes, num_parents):
    algorithm = make(elite_episodes=elite_episodes, num_parents=num_parents)
    elites = []
    for expected in papers(30, elite_episodes, num_parents):
        np.testing.assert_array_equal(step(algorithm).members(), expected)
        elites.append(expected[0])
    assert len(np.unique(elites, axis=0)) > 5
    assert fitness(algorithm.center[None])[0] > fitness(START[None])[0] / 5


# Decoding: every process decodes a genome to the same bits, from any shorter known genome.


def from_the_start(population, genome):
    """Return the parameters of a genome, decoded as it is written."""
    ancestor = population.ancestor
    vector = ancestor.parameters.copy()
    for place, mutation in enumerate(genome):
        vector = vector + (SIGMA if place else SIGMA_INIT) * ancestor.noise.row(mutation)
    return vector


@pytest.mark.parametrize("episodes", [0, EPISODES])
def test_a_long_chain_has_the_same_bits_however_it_is_decoded(episodes, monkeypatch):
    algorithm = make(elite_episodes=episodes)
    for generation in range(40):
        population = step(algorithm)
        if generation % 13 == 12:
            everyone = population.members()
            for member in range(0, SIZE, 7):
                expected = from_the_start(population, population.genome(member))
                np.testing.assert_array_equal(everyone[member], expected)
            traveled = pickle.loads(pickle.dumps(population))  # noqa: S301
            with monkeypatch.context() as patch:
                fresh(patch)
                np.testing.assert_array_equal(traveled.members([17, 3]), everyone[[17, 3]])
                np.testing.assert_array_equal(traveled.members(), everyone)
    assert max(map(len, algorithm.ask().genomes)) > 15


@pytest.mark.parametrize(
    "changes", [{"seed": 12}, {"sigma": 0.06}, {"sigma_init": 0.41}, {"center_init": 0.0}, {}]
)
def test_trials_that_take_turns_in_a_process_do_not_mix(changes):
    returns = np.arange(float(SIZE))  # the same parents in both, of other parameters
    both = [{"elite_episodes": 0}, {"elite_episodes": 0} | changes]
    alone = []
    for changes in both:
        algorithm = make(**changes)
        alone.append([])
        for _ in range(4):
            alone[-1].append(algorithm.ask().members())
            algorithm.tell(algorithm.ask(), returns)
    together = [make(**changes) for changes in both]
    for generation in range(4):
        for algorithm, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(algorithm.ask().members(), expected[generation])
        for algorithm in together:
            algorithm.tell(algorithm.ask(), returns)


def drawn_rows(monkeypatch, population, members):
    """Return the number of noise vectors that are drawn to make members."""
    rows = []
    blocks = GaussianNoise.blocks

    def counted(self, row):
        rows.append(row)
        return blocks(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(GaussianNoise, "blocks", counted)
        population.members(members)
    return len(rows)


@pytest.mark.parametrize("episodes", [0, EPISODES])
def test_a_parent_costs_one_noise_vector_however_old_it_is(episodes, monkeypatch):
    fresh(monkeypatch)
    algorithm = make(elite_episodes=episodes)
    for _ in range(60):
        population = step(algorithm)
    kept = max(PARENTS, CANDIDATES) + 1 if episodes else PARENTS
    while (population := algorithm.ask()) and algorithm.plan.probe:
        # The members it replays are children of this generation's parents.
        assert drawn_rows(monkeypatch, population, range(CANDIDATES)) <= kept
        assert drawn_rows(monkeypatch, population, range(CANDIDATES)) == 0
        algorithm.tell(population, np.arange(4.0))
    assert drawn_rows(monkeypatch, population, range(SIZE)) <= kept + SIZE - 1
    assert drawn_rows(monkeypatch, population, range(SIZE)) == SIZE - 1

    fresh(monkeypatch)  # after a resume: what all genomes share is decoded once
    chains = Counter(mutation for genome in population.genomes for mutation in genome)
    everywhere = sum(count == len(population.genomes) for count in chains.values())
    expected = everywhere + sum(n for n in chains.values() if n < len(population.genomes))
    assert everywhere > 0 or episodes
    assert drawn_rows(monkeypatch, population, [0]) == expected
