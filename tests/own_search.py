"""Optimizers and an algorithm of a user's own, which tests name as "own_search:Class"."""

from typing import Any, final

import numpy as np
import torch

from esbench.algorithms.base import Algorithm
from esbench.algorithms.openai_es import OpenAIESFamily, OpenAIESSettings
from esbench.algorithms.shaping import centered
from esbench.core.arrays import Matrix, State, Vector
from esbench.core.population import SampledPopulation


class Derived(torch.optim.NAdam):
    """An optimizer of torch's class; its parameter group holds a tuple."""


class Plain:
    """Gradient descent with momentum, with the interface of torch.optim but not of its class."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.5) -> None:
        (self.parameter,) = params
        self.param_groups = [{"lr": lr}]
        self.momentum = momentum
        self.velocity = torch.zeros_like(self.parameter)

    def step(self) -> None:
        self.velocity = self.momentum * self.velocity + self.parameter.grad
        self.parameter.data -= self.param_groups[0]["lr"] * self.velocity

    def state_dict(self) -> dict[str, Any]:
        return {"velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.velocity = state["velocity"]


class Forgets(Plain):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores nothing."""


class Fails(Plain):
    def step(self) -> None:
        raise AttributeError("broken on purpose")


class Stepless:
    """No optimizer."""


class StepOnly:
    def __init__(self, params: Any, lr: float) -> None: ...

    def step(self) -> None: ...


@final
class Mine(OpenAIESFamily):
    """OpenAI-ES under another name."""

    Settings = OpenAIESSettings

    def _ask(self) -> SampledPopulation:
        return self.sampled(self._decayed_sigma)


class Rebinding(Algorithm[SampledPopulation]):
    """Climbs the mean of its noise, weighted by centered ranks; makes a new array of its center."""

    Settings = OpenAIESSettings

    @property
    def sigma(self) -> float:
        return 0.1

    def _ask(self) -> SampledPopulation:
        return self.sampled(self.sigma)

    def _step(self, population: SampledPopulation, returns: Vector) -> Vector:
        return 0.1 * population.weighted_noise(centered(returns))

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        self._center = self._center + self._step(population, returns)

    def _state_dict(self) -> State:
        return {}

    def _load_state_dict(self, state: State) -> None: ...


@final
class InPlace(Rebinding):
    """The same search, whose center stays one array."""

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        self._center += self._step(population, returns)


class Forgetful(Rebinding):
    """Has a momentum that is not part of its state."""

    velocity: Any = 0.0

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        self.velocity = 0.5 * self.velocity + self._step(population, returns)
        self._center = self._center + self.velocity


@final
class Remembers(Forgetful):
    """Has it."""

    def _state_dict(self) -> State:
        return {"velocity": self.velocity, "told": [np.int64(1), 2.5], "scale": np.float32(0.5)}

    def _load_state_dict(self, state: State) -> None:
        self.velocity = state["velocity"]
        assert (state["told"], state["scale"]) == ([1, 2.5], 0.5)


@final
class FromStart(Rebinding):
    """Stays near its first center and changes in place what its population has."""

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Any = None) -> None:
        super().__init__(settings, center, seed, shapes)
        self.start = self._center.copy()
        self.deviations = np.full(center.size, 0.1)

    def _ask(self) -> SampledPopulation:
        return self.sampled(self.deviations)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        best = population.member(int(returns.argmax()))
        self._center = 0.5 * (self.start + best)
        self.deviations *= 0.9

    def _state_dict(self) -> State:
        return {"deviations": self.deviations.copy(), "pairs": [{"a": 1}, (2.5, "b")]}

    def _load_state_dict(self, state: State) -> None:
        self.deviations = state["deviations"]
        assert state["pairs"] == [{"a": 1}, [2.5, "b"]]


@final
class OtherSettings(Rebinding):
    Settings = dict


class Unfinished(Algorithm[SampledPopulation]):
    """Has no _ask."""


@final
class Unfit(Rebinding):
    """After an update, its attributes are those that ``left`` returns; its state is ``content``."""

    deviation: Any = 0.1
    content: Any = {}  # noqa: RUF012

    def left(self) -> dict[str, Any]:
        return {}

    @property
    def sigma(self) -> Any:
        return self.deviation

    def _ask(self) -> SampledPopulation:
        return self.sampled(0.1)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        super()._tell(population, returns, behaviors)
        for name, value in self.left().items():
            setattr(self, name, value)

    def _state_dict(self) -> State:
        return self.content


@final
class Explodes(Rebinding):
    """Asks for more members than any memory holds."""

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        super()._tell(population, returns, behaviors)
        self.population_size = 10**9
