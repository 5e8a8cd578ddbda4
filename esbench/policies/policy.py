"""The contract of every policy template.

A policy maps a row of observations to a row of outputs, with the parameters of one population
member. A worker evaluates many members at once through a ``PolicyBatch``, one per slot. The bits of
a slot's output must not depend on the number of slots that are computed together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from esbench.core.arrays import Matrix, Shapes, Vector
from esbench.core.errors import UsageError
from esbench.core.population import LowRankMember
from esbench.core.registry import Registry
from esbench.core.settings import Settings

if TYPE_CHECKING:
    import torch

Rows = npt.NDArray[np.float32]
OUTPUT_LENGTH: Final = 0.01
MOST_COLORS: Final = 4  # with transparency


Deep: Final = Field(max_length=256)  # layers


class PolicySettings(Settings, ABC):
    """Settings that every policy has."""

    normalize_observations: bool = False
    """Whether to subtract each observation's running mean and divide by its running deviation."""

    observation_clip: Annotated[float, Field(gt=0)] = 5.0
    """Absolute value to which normalized observations are clipped [deviations]."""


class PolicyBatch(ABC):
    """Slots for the parameters of several members of one policy.

    Attributes:
        remembers: whether a slot keeps a state between two steps besides the parameters, so that
            a running episode cannot move to another slot.
    """

    remembers: ClassVar[bool] = True

    @abstractmethod
    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot and reset its recurrent state."""

    @abstractmethod
    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] of the slots 0..k-1 for their observations [k, inputs].

        ``live`` are the slots whose outputs are needed, in ascending order; all k by default. The
        rows of other slots are undefined.
        """


class ReferredBatch(PolicyBatch, ABC):
    """A batch with virtual batch normalization."""

    @abstractmethod
    def refer(self, observations: Rows) -> None:
        """Set the reference batch [R, inputs], before a load.

        Members that were loaded before must be loaded again.
        """


class SharingBatch(PolicyBatch, ABC):
    """A batch whose slots can use the same parameters."""

    @abstractmethod
    def share(self, slot: int, source: int) -> None:
        """Let a slot use the parameters of another slot, with its own state reset."""


class LowRankBatch(PolicyBatch, ABC):
    """A batch that loads a member as the shared center plus low-rank factors.

    Attributes:
        takes_low_rank: whether ``load_low_rank`` is faster than ``load``.
    """

    takes_low_rank: bool

    @abstractmethod
    def load_low_rank(self, slot: int, member: LowRankMember) -> None:
        """Load a member with low-rank noise into a slot."""


class Policy(ABC):
    """The architecture: parameter shapes, initial parameters and the batched computation.

    Attributes:
        takes_images: whether it accepts images, flattened row by row.
        most_pixels: size of the largest image it accepts, if limited.
        reference_size: number of observations in its reference batch; 0 if it uses none.
        needs_discrete: the setting that needs Discrete actions, as it is written; None without one.
    """

    Settings: ClassVar[type[PolicySettings]]
    takes_images: ClassVar[bool] = False
    most_pixels: ClassVar[int | None] = None
    reference_size: int = 0
    needs_discrete: str | None = None

    @final
    def __init__(
        self,
        settings: Any,
        num_inputs: int,
        num_outputs: int,
        shape: tuple[int, ...] | None = None,
        pixels: tuple[float, float] | None = None,
    ) -> None:
        """Describe a policy with flat observations [num_inputs] and outputs [num_outputs].

        ``settings`` are of type ``Settings``; ``shape`` is that of an observation before it was
        flattened, [num_inputs] by default; ``pixels`` are the lowest and the highest one of
        images.
        """
        self.settings = settings
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self.shape = (num_inputs,) if shape is None else shape
        self.pixels = pixels
        if isinstance(self, PreparedPolicy):
            self.prepare()

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """The shapes of the parameter tensors, in their order in the vector."""

    @final
    @property
    def num_params(self) -> int:
        """The number of parameters, P."""
        return sum(math.prod(shape) for shape in self.shapes)

    @abstractmethod
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """The parameters [P] at the start of training."""

    @abstractmethod
    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""


class PreparedPolicy(Policy, ABC):
    """A policy that derives attributes from its settings."""

    @abstractmethod
    def prepare(self) -> None:
        """Derive the attributes; called once, after all arguments are set.

        Raises:
            UsageError: the settings do not fit the observations or this machine.
        """


class TorchPolicy(Policy, ABC):
    """A policy that can also be computed by torch layers, as in ``TrainedPolicy.module``."""

    @abstractmethod
    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """A module with the parameters [P], from inputs [N, inputs] to outputs [N, outputs].

        A recurrent one has a second argument, its state, which is None at the start of an episode,
        and returns the outputs and the next state.

        Args:
            parameters: of the policy, [P].
            reference: the reference batch [R, inputs]; None if ``reference_size`` is 0.
        """


def image_shape(
    policy: Policy, kind: str, axis: Literal["channels", "frames"] = "channels"
) -> tuple[int, int, int]:
    """Channels (or frames), height and width of the observations of a policy of a ``kind``.

    Raises:
        UsageError: they are no images, or their channels come last.
    """
    if len(policy.shape) != 3:
        raise UsageError(
            f"observations of shape {list(policy.shape)}: {kind} takes images "
            f"[{axis}, height, width], such as those of esbench/Pong-v5; use mlp or linear"
        )
    channels, height, width = policy.shape
    if width <= MOST_COLORS < min(channels, height):
        wrapper = "esbench.environments.wrappers:ChannelsFirst"
        does = "moves the last axis to the front"
        if axis == "frames":  # colors in front would be taken for times
            wrapper = "gymnasium.wrappers:GrayscaleObservation"
            does = "removes colors, and FrameStackObservation after it adds frames"
        raise UsageError(
            f"observations of shape {list(policy.shape)}: expected images [{axis}, height, width]; "
            f'wrappers = [{{wrapper = "{wrapper}"}}] of the environment {does}'
        )
    return channels, height, width


def normalized_weights(
    generator: np.random.Generator, shapes: Sequence[tuple[int, ...]]
) -> list[Matrix]:
    """Initial weights [inputs, units] of each layer, as in OpenAI's evolution-strategies-starter.

    Normal, with the weights into each unit scaled to length 1, or ``OUTPUT_LENGTH`` for the last
    layer.
    """
    layers = []
    for shape in shapes:
        weights = generator.standard_normal(shape)
        weights /= np.sqrt(np.sum(weights * weights, axis=0))
        layers.append(weights)
    layers[-1] *= OUTPUT_LENGTH
    return layers


POLICIES: Final[Registry[Policy]] = Registry("policy", "esbench.policies", "esbench.policies")
register_policy = POLICIES.register
