"""
Your own algorithm
==================

An algorithm proposes a population and learns from its returns. It never sees an environment, a
policy or a process. This tutorial writes one: the center moves to the mean of the best quarter.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import matplotlib.pyplot as plt
import numpy as np

from esbench.algorithms.base import Algorithm
from esbench.algorithms.search_settings import DeviationSettings, Fraction, PerParameter
from esbench.core.population import SampledPopulation

# %%
# Settings are typed fields with a docstring each. Their defaults, ranges and docstrings appear in
# ``esbench list --settings NAME``.


class BestQuarterSettings(DeviationSettings):
    """Settings of this algorithm."""

    sigma: PerParameter | None = 0.5
    """Deviation of the population at the start [parameter units]."""

    decay: Fraction = 0.9
    """The factor of the deviation after every generation."""


# %%
# ``_ask`` returns a population: a recipe with a center, a deviation and named noise, not an array.
# ``_tell`` learns from its returns; higher is better. ``_state_dict`` and ``_load_state_dict``
# hold what a checkpoint needs besides the center and the generation.


@esbench.register_algorithm("best_quarter")
class BestQuarter(Algorithm):
    """Moves to the mean of the best quarter of the population."""

    Settings = BestQuarterSettings

    @property
    def sigma(self):
        """The deviation of the population now."""
        start = self.settings.initial_sigma(self.center.size)
        return start * self.settings.decay**self.generation

    def _ask(self):
        return SampledPopulation(
            center=self._center,
            sigma=self.sigma,
            noise=self.gaussian_noise(),
            size=self.population_size,
            antithetic=False,
        )

    def _tell(self, population, returns, behaviors):
        best = np.argsort(-returns)[: max(1, len(population) // 4)]
        self._center = population.members(best.tolist()).mean(axis=0)

    def _state_dict(self):
        return {}

    def _load_state_dict(self, state):
        pass


# %%
# It optimizes any function of a vector:

algorithm = esbench.make_algorithm("best_quarter", num_params=10, seed=0, population_size=40)
target = np.linspace(-1.0, 1.0, 10)
for _ in range(30):
    population = algorithm.ask()
    algorithm.tell(population, -np.sum((population.members() - target) ** 2, axis=1))
print(np.round(algorithm.center, 2))

# %%
# And it trains policies, in the same trainer as every other algorithm. Beside it, SNES.

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name in ("best_quarter", "snes"):
    with esbench.make_trainer(
        name,
        env="CartPole-v1",
        workers=0,
        policy={"template": "mlp", "hidden": [8]},
        budget={"env_steps": 15_000},
        population_size=32,
    ) as trainer:
        trainer.train()
        steps = [record.env_steps for record in trainer.history]
        ax.plot(steps, [record.center_return for record in trainer.history], label=name)
        print(f"{name:14} score {trainer.evaluate(episodes=50).mean:.2f}")
ax.set(xlabel="environment steps", ylabel="return of the center", title="CartPole-v1")
ax.legend()

# %%
# To use it on the command line, put it into a file of your own and name it ``package.file:Class``:
# see :doc:`/how-to/add-algorithm`.
