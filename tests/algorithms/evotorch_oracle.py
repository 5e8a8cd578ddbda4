"""evotorch's searches in float64, given our members and their returns."""

import warnings

import numpy as np
import torch

from esbench.core.one_thread import one_torch_thread

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated
    import evotorch
    from evotorch.algorithms import PGPE, SNES, XNES

__all__ = ["PGPE", "SNES", "XNES", "Oracle"]


class Oracle:
    """One of evotorch's Gaussian searches, whose population is overwritten before it learns."""

    def __init__(self, cls, start, sigma, *, size, **given):
        self.problem = evotorch.Problem(
            "max",
            lambda members: members.sum(dim=1),
            solution_length=len(start),
            initial_bounds=(-1, 1),
            dtype=torch.float64,
            vectorized=True,
            seed=0,
        )
        self.search = cls(
            self.problem,
            popsize=size,
            center_init=torch.tensor(start),
            stdev_init=torch.tensor(np.broadcast_to(sigma, len(start)).copy()),
            **given,
        )
        self._step()  # the first step only samples

    def tell(self, members, returns):
        batch = evotorch.SolutionBatch(self.problem, popsize=len(members))
        batch.access_values()[:] = torch.tensor(members)
        batch.set_evals(torch.tensor(returns))
        self.search._population = batch
        self._step()  # learns from the population that it has, and samples the next

    def _step(self):
        with one_torch_thread():  # tiny tensors: threads would only wait for each other
            self.search.step()

    @property
    def center(self):
        return self.search.status["center"].numpy()

    @property
    def sigma(self):
        """The deviations [P]; xNES's matrix [P, P]."""
        return self.search.status["stdev"].numpy()

    def follow(self, algorithm, function, updates):
        """Tell both the same members and returns; return the largest relative difference.

        The returns must be distinct: evotorch breaks ties by the order of members.
        """
        name = "factor" if self.sigma.ndim == 2 else "sigma"
        worst = 0.0
        for _ in range(updates):
            population = algorithm.ask()
            members = population.members()
            returns = function(members)
            assert len(np.unique(returns)) == len(returns)
            algorithm.tell(population, returns)
            self.tell(members, returns)
            for ours, theirs in (
                (algorithm.center, self.center),
                (algorithm.state_dict()[name], self.sigma),
            ):
                worst = max(worst, np.abs(ours - theirs).max() / np.abs(theirs).max())
        return worst
