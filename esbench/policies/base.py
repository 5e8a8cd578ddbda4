"""The contract of every policy template.

A policy maps a row of observations to a row of outputs with the parameters of one population
member. A worker evaluates many members at once, one a slot, through a ``PolicyBatch``; the bits of
a slot's output must not depend on how many slots are computed beside it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from esbench.algorithms.population import LowRankMember
from esbench.arrays import Shapes, Vector
from esbench.registry import Registry
from esbench.settings import Settings

Rows = npt.NDArray[np.float32]


class PolicySettings(Settings):
    """Settings that every policy has."""

    normalize_observations: bool = False
    """Whether to subtract each observation's running mean and divide by its running deviation."""

    observation_clip: Annotated[float, Field(gt=0)] = 5.0
    """Largest normalised observation, on either side of the mean [deviations]."""


class PolicyBatch(ABC):
    """Slots for the parameters of several members of one policy.

    Attributes:
        remembers: whether a slot holds more than parameters between two steps, so that a running
            episode cannot go on in another slot that has loaded them.
    """

    remembers: ClassVar[bool] = True

    def refer(self, observations: Rows) -> None:
        """Take the reference batch [R, inputs] of virtual batch normalisation, before a load.

        Members that were loaded before are to be loaded again.

        Raises:
            RuntimeError: this policy wants none.
        """
        raise RuntimeError(f"{type(self).__name__} takes no reference batch")

    @abstractmethod
    def load(self, slot: int, parameters: Vector) -> None:
        """Put a member's parameters [P] into a slot, and its recurrent state, if any, to rest."""

    @property
    def takes_low_rank(self) -> bool:
        """Whether members whose noise is of low rank are better loaded by ``load_low_rank``."""
        return False

    def load_low_rank(self, slot: int, member: LowRankMember) -> None:
        """Put a member into a slot as what all have in common and what is its own.

        Raises:
            RuntimeError: this policy takes parameters only.
        """
        raise RuntimeError(f"{type(self).__name__} takes no centre and factors")

    def share(self, slot: int, source: int) -> bool:
        """Let a slot use the parameters that another one has loaded, its own state at rest.

        Returns:
            Whether it does; if not, as by default, they are to be loaded.
        """
        return False

    @abstractmethod
    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return outputs [k, outputs] of the slots 0..k-1 for observations [k, inputs].

        Args:
            observations: the slots' rows.
            live: the slots whose outputs are wanted, in ascending order; all k by default. The
                rows of others may be anything.
        """


class Policy(ABC):
    """The architecture: how many parameters, where they start, how slots compute.

    Attributes:
        reference_size: how many observations its reference batch has; 0 if it wants none.
    """

    Settings: ClassVar[type[PolicySettings]]
    takes_images: ClassVar[bool] = False  # flattened, row by row
    most_pixels: ClassVar[int | None] = None  # numbers of the largest image it takes, if any
    reference_size: int = 0

    def __init__(
        self,
        settings: Any,
        num_inputs: int,
        num_outputs: int,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Describe a policy of ``num_inputs`` observations and ``num_outputs`` outputs.

        Args:
            settings: its own.
            num_inputs: how many numbers it is shown.
            num_outputs: how many it answers.
            shape: of an observation, before it was flattened; [num_inputs] by default.
        """
        self.settings = settings
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self.shape = (num_inputs,) if shape is None else shape

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """The shapes of the parameter tensors, in the order in which they lie in the vector."""

    @final
    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return sum(math.prod(shape) for shape in self.shapes)

    @abstractmethod
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return the parameters [P] that training starts from."""

    @abstractmethod
    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""


POLICIES: Final[Registry[Policy]] = Registry("policy", "esbench.policies", "esbench.policies")
register_policy = POLICIES.register
