"""Spatial soft-argmax in NumPy, slot by slot, so that the bits of a slot depend on no other.

All frames of an observation share one product with the filters, whose input is a copy of the frames
for each place in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from esbench.core.arrays import Matrix, Vector
from esbench.policies.policy import Rows, SharingBatch

FARTHEST: Final = 0.3  # to which differences are clipped; an image is 2 wide


@final
class Frames(NamedTuple):
    """Which pixels of an observation are seen, and how."""

    shape: tuple[int, int, int]  # frames, height and width of an observation
    crop: tuple[int, int, int, int]  # pixels cut off at the top, bottom, left and right
    window: int  # height and width of a filter, odd

    @property
    def size(self) -> tuple[int, int]:
        """Height and width after the crop."""
        (_, height, width), (top, bottom, left, right) = self.shape, self.crop
        return height - top - bottom, width - left - right

    def cropped(self, images: Rows) -> Rows:
        """The part that is seen of images [..., height, width], as a view."""
        (_, height, width), (top, bottom, left, right) = self.shape, self.crop
        return images[..., top : height - bottom, left : width - right]


@final
class Detector(NamedTuple):
    """One member: the numbers of a soft-argmax and of the linear layer on it, in float32."""

    filters: Rows  # [K, window * window]
    priors: Rows  # logarithms, up to a constant, [K, height * width]
    weights: Rows  # [2 K frames, units]
    bias: Rows  # [units]


def coordinates(pixels: int) -> Vector:
    """The centers of the pixels of an axis that goes from -1 to 1, [pixels]."""
    return (2.0 * np.arange(pixels) + 1.0) / pixels - 1.0


def pixel_centers(size: tuple[int, int]) -> Matrix:
    """The positions x and y of all pixels of an image, row by row, [height * width, 2]."""
    height, width = size
    y, x = np.meshgrid(coordinates(height), coordinates(width), indexing="ij")
    return np.stack([x.reshape(-1), y.reshape(-1)], axis=1)


def ordered(outputs: int) -> tuple[Rows, Rows]:
    """Factors and offsets [outputs] with which one number u becomes scores of intervals.

    The score of the interval with center c is 2 c u - c^2 = u^2 - (u - c)^2, less the same u^2 for
    all. So the largest one is that of the interval in which u lies; on a boundary the first one of
    two equal scores counts, that of the lower interval.
    """
    centers = coordinates(outputs).astype(np.float32)
    return np.float32(2.0) * centers, -centers * centers


@final
class SoftArgmaxBatch(SharingBatch):
    """Filters, a softmax over positions, and a linear layer on the mean positions.

    The features are the positions x and y of each keypoint in the last frame, then their
    differences between every two frames in a row, the first ones first.
    """

    remembers = False

    def __init__(
        self,
        slots: int,
        frames: Frames,
        outputs: int,
        is_ordered: bool,
        detector: Callable[[Vector], Detector],
    ) -> None:
        """Make slots whose parameters are turned into numbers by ``detector``.

        If the outputs are ordered, one unit of the linear layer chooses between them.
        """
        self._frames, self._detector = frames, detector
        self._slots: list[Detector | None] = [None] * slots
        self._outputs, self._spread = outputs, ordered(outputs) if is_ordered else None
        count, (height, width), window = frames.shape[0], frames.size, frames.window
        edge = window // 2
        padded = np.zeros((count, height + 2 * edge, width + 2 * edge), np.float32)
        self._seen = padded[:, edge : edge + height, edge : edge + width]
        frame, down, right = padded.strides
        run = (window, window, count, height, width)
        self._windows = as_strided(padded, run, (down, right, frame, down, right))
        self._copies = np.zeros(run, np.float32)
        self._matrix = self._copies.reshape(window * window, -1)
        grid = pixel_centers(frames.size)
        self._moments = np.insert(grid, 0, 1.0, axis=1).astype(np.float32)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot."""
        self._slots[slot] = self._detector(parameters)

    def share(self, slot: int, source: int) -> None:
        """Let a slot use the parameters of another slot."""
        self._slots[slot] = self._slots[source]

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Compute outputs [k, outputs] for observations [k, inputs]; zeros for slots not live."""
        outputs = np.zeros((len(observations), self._outputs), np.float32)
        for slot in range(len(observations)) if live is None else live:
            member = self._slots[slot]
            if member is None:
                continue
            sums = self._features(observations[slot], member) @ member.weights + member.bias
            outputs[slot] = (
                sums if self._spread is None else sums * self._spread[0] + self._spread[1]
            )
        return outputs

    def positions(self, row: Rows, detector: Detector) -> Rows:
        """The keypoints (x, y) in every frame of an observation [inputs], [K, frames, 2]."""
        frames = self._frames.shape[0]
        self._seen[...] = self._frames.cropped(row.reshape(self._frames.shape))
        self._copies[...] = self._windows
        logits = np.matmul(detector.filters, self._matrix)
        logits = logits.reshape(len(logits), frames, -1)
        logits += detector.priors[:, np.newaxis]
        logits -= logits.max(axis=2, keepdims=True)
        np.exp(logits, out=logits)
        moments = np.matmul(logits, self._moments)
        places: Rows = moments[:, :, 1:] / moments[:, :, :1]
        return places

    def _features(self, row: Rows, detector: Detector) -> Rows:
        places = self.positions(row, detector)
        steps = places[:, 1:] - places[:, :-1]
        np.clip(steps, -FARTHEST, FARTHEST, out=steps)
        moved = steps.transpose(1, 0, 2).reshape(-1)
        return np.concatenate([places[:, -1].reshape(-1), moved])
