"""SNES: Schaul, Glasmachers & Schmidhuber, "High Dimensions and Heavy Tails for Natural Evolution
Strategies", GECCO 2011 (doi:10.1145/2001576.2001692).

And xNES: Glasmachers, Schaul, Sun, Wierstra & Schmidhuber, "Exponential Natural Evolution
Strategies", GECCO 2010 (doi:10.1145/1830483.1830557).

Algorithm numbers below are those of Wierstra, Schaul, Glasmachers, Sun, Peters & Schmidhuber,
"Natural Evolution Strategies", JMLR 15, 2014 (arXiv:1106.4487). Its xNES has A = sigma B, with one
learning rate for sigma and one for B, equal by default. With equal rates the two updates are one
update of A, because exp(a I) exp(M) = exp(a I + M).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.algorithms import search_settings as fields
from esbench.algorithms.base import Algorithm, SeparableSearch, register_algorithm, scale_of
from esbench.algorithms.optimizers import Ascent
from esbench.algorithms.shaping import SHAPINGS, Shaping, all_equal
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import TrainingError, UsageError
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune

LARGEST_NORM: Final = 100.0  # of W in exp(W), by which an update of xNES multiplies A
MOST_PARAMS: Final = 2_000  # of xNES, whose P x P matrix goes to every worker in every generation


# As settings: what SNES and xNES share.
PopulationSize: TypeAlias = Annotated[
    fields.AtLeastTwo | None,
    Field(
        description="Members per generation; by default 4 + floor(3 ln P) for P parameters "
        "[members]."
    ),
]
Utilities: TypeAlias = Annotated[
    Shaping,
    Field(
        description="Fitness shaping, which turns returns into utilities: nes (logarithmic "
        "utilities), centered (ranks in [-0.5, 0.5]), linear (ranks in [0, 1]), normalized "
        "(z-scores) or raw; all but nes are then shifted to sum 0 and divided by the sum of their "
        "magnitudes."
    ),
]


@final
class SNESSettings(fields.DeviationSettings):
    """Settings of SNES; the defaults are those of the papers."""

    population_size: Annotated[PopulationSize, Tune(choices=(16, 32, 64, 128))] = None
    sigma: Annotated[fields.PerParameter | None, Tune(low=0.02, high=1.0, log=True)] = 0.1
    sigma_min: fields.SmallestSigma = None
    sigma_max: fields.LargestSigma = None
    sigma_max_change: fields.SigmaChange = None
    antithetic: fields.Antithetic = False

    sigma_learning_rate: Annotated[
        fields.NonNegative | None, Tune(low=0.005, high=0.5, log=True)
    ] = None
    """Learning rate of the standard deviation; by default (3 + ln P) / (5 sqrt(P)) for P
    parameters. A given value replaces the default (evotorch multiplies by it, unless
    scale_learning_rate = False)."""

    sigma_learning_rate_decay: fields.SigmaRateDecay = 1.0
    shaping: Utilities = "nes"

    learning_rate: Annotated[fields.Positive, Tune(low=0.1, high=2.0, log=True)] = 1.0
    """Learning rate of the optimizer; with sgd, 1 moves the center to the weighted mean of the
    members."""

    learning_rate_decay: fields.LearningRateDecay = 1.0
    optimizer: fields.OptimizerName = "sgd"
    optimizer_settings: fields.OptimizerSettings = Field(default_factory=dict)
    weight_decay: fields.WeightDecay = 0.0


@final
class XNESSettings(fields.DeviationSettings):
    """Settings of xNES; the defaults are those of the papers."""

    population_size: Annotated[PopulationSize, Tune(choices=(16, 32, 64, 128))] = None
    sigma: Annotated[fields.PerParameter | None, Tune(low=0.02, high=1.0, log=True)] = 0.1
    antithetic: fields.Antithetic = False

    sigma_learning_rate: Annotated[
        fields.NonNegative | None, Tune(low=0.0001, high=0.2, log=True)
    ] = None
    """Learning rate of the covariance; by default (9 + 3 ln P) / (5 P sqrt(P)) for P parameters. A
    given value replaces the default (evotorch multiplies by it, unless scale_learning_rate =
    False)."""

    sigma_learning_rate_decay: fields.SigmaRateDecay = 1.0
    shaping: Utilities = "nes"

    learning_rate: Annotated[fields.Positive, Tune(low=0.1, high=2.0, log=True)] = 1.0
    """Learning rate of the optimizer, which steps in units of the deviation; with sgd, 1 moves the
    center to the weighted mean of the members."""

    learning_rate_decay: fields.LearningRateDecay = 1.0
    optimizer: fields.OptimizerName = "sgd"
    optimizer_settings: fields.OptimizerSettings = Field(default_factory=dict)

    weight_decay: fields.NonNegative = 0.0
    """Weight decay: the learning rate times this multiple of the center is subtracted from the
    center, without the optimizer."""


@final
@register_algorithm("snes")
class SNES(SeparableSearch):
    """SNES: the natural gradient of the center and of one deviation per parameter."""

    Settings = SNESSettings
    paper = "Schaul et al. 2011, doi:10.1145/2001576.2001692; Wierstra et al. 2014, arXiv:1106.4487"
    settings: SNESSettings

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = utilities_of(returns, self.settings.shaping)  # u_k             (section 3.1)
        if not utilities.any():
            return  # no information: neither the momentum nor the weight decay moves anything
        noise, squares = population.weighted_moments(utilities)
        gradient = self._sigma * noise  # sigma grad_mu J, grad_mu J = sum u_k s_k
        self._center = self._ascent.step(self._center, gradient, self.generation)
        size = self._center.size
        eta = float((3.0 + np.log(size)) / (5.0 * np.sqrt(size)))  # eta_sigma      (table 1)
        rate = _sigma_rate(self.settings, self.generation, eta)
        gradient = squares - utilities.sum()  # grad_sigma J = sum u_k (s_k^2 - 1)
        grown = self._sigma * np.exp(0.5 * rate * gradient)  # sigma exp(eta_sigma/2 grad_sigma J)
        self._sigma = self.settings.limited(self._sigma, grown)


@final
@register_algorithm("xnes")
class XNES(Algorithm[SampledPopulation]):
    """xNES: the natural gradient of the center and of the full covariance matrix."""

    Settings = XNESSettings
    paper = (
        "Glasmachers et al. 2010, doi:10.1145/1830483.1830557; "
        "Wierstra et al. 2014, arXiv:1106.4487"
    )
    settings: XNESSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        size = self._center.size
        if size > MOST_PARAMS:
            raise UsageError(
                f"xnes with {size} parameters: expected at most {MOST_PARAMS}, because it "
                "keeps a matrix with one row per parameter; use snes"
            )
        optimizer = self.settings.optimizer
        decays = optimizer.lower().rpartition(":")[2] == "adamw"  # by default
        if self.settings.optimizer_settings.get("weight_decay", decays):
            raise UsageError(
                f"optimizer = {optimizer!r}: its own weight decay does nothing in the local "
                "coordinates of xnes; expected weight_decay = 0 in optimizer_settings, and "
                "weight_decay as a setting of xnes"
            )
        sigma = np.zeros(size) + self.settings.initial_sigma(size)
        self._factor = np.diag(sigma)  # A, of the covariance A A^T
        self._ascent = Ascent(self.settings, size)

    @property
    def sigma(self) -> float:
        """The root mean square of the parameters' deviations: |A|_F / sqrt(P)."""
        return scale_of(self._factor) * float(np.sqrt(self._center.size))

    def _ask(self) -> SampledPopulation:
        return self.sampled(self._factor)  # z_k = mu + A s_k, s_k ~ N(0, I)      (algorithm 5)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = utilities_of(returns, self.settings.shaping)  # u_k             (section 3.1)
        if not utilities.any():
            return  # no information: neither the momentum nor the weight decay moves anything
        gradient = population.weighted_noise(utilities)  # grad_delta J = sum u_k s_k
        self._center = self._moved(gradient)
        self._factor = self._adapted(population, utilities)

    def _moved(self, gradient: Vector) -> Vector:
        """The center mu + eta_delta A grad_delta J, with weight decay, [P]."""
        settings = self.settings
        origin = np.zeros_like(gradient)  # in the local coordinates s
        local = self._ascent.step(origin, gradient, self.generation)
        rate = settings.learning_rate * settings.learning_rate_decay**self.generation
        decayed = self._center - rate * settings.weight_decay * self._center
        # Without BLAS, whose bits can depend on the number of threads.
        moved: Vector = decayed + np.einsum("ij,j->i", self._factor, local)
        return moved

    def _adapted(self, population: SampledPopulation, utilities: Vector) -> Matrix:
        """A exp(eta_A/2 grad_M J), [P, P]."""
        size = self._center.size
        eta = float((9.0 + 3.0 * np.log(size)) / (5.0 * size * np.sqrt(size)))  # eta_A  (table 1)
        rate = _sigma_rate(self.settings, self.generation, eta)
        # grad_M J = sum u_k (s_k s_k^T - I), where I drops out because the u_k sum to 0. An
        # antithetic pair shares one term, because its two s_k differ only in sign.
        weights = np.zeros(population.num_rows)
        np.add.at(weights, [population.row(member) for member in range(len(population))], utilities)
        noise = np.array([population.noise.row(row) for row in range(population.num_rows)])
        return times_exponential(self._factor, 0.5 * rate * weights, noise)

    def _state_dict(self) -> State:
        return {"factor": self._factor.copy(), "optimizer": self._ascent.optimizer.state_dict()}

    def _load_state_dict(self, state: State) -> None:
        self._factor = np.array(state["factor"])
        self._ascent.optimizer.load_state_dict(state["optimizer"])


def _sigma_rate(settings: SNESSettings | XNESSettings, generation: int, eta: float) -> float:
    """The learning rate of the deviations after ``generation`` decays; by default ``eta``."""
    given = settings.sigma_learning_rate
    return (eta if given is None else given) * settings.sigma_learning_rate_decay**generation


def utilities_of(returns: Vector, shaping: Shaping) -> Vector:
    """The weights of the members, [N], with sum 0; all 0 if the returns carry no information.

    The learning rates are made for ``nes`` utilities, whose magnitudes sum to about 1. As in
    evotorch, those of any other shaping are divided by their sum, so that the same rates fit. Here
    they are first shifted to sum 0, so that a constant added to all returns changes nothing;
    evotorch's SNES does not do so.
    """
    values = SHAPINGS[shaping](returns)
    if all_equal(values):
        return np.zeros_like(values)
    if shaping == "nes":
        return values
    shifted = values - values.mean()
    weights: Vector = shifted / np.abs(shifted).sum()
    return weights


def times_exponential(matrix: Matrix, weights: Vector, vectors: Matrix) -> Matrix:
    """A exp(W), [P, P], with W = sum_k w_k s_k s_k^T.

    The sum A + A W + A W W/2 + ..., in which a term costs N P^2 and not the P^3 of a product of
    matrices. ``scipy.linalg.expm`` uses BLAS, whose bits depend on the number of threads. The
    weights w are [N], the vectors s [N, P].

    Raises:
        TrainingError: W is too large.
    """
    norm = float(np.sum(np.abs(weights) * np.sum(vectors * vectors, axis=1)))  # bounds |W|
    if not norm <= LARGEST_NORM:
        raise TrainingError(
            f"the deviations diverge: one update would multiply them by up to exp({norm:.3g}); "
            f"expected at most exp({LARGEST_NORM:.0f}), which needs a smaller sigma_learning_rate"
        )
    steps = max(1, int(np.ceil(norm)))  # exp(W) = exp(W / steps)^steps
    for _ in range(steps):
        term, order, bound = matrix, 0, 1.0
        while bound > np.finfo(np.float64).eps / 16:
            order += 1
            bound *= norm / (steps * order)
            local = np.einsum("ij,kj->ik", term, vectors) * (weights / (steps * order))
            term = np.einsum("ik,kj->ij", local, vectors)
            matrix = matrix + term
    return matrix
