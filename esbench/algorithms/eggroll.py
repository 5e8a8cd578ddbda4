"""EGGROLL: Sarkar, Fellows, Duque et al., "Evolution Strategies at the Hyperscale", 2025
(arXiv:2511.16652), algorithm 1.

OpenAI-ES whose noise has rank r in every matrix of the policy: E = A B^T / sqrt(r). The estimate
1/N sum E_i f_i is the paper's for Gaussian noise, with E for the score and, as in OpenAI-ES,
without the factor 1/sigma. The average of the members' noise has full rank again.

The paper tunes deviation, rate and optimizer for every task. The defaults here are those of
``openai_es``, so that a comparison of the two is one of their noise; the authors' code shapes
returns as ``shaping = "normalized"``.
"""

from __future__ import annotations

from typing import Annotated, final

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.openai_es import OpenAIESFamily, OpenAIESFamilySettings
from esbench.algorithms.search_settings import Positive
from esbench.core.noise import LowRankNoise
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune
from esbench.core.seeding import noise_key
from esbench.core.settings import Count


@final
class EGGROLLSettings(OpenAIESFamilySettings):
    """Settings of EGGROLL; the defaults are those of OpenAI-ES."""

    rank: Annotated[Count, Tune(choices=(1, 4, 16))] = 1
    """Rank of the noise in a matrix (the paper's r); vectors get full-rank noise."""

    sigma_min: Positive | None = None
    """Smallest standard deviation that the decay reaches; no limit by default [parameter units]."""

    sigma: Positive | None = 0.02
    """Standard deviation of the population at the start: one number, because one per parameter
    would raise the rank of the noise [parameter units]."""


@final
@register_algorithm("eggroll")
class EGGROLL(OpenAIESFamily):
    """EGGROLL: OpenAI-ES with low-rank noise in every matrix of the policy."""

    Settings = EGGROLLSettings
    paper = "Sarkar et al. 2025, arXiv:2511.16652"
    settings: EGGROLLSettings

    def _ask(self) -> SampledPopulation:
        # E_i = A_i B_i^T / sqrt(r); in an antithetic pair, A has the opposite sign.
        key = noise_key(self.seed, self.generation)
        noise = LowRankNoise(key, self._center.size, self.shapes, self.settings.rank)
        return self.sampled(self._decayed_sigma, noise)
