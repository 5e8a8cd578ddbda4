"""NS-ES, NSR-ES and NSRA-ES: Conti, Madhavan, Petroski Such, Lehman, Stanley & Clune, "Improving
Exploration in Evolution Strategies for Deep Reinforcement Learning via a Population of
Novelty-Seeking Agents", NeurIPS 2018 (arXiv:1712.06560).

Each generation is an OpenAI-ES step of one of M centers, toward novelty, or toward novelty and the
return. A probe evaluates all M centers before the first generation, and the center that was updated
last before every later generation. Its behavior is added to the archive, from which novelty is
measured. ``center`` is the center whose last probe had the highest return (the first one of equal
centers). A center that was updated since its probe counts with the return of that probe. As in the
authors' code, returns and novelties are shaped separately, and the archive contains the behavior
of the center whose novelty is measured.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms.base import DecayingSearch, register_algorithm
from esbench.algorithms.openai_es import OpenAIESFamilySettings
from esbench.algorithms.optimizers import Ascent
from esbench.algorithms.search_settings import Members, NonNegative
from esbench.algorithms.shaping import all_equal, utilities
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.population import SampledPopulation, StoredPopulation
from esbench.core.search_space import Tune
from esbench.core.seeding import Purpose, stream
from esbench.core.settings import Count, EpisodeCount

Proportion: TypeAlias = Annotated[float, Field(ge=0, le=1)]


def novelties(behaviors: Matrix, archive: Matrix, k: int) -> Vector:
    """The novelties N(b, A) = 1/|S| sum_{j in S} |b - a_j|, S the k nearest of A (section 3.1).

    ``behaviors`` are [N, D], the archive is [A, D], and S is all of it if it is smaller than k. The
    novelty is NaN for a behavior that is not finite, and 0 for all others while A is empty.
    """
    from scipy.spatial.distance import cdist  # here, because SciPy takes long to import

    novelty = np.full(len(behaviors), np.nan)
    finite = np.isfinite(behaviors).all(axis=1)
    if not len(archive):
        return np.where(finite, 0.0, novelty)
    size = min(k, len(archive))
    nearest = np.partition(cdist(behaviors[finite], archive), size - 1, axis=1)[:, :size]
    novelty[finite] = np.sort(nearest, axis=1).mean(axis=1)
    return novelty


@final
@dataclass
class NoveltyWeight:
    """The weight of novelty, 1 - w in the paper, by the settings of NSRA-ES.

    It decreases by ``weight_delta`` when an updated center has a new ``best`` return, and
    increases, up to ``novelty_weight_max``, when ``stale`` (the updates without one) reaches
    ``weight_patience``. The defaults make it constant.
    """

    novelty_weight: float = 1.0
    weight_delta: float = 0.0
    weight_patience: int = 1
    novelty_weight_max: float = 1.0
    best: float = -np.inf
    stale: int = 0

    def adapt(self, updated: float) -> None:
        """Adapt the weight to the return of an updated center (section 3.2)."""
        if updated > self.best:
            self.best, self.stale = updated, 0
            self._add(-self.weight_delta)  # w <- min(1, w + delta_w)
            return
        self.stale += 1
        if self.stale >= self.weight_patience:
            self.stale = 0
            self._add(self.weight_delta)  # w <- max(0, w - delta_w)

    def _add(self, change: float) -> None:
        # Rounding lets ten steps of 0.1 reach exactly 1.
        weight = max(0.0, round(self.novelty_weight + change, 12))
        self.novelty_weight = min(self.novelty_weight_max, weight)


class NoveltySettings(OpenAIESFamilySettings, ABC):
    """Settings that all three add to those of OpenAI-ES, whose defaults they keep."""

    k: Annotated[Count, Tune(low=5, high=25)] = 10
    """Nearest behaviors in the archive; novelty is the mean distance to them [behaviors]."""

    meta_population_size: Members = 5
    """Centers of the search, M. Each has its own optimizer and observation statistics
    [centers]."""

    center_spread: NonNegative = 5.0
    """Initial deviation of the other centers around the first one, which is the policy's
    initialization. (In the paper, every center is drawn from the initializer) [sigma]."""

    probe_episodes: EpisodeCount | None = None
    """Episodes that a probed center plays; by default as many as a member [episodes]."""

    archive_size_max: Count = 1000
    """Largest size of the archive, which keeps the latest behaviors; the paper keeps all
    [behaviors]."""


@final
class NSESSettings(NoveltySettings):
    """Settings of NS-ES."""


@final
class NSRESSettings(NoveltySettings):
    """Settings of NSR-ES."""

    novelty_weight: Annotated[Proportion, Tune(low=0.1, high=0.9)] = 0.5
    """Weight of the shaped novelty; that of the shaped return is 1 minus this."""


@final
class NSRAESSettings(NoveltySettings):
    """Settings of NSRA-ES."""

    novelty_weight: Proportion = 0.0
    """Initial weight of the shaped novelty, 1 - w in the paper; that of the shaped return is 1
    minus this."""

    novelty_weight_max: Proportion = 1.0
    """Largest weight of the novelty."""

    weight_delta: Proportion = 0.05
    """Decrease of the weight at a new best return, and increase after ``weight_patience``
    generations without one."""

    weight_patience: Count = 50
    """Generations without a new best return before the weight increases [generations]."""

    @model_validator(mode="after")
    def _starts_below_its_maximum(self) -> NSRAESSettings:
        if self.novelty_weight > self.novelty_weight_max:
            raise ValueError(
                f"novelty_weight = {self.novelty_weight}: expected at most novelty_weight_max "
                f"({self.novelty_weight_max})"
            )
        return self


class NoveltySearch(DecayingSearch[SampledPopulation | StoredPopulation], ABC):
    """The base class of the three algorithms, which differ in the weight of novelty."""

    paper = "Conti et al. 2018, arXiv:1712.06560"
    needs_behaviors = True
    uses_equal_returns = True  # their behaviors may differ
    settings: NoveltySettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        size, num_params = self.settings.meta_population_size, self._center.size
        self._centers = [self._center, *(self._spread(m) for m in range(1, size))]  # theta^m
        self._ascents = [Ascent(self.settings, num_params) for _ in range(size)]
        self._behaviors: Matrix = np.empty((size, 0))  # b(theta^m), as probed
        self._returns = np.full(size, -np.inf)
        self._archive: Matrix = np.empty((0, 0))  # A
        self._unprobed = list(range(size))
        own = self.settings.model_dump(include=set(NoveltyWeight.__annotations__))
        self._weight = NoveltyWeight(**own)
        self._plan_next()

    @final
    def _spread(self, index: int) -> Vector:
        noise = stream(self.seed, Purpose.INITIALIZATION, index).standard_normal(self._center.size)
        scale: float | Vector = self.settings.center_spread * self._sigma
        return self._center + scale * noise

    @final
    def _plan_next(self) -> None:
        """Plan a probe of the centers that need one, or else a generation around a parent."""
        probe = bool(self._unprobed)
        self.plan = replace(
            self.plan,
            probe=probe,
            episodes=self.settings.probe_episodes if probe else None,
            # The probe of all centers comes before any lineage has seen an observation.
            lineage=self._unprobed[0] if probe else self._choose_parent(),
            center_lineage=int(np.argmax(self._returns)),
        )

    @final
    def _ask(self) -> SampledPopulation | StoredPopulation:
        if self._unprobed:
            stored = np.array([self._centers[m] for m in self._unprobed])
            return StoredPopulation(stored=stored, size=len(stored))
        # theta_t^m + sigma eps_i, eps_i ~ N(0, I)
        return self.sampled(self._decayed_sigma, center=self._centers[self.plan.lineage])

    @final
    def _choose_parent(self) -> int:
        """Draw m with the probability N(theta^m, A) / sum_j N(theta^j, A) (section 3.1)."""
        novelty = novelties(self._behaviors, self._archive, self.settings.k)
        chances = np.where(np.isfinite(novelty), novelty, 0.0)
        if not chances.any():
            chances = np.ones(len(chances))
        generator = stream(self.seed, Purpose.CHOICE, self.generation)
        return int(generator.choice(len(chances), p=chances / chances.sum()))

    @final
    def _tell(
        self, population: SampledPopulation | StoredPopulation, returns: Vector, behaviors: Matrix
    ) -> None:
        failed = ~(np.isfinite(returns) & np.isfinite(behaviors).all(axis=1))
        returns = np.where(failed, -np.inf, returns)
        if isinstance(population, SampledPopulation):
            novelty = novelties(behaviors, self._archive, self.settings.k)
            self.member_data = {
                "behavior": behaviors,
                "novelty": novelty,
                "novelty_weight": self._weight.novelty_weight,
                "parent": self.plan.lineage,
            }
            self._update(population, returns, np.where(failed, -np.inf, novelty))
            self._unprobed = [self.plan.lineage]
        else:
            self._keep(returns, behaviors)
            self._unprobed = []
        self._plan_next()
        self._center = self._centers[self.plan.center_lineage]

    @final
    def _update(self, population: SampledPopulation, returns: Vector, novelty: Vector) -> None:
        share = self._weight.novelty_weight  # 1 - w
        weighted = ((1.0 - share, returns), (share, novelty))
        told = [(weight, values) for weight, values in weighted if weight and not all_equal(values)]
        if not told:
            return
        shaping, paired = self.settings.shaping, self.settings.uses_pairs
        fitness = np.zeros(len(population))
        for weight, values in told:  # w f_i + (1 - w) N_i                            (section 3.2)
            fitness += weight * utilities(shaping, values, paired=paired)
        if all_equal(fitness):
            return
        gradient = population.weighted_noise(fitness) / len(population)
        m = self.plan.lineage
        self._centers[m] = self._ascents[m].step(self._centers[m], gradient, self.generation)

    @final
    def _keep(self, returns: Vector, behaviors: Matrix) -> None:
        """Add the behaviors b(theta_{t+1}^m) of the probed centers to A."""
        if self.generation == 0:
            self._behaviors, self._archive = np.empty_like(behaviors), behaviors[:0]
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
            "optimizers": {str(m): a.optimizer.state_dict() for m, a in enumerate(self._ascents)},
            "behaviors": self._behaviors.copy(),
            "returns": self._returns.copy(),
            "archive": self._archive.copy(),
            "unprobed": np.array(self._unprobed, dtype=np.int64),
            "novelty_weight": self._weight.novelty_weight,
            "best": np.array(self._weight.best),  # JSON has no infinity
            "stale": self._weight.stale,
        }

    @final
    def _load_state_dict(self, state: State) -> None:
        self._centers = list(np.array(state["centers"]))
        for m, ascent in enumerate(self._ascents):
            ascent.optimizer.load_state_dict(state["optimizers"][str(m)])
        self._behaviors = np.array(state["behaviors"])
        self._returns = np.array(state["returns"])
        self._archive = np.array(state["archive"])
        self._unprobed = np.array(state["unprobed"]).tolist()
        self._weight.novelty_weight = float(state["novelty_weight"])
        self._weight.best = float(state["best"])
        self._weight.stale = int(state["stale"])
        self._plan_next()


@final
@register_algorithm("ns_es")
class NSES(NoveltySearch):
    """NS-ES: OpenAI-ES for novelty alone, from a meta-population; it ignores the returns."""

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
