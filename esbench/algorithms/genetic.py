"""Deep GA: Such, Madhavan, Conti, Lehman, Stanley & Clune, "Deep Neuroevolution: Genetic Algorithms
Are a Competitive Alternative for Training Deep Neural Networks for Reinforcement Learning", 2017
(arXiv:1712.06567), algorithm 1.

A genome is the chain of its mutations, each the number of a noise row; only these numbers go to
workers and into checkpoints. A probe at the beginning of the next generation chooses the elite of a
generation. Until then, even at the end of a trial, the center is the previous elite. Three things
differ from the paper:

- The paper draws every policy of the first generation from its initializer. Here the initial
  parameters of the policy are the first elite, and the other members add noise of ``sigma_init`` to
  them; so do its children in later generations, as long as it stays the elite.
- The elite is not only copied: it plays again as member 0, on the same terms as the others.
- If all returns of a generation are equal, the same parents get different children.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.algorithms.base import Algorithm, register_algorithm, scale_of
from esbench.algorithms.search_settings import AtLeastTwo, DeviationSettings, PerParameter, fitting
from esbench.algorithms.shaping import ranks
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.noise import GaussianNoise
from esbench.core.population import Population
from esbench.core.search_space import Tune
from esbench.core.seeding import Purpose, noise_key, stream
from esbench.core.settings import MOST_EPISODES, Count

Genome: TypeAlias = tuple[int, ...]  # the numbers of noise rows
START: Final[Genome] = ()  # the initial parameters of the policy
MEMBERS: Final = 1 << 32  # a mutation's noise row is generation * MEMBERS + member


@final
class GeneticSettings(DeviationSettings):
    """Settings of the Deep GA; the defaults suit small policies and budgets.

    The paper's Atari runs (4 million parameters, a billion frames) use population_size = 1000,
    sigma = 0.002, num_parents = 20, elite_candidates = 10 and elite_episodes = 30.
    """

    population_size: AtLeastTwo | None = 64
    """Members per generation, including the elite [members]."""

    sigma: Annotated[PerParameter | None, Tune(low=0.002, high=0.5, log=True)] = 0.1
    """Standard deviation of a mutation: one number, or one per parameter [parameter units]."""

    sigma_init: Annotated[PerParameter, Tune(low=0.02, high=1.0, log=True)] = 0.1
    """Standard deviation of the first generation around the initial parameters of the policy: one
    number, or one per parameter [parameter units]."""

    num_parents: Annotated[Count, Tune(low=2, high=20, log=True)] = 10
    """Number of best members from which the parents of the next generation are drawn (the paper's
    T); at most all members [members]."""

    elite_candidates: AtLeastTwo = 5
    """Members that can become the elite: the current elite and the best others [members]."""

    elite_episodes: Annotated[int, Field(ge=0, le=MOST_EPISODES)] = 4
    """Further episodes that each candidate plays to become the elite; 0 takes the best member of
    the generation without further episodes [episodes]."""


@final
@dataclass(frozen=True, eq=False)
class Ancestor:
    """The start of all genomes of a trial, and the scale of their mutations.

    Attributes:
        parameters: the initial parameters of the policy, [P].
        sigma_init: deviation of the first mutation of a genome, a number or [P].
        sigma: deviation of the later mutations, a number or [P].
        identity: a digest of all attributes.
    """

    parameters: Vector
    sigma_init: float | Vector
    sigma: float | Vector
    noise: GaussianNoise
    identity: bytes = field(init=False)

    def __post_init__(self) -> None:
        content = [self.noise.key.to_bytes(16, "little")]
        for part in (self.parameters, self.sigma_init, self.sigma):
            content += [b"%d:" % np.size(part), np.asarray(part, dtype="<f8").tobytes()]
        object.__setattr__(self, "identity", hashlib.sha256(b"".join(content)).digest())

    def decode(self, genome: Genome, known: Genome, parameters: Vector) -> Vector:
        """The parameters [P] of a genome, from those of a ``known`` genome it begins with."""
        vector = parameters.copy()
        for place, mutation in enumerate(genome[len(known) :], len(known)):
            sigma = self.sigma if place > 0 else self.sigma_init
            for at, noise in self.noise.blocks(mutation):
                # theta_n = theta_(n-1) + sigma eps(tau_n)                           (equation 1)
                vector[at] += (sigma[at] if isinstance(sigma, np.ndarray) else sigma) * noise
        return vector


@final
class Decoder:
    """A cache of the decoded genomes of the latest population in this process.

    During a replacement it holds at most two vectors more than there are genomes.
    """

    def __init__(self) -> None:
        self._identity = b""
        self._genomes: tuple[Genome, ...] = ()
        self._vectors: dict[Genome, Vector] = {}

    def vector(self, ancestor: Ancestor, genomes: tuple[Genome, ...], index: int) -> Vector:
        """The parameters of ``genomes[index]``, [P]; the caller must not write to them."""
        if ancestor.identity != self._identity:
            self._identity, self._genomes, self._vectors = ancestor.identity, (), {}
        if genomes is not self._genomes:
            self._genomes, vectors = (), self._vectors
            self._vectors = {}  # so that vectors without descendants are freed at once
            self._vectors = _descendants(ancestor, genomes, vectors)
            self._genomes = genomes
        return self._vectors[genomes[index]]


DECODER: Final = Decoder()


def _descendants(
    ancestor: Ancestor, genomes: tuple[Genome, ...], known: dict[Genome, Vector]
) -> dict[Genome, Vector]:
    """The parameters of genomes, each decoded from the longest known genome it begins with.

    An entry of ``known`` is deleted as soon as no genome is left that descends from it.
    """
    known[START] = ancestor.parameters
    roots = {genome: _longest_known(genome, known) for genome in genomes}
    shared = _shared(genomes)
    if any(len(root) < len(shared) for root in roots.values()):  # after a resume, for example
        root = _longest_known(shared, known)
        known[shared] = ancestor.decode(shared, root, known[root])
        roots = {genome: _longest_known(genome, known) for genome in genomes}
    uses = Counter(roots.values())
    for genome in known.keys() - uses.keys():
        del known[genome]
    decoded = {}
    for genome, root in roots.items():
        decoded[genome] = ancestor.decode(genome, root, known[root])
        uses[root] -= 1
        if not uses[root]:
            del known[root]
    return decoded


def _longest_known(genome: Genome, known: dict[Genome, Vector]) -> Genome:
    return next(genome[:size] for size in range(len(genome), -1, -1) if genome[:size] in known)


def _shared(genomes: tuple[Genome, ...]) -> Genome:
    """The longest common beginning of all genomes: that of the smallest and the largest one."""
    first, last = min(genomes), max(genomes)
    pairs = zip(first, last, strict=False)
    return first[: next((n for n, (a, b) in enumerate(pairs) if a != b), len(first))]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class GeneticPopulation(Population):
    """The elite and the parents' children; or copies of the candidates for the elite.

    Attributes:
        genomes: the elite's genome, then those of the other parents and candidates, best first.
        num_parents: the number of parents among them (the paper's T).
        seed, generation: they determine the draws of the parents.
        copies: whether all members are copies of the first genomes, in order.
    """

    ancestor: Ancestor
    genomes: tuple[Genome, ...]
    num_parents: int
    seed: int
    generation: int
    copies: bool = False

    def genome(self, index: int) -> Genome:
        """The genome of one member."""
        return self._descent(index)[1]

    def member(self, index: int) -> Vector:
        """The parameters of one member, [P]."""
        parent, genome = self._descent(index)
        parameters = DECODER.vector(self.ancestor, self.genomes, parent)
        return self.ancestor.decode(genome, self.genomes[parent], parameters)

    def row(self, member: int) -> int:
        """The member's own number."""
        return member

    def low_rank(self, index: int) -> None:
        """None: mutations have full rank."""

    def _descent(self, index: int) -> tuple[int, Genome]:
        if self.copies or index == 0:
            return index, self.genomes[index]
        choice = stream(self.seed, Purpose.CHOICE, self.generation, index)
        parent = int(choice.integers(self.num_parents))  # k = uniformRandom(1, T)  (algorithm 1)
        return parent, (*self.genomes[parent], self.generation * MEMBERS + index)


@final
@register_algorithm("genetic")
class Genetic(Algorithm[GeneticPopulation]):
    """Deep GA: the best members' children, by mutation only, and an elite that plays again."""

    Settings = GeneticSettings
    paper = "Such et al. 2017, arXiv:1712.06567"
    settings: GeneticSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._ancestor = self._ancestor_at(self._center.copy())
        self._elite = START
        self._ranked: tuple[Genome, ...] = (START,)  # the best of the last generation, best first

    @property
    def sigma(self) -> float:
        """The deviation of a mutation; constant."""
        return scale_of(self._ancestor.sigma)

    def _ask(self) -> GeneticPopulation:
        settings, genomes, probe = self.settings, self._genomes(), self.plan.probe
        candidates = min(settings.elite_candidates, len(genomes))
        return GeneticPopulation(
            ancestor=self._ancestor,
            genomes=genomes,
            num_parents=min(settings.num_parents, len(genomes)),
            size=candidates if probe else self.population_size,
            copies=probe,
            seed=self.seed,
            generation=self.generation,
        )

    def _tell(self, population: GeneticPopulation, returns: Vector, behaviors: Matrix) -> None:
        # In descending order; ties go to the earlier member, so to the elite first.
        order = np.argsort(-ranks(returns), kind="stable").tolist()
        if population.copies:  # Elite <- argmax over C of the mean of its episodes
            self._set_probe(False)
            self._crown(population.genomes[order[0]])
            return
        settings, probe = self.settings, self.settings.elite_episodes > 0
        kept = max(settings.num_parents, settings.elite_candidates if probe else 0)
        self._ranked = tuple(map(population.genome, order[:kept]))
        if probe:
            self._set_probe(True)
        else:
            self._crown(self._ranked[0])

    def _set_probe(self, probe: bool) -> None:
        episodes = self.settings.elite_episodes if probe else None
        self.plan = replace(self.plan, probe=probe, episodes=episodes)

    def _genomes(self) -> tuple[Genome, ...]:
        """[Elite, P - {Elite}], which begins with the candidates and the parents."""
        return (self._elite, *(genome for genome in self._ranked if genome != self._elite))

    def _crown(self, genome: Genome) -> None:
        self._elite = genome
        self._center = DECODER.vector(self._ancestor, self._genomes(), 0).copy()

    def _ancestor_at(self, parameters: Vector) -> Ancestor:
        settings, num_params = self.settings, parameters.size
        return Ancestor(
            parameters,
            sigma_init=fitting("sigma_init", settings.sigma_init, num_params),
            sigma=settings.initial_sigma(num_params),
            noise=GaussianNoise(noise_key(self.seed), num_params),
        )

    def _state_dict(self) -> State:
        genomes = (self._elite, *self._ranked)
        return {
            "start": self._ancestor.parameters.copy(),
            "mutations": np.array([number for genome in genomes for number in genome], np.int64),
            "lengths": np.array([len(genome) for genome in genomes]),
            "probing": int(self.plan.probe),
        }

    def _load_state_dict(self, state: State) -> None:
        ends = np.cumsum(state["lengths"])[:-1]
        genomes = [tuple(part.tolist()) for part in np.split(state["mutations"], ends)]
        self._elite, self._ranked = genomes[0], tuple(genomes[1:])
        self._set_probe(bool(state["probing"]))
        self._ancestor = self._ancestor_at(np.array(state["start"]))
