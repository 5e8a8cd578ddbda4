"""ARS: Mania, Guy & Recht, "Simple random search provides a competitive approach to reinforcement
learning", 2018 (arXiv:1803.07055), algorithms 1 and 2.

The paper starts at zero; here the search starts at the initial parameters of the policy, which are
zero for the linear policy.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms import search_settings as fields
from esbench.algorithms.base import DecayingSearch, register_algorithm
from esbench.algorithms.shaping import raw
from esbench.core.arrays import Matrix, State, Vector
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune
from esbench.core.settings import Count

MOST_PAIRS: Final = fields.MOST_MEMBERS // 2

Version: TypeAlias = Literal["V1", "V2", "V1-t", "V2-t"]


@final
class ARSSettings(fields.DeviationSettings, fields.NormalizationSettings):
    """Settings of ARS; the defaults are those of the paper's HalfCheetah, where num_best is 4."""

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("sigma", "radius"),
        ("population_size", "num_pairs"),
    )
    always_uses_pairs: ClassVar[bool] = True
    normalization_setting: ClassVar[str] = "version"

    population_size: Annotated[fields.Members, Tune(choices=(8, 16, 32, 64, 128))] = 64
    """Members per generation: two per pair [members]."""

    sigma_decay: fields.SigmaDecay = 1.0
    sigma_min: fields.SmallestDecayed = None

    num_pairs: Annotated[int, Field(ge=1, le=MOST_PAIRS)] | None = None
    """Alternative to population_size: directions per generation, each tried both ways (the paper's
    N) [pairs]."""

    num_best: Annotated[
        Count | None, Tune(choices=(4, 8), when={"population_size": (16, 32, 64, 128)})
    ] = None
    """Number of pairs that are kept, those whose better member has the highest returns (the paper's
    b); all by default. It grows in proportion to the population [pairs]."""

    version: Version = "V2-t"
    """V2 and V2-t normalize observations, V1 and V1-t do not; only V1-t and V2-t can drop pairs."""

    sigma: Annotated[fields.PerParameter | None, Tune(low=0.005, high=0.3, log=True)] = 0.03
    """Standard deviation of the population at the start (the paper's nu, which is constant): one
    number, or one per parameter [parameter units]."""

    learning_rate: Annotated[fields.Positive, Tune(low=0.003, high=0.3, log=True)] = 0.02
    """Length of the step, in units of the averaged, scaled noise (the paper's alpha)."""

    learning_rate_decay: fields.Fraction = 1.0
    """Factor on the learning rate after every generation."""

    @model_validator(mode="before")
    @classmethod
    def _pairs_make_the_population(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("population_size") is None:
            pairs = values.get("num_pairs")
            if isinstance(pairs, int) and 0 < pairs <= MOST_PAIRS:
                return {**values, "population_size": 2 * pairs}
        return values

    @model_validator(mode="after")
    def _check_pairs(self) -> ARSSettings:
        pairs = self.population_size // 2
        if self.num_pairs is not None and self.num_pairs != pairs:
            raise ValueError(
                f"population_size = {self.population_size} and num_pairs = {self.num_pairs}: "
                "expected only one of them, or a population of two members per pair"
            )
        if self.num_best is not None and self.num_best > pairs:
            raise ValueError(
                f"num_best = {self.num_best}: expected at most the number of pairs ({pairs})"
            )
        if self.version in {"V1", "V2"} and self.num_best not in {None, pairs}:
            raise ValueError(
                f"num_best = {self.num_best} with version = {self.version!r}: expected all {pairs} "
                f"pairs, because only {self.version}-t drops some"
            )
        return self

    @property
    def normalizes_observations(self) -> bool:
        """Whether the version normalizes observations."""
        return self.version in {"V2", "V2-t"}

    def num_kept(self, num_pairs: int) -> int:
        """The paper's b for a population that has grown to ``num_pairs``, rounded down."""
        own = self.population_size // 2
        return num_pairs if self.num_best is None else self.num_best * num_pairs // own


@final
@register_algorithm("ars")
class ARS(DecayingSearch[SampledPopulation]):
    """ARS: finite differences along the best directions, scaled by the returns' deviation."""

    Settings = ARSSettings
    paper = "Mania et al. 2018, arXiv:1803.07055"
    settings: ARSSettings

    def _ask(self) -> SampledPopulation:
        # M_j +- nu delta_k, with delta_1 .. delta_N ~ N(0, I)             (algorithm 2, lines 4, 5)
        return self.sampled(self._decayed_sigma)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        # A return that is not finite counts as the worst finite one, in the order and in the step.
        pairs = raw(returns).reshape(-1, 2)  # r(pi_k,+), r(pi_k,-)
        # The b pairs with the highest max(r+, r-), best first (line 6). Ties go to the earlier one;
        # the authors' code keeps all pairs that tie for the last place.
        order = np.argsort(-pairs.max(axis=1), kind="stable")
        kept = order[: self.settings.num_kept(len(pairs))]
        # Relative to the smallest, so that equal returns have a deviation of exactly 0.
        rewards = pairs[kept] - pairs[kept].min()
        deviation = rewards.std()  # sigma_R, of the 2b returns that are kept
        if deviation == 0.0:
            return
        alpha = self.settings.learning_rate * self.settings.learning_rate_decay**self.generation
        weights = np.zeros_like(pairs)
        weights[kept] = alpha / len(kept) * (rewards / deviation)
        # M_j+1 = M_j + alpha/(b sigma_R) sum_k (r_k,+ - r_k,-) delta_k                   (line 7)
        self._center = self._center + population.weighted_noise(weights.ravel())

    def _state_dict(self) -> State:
        return {}

    def _load_state_dict(self, state: State) -> None:
        pass
