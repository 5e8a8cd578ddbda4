"""NS-ES, NSR-ES and NSRA-ES: Conti, Madhavan, Petroski Such, Lehman, Stanley & Clune, "Improving
Exploration in Evolution Strategies for Deep Reinforcement Learning via a Population of
Novelty-Seeking Agents", NeurIPS 2018 (arXiv:1712.06560).

OpenAI-ES about one of M centres at a time, for novelty instead of the return, or for both. Before
the first generation the M centres are asked about with a probe, and before every later one the
centre that was updated last: its behaviour goes into the archive that novelty is measured against.
``center`` is the one whose last probe had the highest return, the first of equals, as it is now: if
it was updated since, it counts with the return it had before. As in the authors' code, returns and
novelties are shaped each by themselves, and a centre's own behaviour is in the archive that it is
chosen by.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.ascent import Ascent
from esbench.algorithms.base import Algorithm, State, fitting, register_algorithm, scale_of
from esbench.algorithms.openai_es import OpenAIESSettings
from esbench.algorithms.population import SampledPopulation, StoredPopulation
from esbench.algorithms.settings import Count, NonNegative
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.arrays import Matrix, Shapes, Vector
from esbench.seeding import Purpose, stream

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


def novelties(behaviors: Matrix, archive: Matrix, k: int) -> Vector:
    """Return N(b, A) = 1/|S| sum_{j in S} |b - a_j|, S the k nearest of A (section 3.1), [N].

    NaN for a behaviour that is not finite, and 0 for all others while the archive is empty.

    Args:
        behaviors: [N, D].
        archive: [A, D]; if it is smaller than k, all of it is nearest.
        k: at least 1.
    """
    from scipy.spatial.distance import cdist  # here: it takes as long to import as all of esbench

    novelty = np.full(len(behaviors), np.nan)
    finite = np.isfinite(behaviors).all(axis=1)
    if not len(archive):
        return np.where(finite, 0.0, novelty)
    size = min(k, len(archive))
    nearest = np.partition(cdist(behaviors[finite], archive), size - 1, axis=1)[:, :size]
    novelty[finite] = np.sort(nearest, axis=1).mean(axis=1)
    return novelty


@final
class NoveltyWeight:
    """How much novelty counts beside the return, 1 - w in the paper; constant without a ``delta``.

    Attributes:
        value: the weight now.
        best: the highest return that an updated centre has had.
        stale: how many have not been better, since that or the last increase.
    """

    def __init__(
        self, value: float, delta: float = 0.0, patience: int = 1, most: float = 1.0
    ) -> None:
        self.value, self.best, self.stale = value, -np.inf, 0
        self._delta, self._patience, self._most = delta, patience, most

    def adapt(self, updated: float) -> None:
        """See the return of a centre that was updated (section 3.2)."""
        if updated > self.best:
            self.best, self.stale = updated, 0
            self._add(-self._delta)  # w <- min(1, w + delta_w)
            return
        self.stale += 1
        if self.stale >= self._patience:
            self.stale = 0
            self._add(self._delta)  # w <- max(0, w - delta_w)

    def _add(self, change: float) -> None:
        # Rounded, so that ten steps of 0.1 reach 1.
        self.value = min(self._most, max(0.0, round(self.value + change, 12)))


class NoveltySettings(OpenAIESSettings):
    """Settings of all three; the others, with their defaults, are those of OpenAI-ES."""

    k: Count = 10
    """Novelty is the mean distance to so many nearest behaviours in the archive [behaviours]."""

    meta_population_size: Count = 5
    """Centres that are searched from, M; each has its own optimizer and its own observation
    statistics [centres]."""

    center_spread: NonNegative = 5.0
    """Deviation of the centres at the start about the first of them, which is the policy's
    initialisation (the paper draws each from that, which a search over vectors cannot) [sigma]."""

    probe_episodes: Count | None = None
    """Episodes of a centre whose behaviour is archived; by default as many as a member's
    [episodes]."""

    archive_size_max: Count = 1000
    """Behaviours kept in the archive, the latest; the paper keeps all, one a generation
    [behaviours]."""

    @abstractmethod
    def weight(self) -> NoveltyWeight:
        """Return how much novelty counts, at the start."""


class NSESSettings(NoveltySettings):
    """Settings of NS-ES."""

    def weight(self) -> NoveltyWeight:
        """Return 1."""
        return NoveltyWeight(1.0)


class NSRESSettings(NoveltySettings):
    """Settings of NSR-ES."""

    novelty_weight: Share = 0.5
    """What the shaped novelty counts; the shaped return counts 1 minus this."""

    def weight(self) -> NoveltyWeight:
        """Return a constant."""
        return NoveltyWeight(self.novelty_weight)


class NSRAESSettings(NoveltySettings):
    """Settings of NSRA-ES."""

    novelty_weight: Share = 0.0
    """What the shaped novelty counts at the start, 1 - w in the paper; the shaped return counts 1
    minus this."""

    novelty_weight_max: Share = 1.0
    """Largest weight of novelty."""

    weight_delta: Share = 0.05
    """What the weight of novelty falls by at a new best return, and rises by when there was none
    for a while."""

    weight_patience: Count = 50
    """How long that while is [generations]."""

    @model_validator(mode="after")
    def _starts_below_its_maximum(self) -> NSRAESSettings:
        if self.novelty_weight > self.novelty_weight_max:
            raise ValueError(
                f"novelty_weight = {self.novelty_weight}: expected at most novelty_weight_max "
                f"({self.novelty_weight_max})"
            )
        return self

    def weight(self) -> NoveltyWeight:
        """Return an adapting weight."""
        return NoveltyWeight(
            self.novelty_weight, self.weight_delta, self.weight_patience, self.novelty_weight_max
        )


class NoveltySearch(Algorithm[SampledPopulation | StoredPopulation]):
    """What the three share: everything but how much novelty counts."""

    paper = "Conti et al. 2018, arXiv:1712.06560"
    needs_behaviors = True
    settings: NoveltySettings

    def __init__(
        self, settings: NoveltySettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        size = settings.meta_population_size
        self._sigma = fitting("sigma", settings.initial_sigma(center.size), center.size)
        self._centers = [self._center, *(self._spread(m) for m in range(1, size))]  # theta^m
        self._ascents = [Ascent(settings, center.size) for _ in range(size)]
        self._behaviors: Matrix = np.empty((size, 0))  # b(theta^m), as probed
        self._returns = np.full(size, -np.inf)
        self._archive: Matrix = np.empty((0, 0))  # A
        self._unprobed = list(range(size))
        self._weight = settings.weight()

    @final
    @property
    def sigma(self) -> float:
        """The deviation of the noise now."""
        return scale_of(self._decayed_sigma)

    @final
    @property
    def _decayed_sigma(self) -> float | Vector:
        return self.settings.decayed(self._sigma, self.generation)

    @final
    @property
    def novelty_weight(self) -> float:
        """How much novelty counts beside the return now, 1 - w in the paper."""
        return self._weight.value

    @final
    def _spread(self, index: int) -> Vector:
        noise = stream(self.seed, Purpose.INITIALIZATION, index).standard_normal(self._center.size)
        return self._center + self.settings.center_spread * self._sigma * noise

    @final
    def _ask(self) -> SampledPopulation | StoredPopulation:
        if self._unprobed:
            return StoredPopulation(
                stored=np.array([self._centers[m] for m in self._unprobed]),
                size=len(self._unprobed),
                lineage=self._unprobed[0],  # at the start no lineage has seen anything
                probe=True,
                episodes=self.settings.probe_episodes,
            )
        parent = self._choose_parent()
        return SampledPopulation(
            center=self._centers[parent],
            sigma=self._decayed_sigma,  # theta_t^m + sigma eps_i
            noise=self.gaussian_noise(),  # eps_i ~ N(0, I)
            size=self.population_size,
            antithetic=self.settings.antithetic,
            lineage=parent,
        )

    @final
    def _choose_parent(self) -> int:
        """Return m with the probability N(theta^m, A) / sum_j N(theta^j, A) (section 3.1)."""
        novelty = novelties(self._behaviors, self._archive, self.settings.k)
        chances = np.where(np.isfinite(novelty), novelty, 0.0)
        if not chances.any():
            chances = np.ones(len(chances))
        generator = stream(self.seed, Purpose.CHOICE, self.generation)
        return int(generator.choice(len(chances), p=chances / chances.sum()))

    @final
    def _tell(
        self,
        population: SampledPopulation | StoredPopulation,
        returns: Vector,
        behaviors: Matrix,
    ) -> None:
        failed = ~(np.isfinite(returns) & np.isfinite(behaviors).all(axis=1))
        returns = np.where(failed, -np.inf, returns)
        if isinstance(population, SampledPopulation):
            novelty = novelties(behaviors, self._archive, self.settings.k)
            self._update(population, returns, np.where(failed, -np.inf, novelty))
            self._unprobed = [population.lineage]
        else:
            self._keep(returns, behaviors)
            self._unprobed = []
        self.center_lineage = int(np.argmax(self._returns))
        self._center = self._centers[self.center_lineage]

    @final
    def _update(self, population: SampledPopulation, returns: Vector, novelty: Vector) -> None:
        """Move the parent to where returns, novelties or both are higher."""
        share = self._weight.value  # 1 - w
        weighted = ((1.0 - share, returns), (share, novelty))
        told = [(weight, values) for weight, values in weighted if weight and not all_equal(values)]
        if not told:
            return  # what is equal says nothing: no step, not even Adam's momentum or the decay
        shaped = SHAPINGS[self.settings.shaping]
        utilities = np.zeros(len(population))
        for weight, values in told:
            utilities += weight * shaped(values)  # w f_i + (1 - w) N_i                (section 3.2)
        gradient = population.weighted_noise(utilities) / len(population)
        m = population.lineage
        self._centers[m] = self._ascents[m].step(self._centers[m], gradient, self.generation)

    @final
    def _keep(self, returns: Vector, behaviors: Matrix) -> None:
        """Learn what the probed centres do: b(theta_{t+1}^m) goes into A."""
        if self.generation == 0:
            self._behaviors = np.empty((len(self._centers), behaviors.shape[1]))
            self._archive = np.empty((0, behaviors.shape[1]))
        else:
            self._weight.adapt(float(returns[0]))
        self._behaviors[self._unprobed] = behaviors
        self._returns[self._unprobed] = returns
        known = behaviors[np.isfinite(behaviors).all(axis=1)]
        archive = np.concatenate([self._archive, known])
        self._archive = archive[-self.settings.archive_size_max :]

    @final
    def _state_dict(self) -> State:
        return {
            "centers": np.array(self._centers),
            "optimizers": {str(m): ascent.state_dict() for m, ascent in enumerate(self._ascents)},
            "behaviors": self._behaviors.copy(),
            "returns": self._returns.copy(),
            "archive": self._archive.copy(),
            "unprobed": np.array(self._unprobed, dtype=np.int64),
            "novelty_weight": self._weight.value,
            "best": np.array(self._weight.best),  # JSON has no infinity
            "stale": self._weight.stale,
        }

    @final
    def _load_state_dict(self, state: State) -> None:
        centers = np.array(state["centers"])
        if len(centers) != len(self._centers):
            raise ValueError(f"state of {len(centers)} centres: expected {len(self._centers)}")
        self._centers = list(centers)
        for m, ascent in enumerate(self._ascents):
            ascent.load_state_dict(state["optimizers"][str(m)])
        self._behaviors = np.array(state["behaviors"])
        self._returns = np.array(state["returns"])
        self._archive = np.array(state["archive"])
        self._unprobed = np.array(state["unprobed"]).tolist()
        self._weight.value = float(state["novelty_weight"])
        self._weight.best = float(state["best"])
        self._weight.stale = int(state["stale"])
        self.center_lineage = int(np.argmax(self._returns))


@final
@register_algorithm("ns_es")
class NSES(NoveltySearch):
    """NS-ES: OpenAI-ES for novelty alone, from a meta-population; returns are not looked at."""

    Settings = NSESSettings


@final
@register_algorithm("nsr_es")
class NSRES(NoveltySearch):
    """NSR-ES: OpenAI-ES for the mean of return and novelty, from a meta-population."""

    Settings = NSRESSettings


@final
@register_algorithm("nsra_es")
class NSRAES(NoveltySearch):
    """NSRA-ES: OpenAI-ES for the return, turning to novelty when stuck, from a meta-population."""

    Settings = NSRAESSettings
