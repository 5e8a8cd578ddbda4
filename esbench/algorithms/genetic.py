"""Deep GA: Such, Madhavan, Conti, Lehman, Stanley & Clune, "Deep Neuroevolution: Genetic Algorithms
Are a Competitive Alternative for Training Deep Neural Networks for Reinforcement Learning", 2017
(arXiv:1712.06567), algorithm 1.

A genome is the chain of its mutations, each the number of a noise row, which is all that travels
to workers and into checkpoints. The elite of a generation is chosen by a probe that begins the next
one; until then, and so at the end of a trial, the centre is the elite before. Three things differ
from the paper:

- The paper draws every policy of the first generation from its initialiser. Here the policy's own
  initialisation is the first elite, and the others are it plus noise of ``sigma_init``; so are
  its children in later generations, should nothing have beaten it.
- The elite is not only copied but plays again as member 0, under the same luck as its rivals.
- If all returns of a generation are equal, the same parents have other children.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.algorithms.base import Algorithm, State, fitting, register_algorithm, scale_of
from esbench.algorithms.noise import GaussianNoise
from esbench.algorithms.population import Population
from esbench.algorithms.settings import Count, DeviationSettings, PerParameter
from esbench.algorithms.shaping import all_equal, ranks
from esbench.arrays import Matrix, Shapes, Vector
from esbench.seeding import Purpose, noise_key, stream

Genome: TypeAlias = tuple[int, ...]
START: Final[Genome] = ()  # the policy's own initialisation
MEMBERS: Final = 1 << 32  # a mutation's noise row is generation * MEMBERS + member


class GeneticSettings(DeviationSettings):
    """Settings of the Deep GA; the defaults suit small policies and budgets.

    The paper's Atari runs, of 4 million parameters and a billion frames, had population_size =
    1000, sigma = 0.002, num_parents = 20, elite_candidates = 10 and elite_episodes = 30.
    """

    population_size: Annotated[int, Field(ge=2)] | None = 64
    """Members a generation, the elite among them [members]."""

    sigma: PerParameter | None = 0.1
    """Deviation of a mutation: a number, or one for each parameter [parameter units]."""

    sigma_init: PerParameter = 0.1
    """Deviation of the first generation about the policy's own initialisation: a number, or one
    for each parameter [parameter units]."""

    num_parents: Count = 10
    """The best of a generation, from which the next one's parents are drawn (the paper's T); if
    there are fewer members, all [members]."""

    elite_candidates: Annotated[int, Field(ge=2)] = 5
    """Members that may become the elite: the present one, and the best others [members]."""

    elite_episodes: Annotated[int, Field(ge=0)] = 4
    """Further episodes that each candidate plays to become the elite; 0 plays none and takes the
    best member of the generation [episodes]."""


@final
@dataclass(frozen=True, eq=False)
class Ancestor:
    """What all genomes of a trial descend from, and how they are decoded.

    Attributes:
        parameters: of the policy's own initialisation, [P].
        sigma_init: deviation of a genome's first mutation, a number or [P].
        sigma: deviation of its later ones, a number or [P].
        noise: of all mutations.
        identity: a digest of the above.
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
        """Return the parameters [P] of a genome, from those of one that it begins with."""
        vector = parameters.copy()
        for place, mutation in enumerate(genome[len(known) :], len(known)):
            sigma = self.sigma if place > 0 else self.sigma_init
            for at, noise in self.noise.blocks(mutation):
                # theta_n = theta_(n-1) + sigma eps(tau_n)                           (equation 1)
                vector[at] += (sigma[at] if isinstance(sigma, np.ndarray) else sigma) * noise
        return vector


@final
class Decoder:
    """The decoded genomes of the population that this process has last made members of.

    Those of the next population are a mutation away, so each costs one noise vector, however long
    it is. While they replace each other, at most two vectors more than there are genomes are held.
    """

    def __init__(self) -> None:
        self._identity = b""
        self._genomes: tuple[Genome, ...] = ()
        self._vectors: dict[Genome, Vector] = {}

    def vector(self, ancestor: Ancestor, genomes: tuple[Genome, ...], index: int) -> Vector:
        """Return the parameters of ``genomes[index]``, [P], not to be written to."""
        if ancestor.identity != self._identity:
            self._identity, self._genomes, self._vectors = ancestor.identity, (), {}
        if genomes is not self._genomes:
            self._genomes, vectors = (), self._vectors
            self._vectors = {}  # so that those which nobody descends from are freed
            self._vectors = _descendants(ancestor, genomes, vectors)
            self._genomes = genomes
        return self._vectors[genomes[index]]


DECODER: Final = Decoder()


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class GeneticPopulation(Population):
    """The elite and the parents' children; or, as a probe, the elite's rivals as they are.

    Attributes:
        ancestor: of all genomes.
        genomes: the elite's and, best first, those of the other parents and candidates.
        num_parents: how many of these are parents (the paper's T).
        seed: of the trial; names the draws of parents.
        generation: names them too, and the mutations.
    """

    ancestor: Ancestor
    genomes: tuple[Genome, ...]
    num_parents: int
    seed: int
    generation: int

    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return self.ancestor.parameters.size

    def genome(self, index: int) -> Genome:
        """Return the genome of one member."""
        return self._child(self._parent(index), index)

    def member(self, index: int) -> Vector:
        """Return the parameters of one member, [P]."""
        parent = self._parent(index)
        parameters = DECODER.vector(self.ancestor, self.genomes, parent)
        genome = self._child(parent, index)
        return self.ancestor.decode(genome, self.genomes[parent], parameters)

    def row(self, member: int) -> int:
        """Return the member's own number."""
        return member

    def _is_copy(self, index: int) -> bool:
        return self.probe or index == 0

    def _parent(self, index: int) -> int:
        if self._is_copy(index):
            return index
        choice = stream(self.seed, Purpose.CHOICE, self.generation, index)
        return int(choice.integers(self.num_parents))  # k = uniformRandom(1, T)   (algorithm 1)

    def _child(self, parent: int, index: int) -> Genome:
        genome = self.genomes[parent]
        return genome if self._is_copy(index) else (*genome, self.generation * MEMBERS + index)


@final
@register_algorithm("genetic")
class Genetic(Algorithm[GeneticPopulation]):
    """Deep GA: the best members' children by mutation alone, and an elite that plays again."""

    Settings = GeneticSettings
    paper = "Such et al. 2017, arXiv:1712.06567"
    settings: GeneticSettings

    def __init__(
        self, settings: GeneticSettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._ancestor = self._ancestor_at(self._center.copy())
        self._elite = START
        self._ranked: tuple[Genome, ...] = (START,)  # the best of the last generation, best first
        self._probing = False

    @property
    def sigma(self) -> float:
        """The deviation of a mutation; constant."""
        return scale_of(self._ancestor.sigma)

    def _ask(self) -> GeneticPopulation:
        settings, genomes = self.settings, self._genomes()
        candidates = min(settings.elite_candidates, len(genomes))
        return GeneticPopulation(
            ancestor=self._ancestor,
            genomes=genomes,
            num_parents=min(settings.num_parents, len(genomes)),
            size=candidates if self._probing else self.population_size,
            probe=self._probing,
            episodes=settings.elite_episodes if self._probing else None,
            seed=self.seed,
            generation=self.generation,
        )

    def _tell(self, population: GeneticPopulation, returns: Vector, behaviors: Matrix) -> None:
        if all_equal(returns):
            self._probing = False  # a probe has left the elite what it was
            return
        # Sort in descending order; of equal members the earlier first, so the elite before all.
        order = np.argsort(-ranks(returns), kind="stable").tolist()
        if population.probe:  # Elite <- argmax over C of the mean of its episodes
            self._probing = False
            self._crown(population.genomes[order[0]])
            return
        settings = self.settings
        if settings.elite_episodes > 0:
            kept = max(settings.num_parents, settings.elite_candidates)
            self._ranked = tuple(map(population.genome, order[:kept]))
            self._probing = True
        else:
            self._ranked = tuple(map(population.genome, order[: settings.num_parents]))
            self._crown(self._ranked[0])

    def _genomes(self) -> tuple[Genome, ...]:
        """Return [Elite, P - {Elite}], of which the first are the candidates and the parents."""
        return (self._elite, *(genome for genome in self._ranked if genome != self._elite))

    def _crown(self, genome: Genome) -> None:
        self._elite = genome
        self._center = DECODER.vector(self._ancestor, self._genomes(), 0).copy()

    def _ancestor_at(self, parameters: Vector) -> Ancestor:
        settings, num_params = self.settings, parameters.size
        return Ancestor(
            parameters,
            sigma_init=fitting("sigma_init", settings.sigma_init, num_params),
            sigma=fitting("sigma", settings.initial_sigma(num_params), num_params),
            noise=GaussianNoise(noise_key(self.seed), num_params),
        )

    def _state_dict(self) -> State:
        genomes = (self._elite, *self._ranked)
        return {
            "start": self._ancestor.parameters.copy(),
            "mutations": np.array([number for genome in genomes for number in genome], np.int64),
            "lengths": np.array([len(genome) for genome in genomes]),
            "probing": int(self._probing),
        }

    def _load_state_dict(self, state: State) -> None:
        ends = np.cumsum(state["lengths"])[:-1]
        genomes = [tuple(part.tolist()) for part in np.split(state["mutations"], ends)]
        self._elite, self._ranked = genomes[0], tuple(genomes[1:])
        self._probing = bool(state["probing"])
        self._ancestor = self._ancestor_at(np.array(state["start"]))


def _descendants(
    ancestor: Ancestor, genomes: tuple[Genome, ...], known: dict[Genome, Vector]
) -> dict[Genome, Vector]:
    """Return the parameters of genomes, decoded from the nearest of those that are known.

    What is known is forgotten as soon as nothing descends from it any more.
    """
    known[START] = ancestor.parameters
    roots = {genome: _longest_known(genome, known) for genome in genomes}
    shared = _shared(genomes)
    if any(len(root) < len(shared) for root in roots.values()):  # such as after a resume
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
    """Return the longest genome that all begin with: what the least and the greatest share."""
    first, last = min(genomes), max(genomes)
    pairs = zip(first, last, strict=False)
    return first[: next((n for n, (a, b) in enumerate(pairs) if a != b), len(first))]
