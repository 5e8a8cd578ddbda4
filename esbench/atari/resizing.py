"""OpenCV's area interpolation (``INTER_AREA``) in NumPy, to the bit.

It is what Gymnasium's ``AtariPreprocessing`` and ``ale_py``'s own vector environment make frames
smaller with; OpenCV itself is 60 MB that nothing else here needs. A pixel of the small frame is the
mean of the rectangle it covers, pixels at the rim by the part of them that lies inside.
"""

from __future__ import annotations

import math
from typing import Final, final

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]

# A mean this far from the next whole number may be rounded either way: OpenCV's own errors are
# below 1e-4.
HALF: Final = np.float32(0.499)
CHUNK: Final = 8  # frames at once: more do not fit into a core's own memory


@final
class AreaResize:
    """Makes frames [k, H, W] into frames [k, size, size], ``size`` smaller than H and W.

    The sums are of whole numbers below 2^24, exact in float32 in whatever order they are added.
    Their means are rounded as OpenCV does unless they are in the middle of two whole numbers: there
    (1 to 54 of 7056 pixels on average, by game) it depends on the order, and the few are computed
    in OpenCV's.
    """

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        """Make ready for frames of ``shape``, (H, W)."""
        height, width = shape
        self._size = size
        self._rows, self._columns = _shares(height, size), _shares(width, size).T.copy()
        self._row_taps, self._column_taps = taps(height, size), taps(width, size)
        self._scale = np.float32(1.0 / (self._rows[0].sum() * self._columns[:, 0].sum()))
        strip, across = self._rows.shape[1], len(self._columns)
        # Work space: it takes longer to get this much memory anew than to compute in it.
        self._strips = np.empty((CHUNK * height // strip, strip, width), np.float32)
        self._shorter = np.empty((CHUNK * height // strip, len(self._rows), width), np.float32)
        self._means = np.empty((CHUNK * size * width // across, size * across // width), np.float32)
        self._rounded = np.empty((CHUNK, size, size), np.float32)
        self._doubtful = np.empty((CHUNK, size, size), np.bool_)

    def __call__(self, frames: Frames) -> Frames:
        """Return the small frames."""
        small = np.empty((len(frames), self._size, self._size), np.uint8)
        for first in range(0, len(frames), CHUNK):
            chunk = slice(first, first + CHUNK)
            self._resize(frames[chunk], small[chunk])
        return small

    def _resize(self, frames: Frames, out: Frames) -> None:
        count = len(frames)
        strips = self._strips[: count * len(self._strips) // CHUNK]
        shorter, means = (
            self._shorter[: len(strips)],
            self._means[: count * len(self._means) // CHUNK],
        )
        np.copyto(strips, frames.reshape(strips.shape))
        np.matmul(self._rows, strips, out=shorter)
        np.matmul(shorter.reshape(len(means), -1), self._columns, out=means)
        means *= self._scale
        means = means.reshape(out.shape)
        rounded, doubtful = self._rounded[:count], self._doubtful[:count]
        np.rint(means, out=rounded)
        means -= rounded
        np.abs(means, out=means)
        np.greater(means, HALF, out=doubtful)
        places = np.flatnonzero(doubtful)
        if len(places):
            rounded.reshape(-1)[places] = self._in_order(frames, places)
        np.copyto(out, rounded, casting="unsafe")

    def _in_order(self, frames: Frames, places: Indices) -> Floats:
        """Return the means at some places of the small frames, [n], as OpenCV computes them."""
        frame, row, column = np.unravel_index(places, (len(frames), self._size, self._size))
        rows, row_weights = self._row_taps
        columns, column_weights = self._column_taps
        pixels = frames[frame[:, None, None], rows[row][:, :, None], columns[column][:, None, :]]
        across = _added(pixels.astype(np.float32) * column_weights[column][:, None, :])
        means: Floats = np.rint(_added(across * row_weights[row]))
        return means


def taps(pixels: int, size: int) -> tuple[Indices, Floats]:
    """Return what each of ``size`` pixels is made of: which of ``pixels``, and by what part.

    Each [size, T], in the order in which OpenCV adds them (``computeResizeAreaTab``); where there
    are fewer than T, the others weigh 0.
    """
    scale = pixels / size
    parts: list[list[tuple[int, float]]] = []
    for place in range(size):
        low, high = place * scale, (place + 1) * scale
        cell = min(scale, pixels - low)
        last = min(math.floor(high), pixels - 1)
        first = min(math.ceil(low), last)
        part = [(first - 1, (first - low) / cell)] if first - low > 1e-3 else []
        part += [(index, 1.0 / cell) for index in range(first, last)]
        if high - last > 1e-3:
            part.append((last, min(high - last, 1.0, cell) / cell))
        parts.append(part)
    most = max(map(len, parts))
    padded = [[*part, *[(0, 0.0)] * (most - len(part))] for part in parts]
    indices = np.array([[index for index, _ in part] for part in padded], np.intp)
    return indices, np.array([[weight for _, weight in part] for part in padded], np.float32)


def _added(terms: Floats) -> Floats:
    """Return the sum of terms [..., T] over the last axis, from first to last."""
    total: Floats = terms[..., 0]
    for index in range(1, terms.shape[-1]):
        total = total + terms[..., index]
    return total


def _shares(pixels: int, size: int) -> Floats:
    """Return by how many units each of some pixels is part of each small one, [b, a].

    The pattern repeats after a pixels and b small ones; a unit is 1/b of a pixel, so all are whole
    and every row sums to a.
    """
    repeats = math.gcd(pixels, size)
    inputs, outputs = pixels // repeats, size // repeats
    low = np.arange(outputs)[:, None] * inputs
    edges = np.arange(inputs) * outputs
    inside = np.minimum(low + inputs, edges + outputs) - np.maximum(low, edges)
    shares: Floats = np.maximum(inside, 0).astype(np.float32)
    return shares
