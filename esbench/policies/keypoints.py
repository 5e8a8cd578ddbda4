"""Keypoints: a spatial soft-argmax, for images in which a few small things move.

Levine, Finn, Darrell & Abbeel 2016, "End-to-end training of deep visuomotor policies" (JMLR 17,
arXiv:1504.00702), section 5.1; Finn et al. 2016, "Deep spatial autoencoders for visuomotor
learning" (arXiv:1509.06113), section 4. Each keypoint has a filter and a prior over positions. The
softmax of the filtered image plus the prior is a distribution over positions, and its mean is the
keypoint. The same filters see every frame of the observation, so a keypoint moves from frame to
frame, and the policy needs no memory. A linear layer maps the positions and their differences
between frames to the outputs; those of all keypoints but the first are relative to the first one,
such as the player's own.

The filters begin as detectors of bright bars instead of random ones. Parameters are what is added
to these, and all begin at 0: so weight decay pulls towards detectors that work and not towards
filters of 0, which find nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Matrix, Shapes, Vector
from esbench.core.errors import UsageError
from esbench.core.settings import Settings
from esbench.policies.kernels.convolution import split_tensors
from esbench.policies.kernels.soft_argmax import Detector, Frames, SoftArgmaxBatch, pixel_centers
from esbench.policies.policy import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    Rows,
    TorchPolicy,
    image_shape,
    register_policy,
)

if TYPE_CHECKING:
    import torch

Margin: TypeAlias = Annotated[int, Field(ge=0, le=4096)]
Place: TypeAlias = Annotated[float, Field(ge=-1, le=1)]
Factor: TypeAlias = Annotated[float, Field(gt=0, le=10_000)]  # so that float32 is enough
BYTES: Final = (0.0, 255.0)


@final
class StartSettings(Settings):
    """What a keypoint detects at first: a bright bar, anywhere or near one place."""

    height: Annotated[int, Field(ge=1, le=63)] = 1
    """Height of the bar [pixels]."""

    width: Annotated[int, Field(ge=1, le=63)] = 1
    """Width of the bar [pixels]."""

    x: Place | None = None
    """Where the bar is in a row, from -1 (left) to 1 (right); anywhere by default."""

    y: Place | None = None
    """Where the bar is in a column, from -1 (top) to 1 (bottom); anywhere by default."""


@final
class KeypointSettings(PolicySettings):
    """Settings of the keypoint policy, whose images are [frames, height, width]."""

    normalize_observations: bool = True
    """Whether to subtract each pixel's running mean and divide by its running deviation, which
    removes what does not move; otherwise the range of the pixels is scaled to
    ``observation_clip``."""

    observation_clip: Factor = 10.0
    """Absolute value to which normalized observations are clipped [deviations]."""

    keypoints: Annotated[tuple[StartSettings, ...], Field(min_length=1, max_length=256)] = (
        StartSettings(),
    )
    """What each keypoint detects at first; by default, one detects the brightest pixel."""

    window: Annotated[int, Field(ge=1, le=63)] = 3
    """Height and width of a filter, an odd number, at most those of the cropped image [pixels]."""

    crop: tuple[Margin, Margin, Margin, Margin] = (0, 0, 0, 0)
    """What to cut off at the top, bottom, left and right [pixels]."""

    gain: Factor = 3.0
    """Factor on the filtered image before the softmax; a larger one makes keypoints sharper."""

    curvature: Annotated[float, Field(ge=0, le=1_000_000)] = 10_000.0
    """By how much the logarithm of a prior falls at a distance of 1, half an image, from the x or y
    of a keypoint."""

    fixed_filters: bool = False
    """Whether filters and priors stay as they begin, so that only the linear layer has
    parameters."""

    filter_scale: Factor = 0.1
    """What a filter gains for a parameter of 1."""

    prior_scale: Factor = 3.0
    """The slope of a prior for a parameter of 1 [per half image]."""

    position_scale: Factor = 4.0
    """Factor on the positions, as inputs of the linear layer."""

    difference_scale: Factor = 10.0
    """Factor on the differences of positions between frames, which are clipped before."""

    absolute_scale: Factor = 0.25
    """Another factor on the inputs that are not relative: the position and the differences of the
    first keypoint."""

    bias_scale: Factor = 0.5
    """Factor on the bias of the linear layer."""

    ordered_outputs: bool = False
    """Whether one number u chooses between the outputs: the largest one is that in whose interval u
    lies, when [-1, 1] is cut into equal intervals, as with
    ``esbench.environments.wrappers:OrderedActions``, but the lower one on a boundary. For Discrete
    actions that have an order."""


@final
@register_policy("keypoints")
class Keypoints(PreparedPolicy, TorchPolicy):
    """Positions and movements of a few things in an image, and a linear layer on these."""

    Settings = KeypointSettings
    settings: KeypointSettings
    takes_images = True

    def prepare(self) -> None:
        """Derive what is seen of an observation."""
        settings, window = self.settings, self.settings.window
        shape = _, height, width = image_shape(self, "keypoints", axis="frames")
        if window % 2 == 0:
            raise UsageError(f"window = {window}: expected an odd number, such as 3")
        self._frames = Frames(shape, settings.crop, window)
        left = self._frames.size
        if min(left) < 1:
            raise UsageError(
                f"crop = {list(settings.crop)}: nothing is left of an image of {height} x {width}"
            )
        if min(left) < window:
            raise UsageError(
                f"window = {window}: does not fit the {left[0]} x {left[1]} that the crop leaves "
                f"of an image of {height} x {width}; expected a smaller window"
            )
        _require_bars_inside(settings)
        if settings.ordered_outputs:
            self.needs_discrete = "ordered_outputs = true"
            if self.num_outputs < 2:
                raise UsageError(
                    f"ordered_outputs = true: outputs = {self.num_outputs}; expected two or more "
                    "to choose between"
                )
        self._brightness = settings.gain
        if not settings.normalize_observations:
            self._brightness *= settings.observation_clip / self._pixel_range()

    def _pixel_range(self) -> float:
        """The difference of the highest and the lowest pixel."""
        low, high = self.pixels or BYTES
        if not 0 < high - low < math.inf:
            raise UsageError(
                f"pixels from {low:g} to {high:g} cannot be scaled; expected finite bounds, such "
                "as 0 to 255, or normalize_observations = true"
            )
        return high - low

    @property
    def shapes(self) -> Shapes:
        """Filters [K, window * window], slopes of priors [K, 2], W [2 K frames, units], b.

        K is 0 for the first two with ``fixed_filters``.
        """
        count, window = len(self.settings.keypoints), self.settings.window
        searched = 0 if self.settings.fixed_filters else count
        units = 1 if self.settings.ordered_outputs else self.num_outputs
        return (searched, window**2), (searched, 2), (2 * count * self.shape[0], units), (units,)

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Zeros, [P]."""
        return np.zeros(self.num_params)

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        is_ordered = self.settings.ordered_outputs
        return SoftArgmaxBatch(slots, self._frames, self.num_outputs, is_ordered, self._detector)

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """A convolution, a softmax over positions, and a linear layer."""
        from esbench.policies.kernels.torch_modules import SoftArgmax

        outputs = self.num_outputs if self.settings.ordered_outputs else None
        return SoftArgmax(self._detector(parameters), self._frames, outputs)

    def _detector(self, parameters: Vector) -> Detector:
        """What the parameters [P] stand for."""
        filters, slopes, weights, bias = split_tensors(parameters, self.shapes)
        settings = self.settings
        bars = np.array([_bar(start, settings.window) for start in settings.keypoints])
        priors = np.array([self._prior(start) for start in settings.keypoints])
        if not settings.fixed_filters:
            bars += settings.filter_scale * filters
            places = pixel_centers(self._frames.size)
            priors += np.einsum("ka,pa->kp", settings.prior_scale * slopes, places)  # without BLAS
        found = self._brightness * bars, priors, self._mixed(weights), settings.bias_scale * bias
        return Detector(*(each.astype(np.float32) for each in found))

    def _mixed(self, weights: Matrix) -> Matrix:
        """The weights of plain positions and differences, from those of scaled, relative ones.

        Both are [2 K frames, units], ordered by frame (positions first), keypoint and axis. All
        keypoints but the first are relative to the first: the weight of the first one's input is
        less the sum of the others' weights.
        """
        settings = self.settings
        parts = weights.reshape(self.shape[0], len(settings.keypoints), 2, -1).copy()
        parts[0] *= settings.position_scale
        parts[1:] *= settings.difference_scale
        parts[:, 0] *= settings.absolute_scale
        parts[:, 0] -= parts[:, 1:].sum(axis=1)
        return parts.reshape(weights.shape)

    def _prior(self, start: StartSettings) -> Vector:
        """The logarithm of the prior of a keypoint at first, [height * width]."""
        x, y = pixel_centers(self._frames.size).T
        logits = np.zeros(x.size)
        for axis, place in ((x, start.x), (y, start.y)):
            if place is not None:
                logits -= self.settings.curvature * (axis - place) ** 2
        return logits


def _require_bars_inside(settings: KeypointSettings) -> None:
    for number, start in enumerate(settings.keypoints):
        for name, side in (("height", start.height), ("width", start.width)):
            if side > settings.window:
                raise UsageError(
                    f"keypoints.{number}.{name} = {side}: expected at most window = "
                    f"{settings.window}"
                )


def _bar(start: StartSettings, window: int) -> Vector:
    """The filter of a keypoint at first: 1 in a bar in its middle, and 0 elsewhere."""
    made = np.zeros((window, window))
    top, left = (window - start.height) // 2, (window - start.width) // 2
    made[top : top + start.height, left : left + start.width] = 1.0
    return made.reshape(-1)
