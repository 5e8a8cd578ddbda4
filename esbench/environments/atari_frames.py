"""Small gray frames of Atari games: OpenCV's area interpolation, and only of what has changed.

``AreaResize`` is OpenCV's ``INTER_AREA`` in NumPy, bit for bit; OpenCV would be a large dependency
for one function. A pixel of the small frame is the mean of the rectangle it covers.

``Screens`` updates the small frames of several emulators only where their screens have changed,
which are few words of eight pixels. Screens are compared in palette colors, which an emulator
returns faster than grays; only the changed words are made gray, and only their blocks resized.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

Frames = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]

# A mean this far from the nearest whole number may be rounded in either direction.
HALF: Final = np.float32(0.499)
CHUNK: Final = 4  # frames of blocks at once; more do not fit into the cache
WORD: Final = 8  # bytes; a block's rows consist of whole words


@final
class AreaResize:
    """Resizes frames [k, H, W] of ``shape`` (H, W) to [k, size, size], which is smaller.

    A frame consists of blocks that are resized independently: from 210 x 160 to 84 x 84, a block of
    5 rows of 40 pixels becomes 2 rows of 21.

    The sums are of whole numbers below 2^24, so they are exact in float32 in any order of addition.
    Only a mean half-way between two whole numbers depends on the order in which OpenCV adds; these
    few are computed in that order.

    Attributes:
        grid: the number of blocks from top to bottom and from left to right.
        block: [h, w] of a block.
        small_block: [h', w'] of a resized block.
    """

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        height, width = shape
        down, across = math.gcd(height, size), math.gcd(width, size, width // WORD)
        self.grid = down, across
        self.block = height // down, width // across
        self.small_block = size // down, size // across
        self._size = size
        self._rows = _shares(self.block[0], self.small_block[0])
        self._columns = _shares(self.block[1], self.small_block[1]).T.copy()
        # Those of the first block; all other blocks have the same, bit for bit.
        self._row_taps = taps(height, size, self.small_block[0])
        self._column_taps = taps(width, size, self.small_block[1])
        self._scale = np.float32(1.0 / math.prod(self.block))
        self._most = most = CHUNK * down * across
        # Work space; allocating it in every call would take longer than the computation.
        self._pixels = np.empty(most * math.prod(self.block), np.float32)
        self._shorter = np.empty(most * self.small_block[0] * self.block[1], np.float32)
        self._means = np.empty(most * math.prod(self.small_block), np.float32)
        self._rounded = np.empty(self._means.shape, np.float32)
        self._doubtful = np.empty(self._means.shape, np.bool_)

    def __call__(self, frames: Frames) -> Frames:
        """The resized frames."""
        (down, across), (rows, columns), count = self.grid, self.block, len(frames)
        apart = frames.reshape(count, down, rows, across, columns).transpose(2, 0, 1, 3, 4)
        small = self.blocks(apart.reshape(rows, -1, columns))
        rows, columns = self.small_block
        together = small.reshape(rows, count, down, across, columns).transpose(1, 2, 0, 3, 4)
        return together.reshape(count, self._size, self._size)

    def blocks(self, pixels: Frames) -> Frames:
        """Resize blocks [h, n, w] to [h', n, w']."""
        count = pixels.shape[1]
        small = np.empty((self.small_block[0], count, self.small_block[1]), np.uint8)
        for first in range(0, count, self._most):
            chunk = slice(first, first + self._most)
            self._resize(pixels[:, chunk], small[:, chunk])
        return small

    def _resize(self, blocks: Frames, out: Frames) -> None:
        (height, width), (rows, count, columns) = self.block, out.shape
        pixels = self._pixels[: blocks.size].reshape(blocks.shape)
        shorter = self._shorter[: rows * count * width]
        means = self._means[: out.size]
        rounded, doubtful = self._rounded[: out.size], self._doubtful[: out.size]
        np.copyto(pixels, blocks)
        np.matmul(self._rows, pixels.reshape(height, -1), out=shorter.reshape(rows, -1))
        np.matmul(shorter.reshape(-1, width), self._columns, out=means.reshape(-1, columns))
        means *= self._scale
        np.rint(means, out=rounded)
        means -= rounded
        np.abs(means, out=means)
        np.greater(means, HALF, out=doubtful)
        places = np.flatnonzero(doubtful)
        if len(places):
            rounded[places] = self._in_order(pixels, places)
        np.copyto(out, rounded.reshape(out.shape), casting="unsafe")

    def _in_order(self, pixels: Floats, places: Indices) -> Floats:
        """The means at some places of the small blocks, [n], as OpenCV computes them."""
        shape = self.small_block[0], pixels.shape[1], self.small_block[1]
        row, block, column = np.unravel_index(places, shape)
        (rows, row_weights), (columns, column_weights) = self._row_taps, self._column_taps
        terms = pixels[rows[:, np.newaxis, row], block, columns[:, column]]
        terms *= column_weights[:, column]
        # ``sum`` may add in another order.
        across = np.add.accumulate(terms, axis=1)[:, -1] * row_weights[:, row]
        means: Floats = np.rint(np.add.accumulate(across)[-1])
        return means


def taps(pixels: int, size: int, count: int) -> tuple[Indices, Floats]:
    """The source pixels of the first ``count`` of ``size`` pixels and their weights, [T, count].

    In the order in which OpenCV adds them (``computeResizeAreaTab``), padded with weights of 0.
    """
    scale = pixels / size
    parts: list[list[tuple[int, float]]] = []
    for place in range(count):
        low, high = place * scale, (place + 1) * scale
        cell = min(scale, pixels - low)
        last = min(math.floor(high), pixels - 1)
        first = min(math.ceil(low), last)
        part = [(first - 1, (first - low) / cell)] if first - low > 1e-3 else []
        part += [(index, 1.0 / cell) for index in range(first, last)]
        if high - last > 1e-3:
            part.append((last, min(high - last, 1.0, cell) / cell))
        parts.append(part)
    rows = list(zip_longest(*parts, fillvalue=(0, 0.0)))
    indices = np.array([[index for index, _ in row] for row in rows], np.intp)
    return indices, np.array([[weight for _, weight in row] for row in rows], np.float32)


def _shares(pixels: int, size: int) -> Floats:
    """The overlap of every small pixel with every pixel, [size, pixels].

    In units of 1 / size of a pixel: whole numbers, and every row sums to ``pixels``.
    """
    low = np.arange(size)[:, None] * pixels
    edges = np.arange(pixels) * size
    inside = np.minimum(low + pixels, edges + size) - np.maximum(low, edges)
    shares: Floats = np.maximum(inside, 0).astype(np.float32)
    return shares


# The gray values of the ALE for the colors 0, 2, 4 to 254, which are all that NTSC games use.
NTSC: Final = bytes.fromhex(
    "004a6f8eaac0d6ec405f7a94acc1d6e93f576e8396a7b8c73b556b8194a7b7c7"
    "2c445a6e8092a1b0334a5f738495a4b2273f556b7d8f9fae16314960748899a9"
    "1129405568798999203c556d8296a8ba28455f788da2b6c82b4a657f97adc1d4"
    "2847627c93a9bdcf294a68849db5cbdf2f4f6b859db3c8dc2f4f6b859db3c8dc"
)
PAL_HEIGHT: Final = 250  # rows; NTSC games have 210 to 230


def camera(emulator: AtariEnv) -> tuple[Callable[[Frames], None], Frames]:
    """A function that copies the screen of an emulator, and the gray [256] of its colors.

    Screens are copied in gray for PAL games, or if the first one has other grays than ``NTSC``.
    """
    ale, gray = emulator.ale, np.repeat(np.frombuffer(NTSC, np.uint8), 2)
    picture = np.zeros(ale.getScreenDims(), np.uint8)
    ale.getScreen(picture)
    known = np.array_equal(gray[picture], ale.getScreenGrayscale())
    if len(picture) == PAL_HEIGHT or not known:
        return ale.getScreenGrayscale, np.arange(256, dtype=np.uint8)
    return ale.getScreen, gray


@final
class Screens:
    """The small frame of each slot: the pixelwise maximum of its last two pictures.

    The slots write these to ``pictures`` [2, S, H, W], in the colors of ``gray``.
    """

    def __init__(self, shape: tuple[int, ...], gray: Frames, small: Frames) -> None:
        """Begin with black pictures of ``shape`` (H, W); ``gray`` [256] is that of each color.

        ``refresh`` writes the small frames to ``small``, [S, size, size] of zeros.
        """
        slots, size = small.shape[:2]
        self.pictures = np.zeros((2, slots, *shape), np.uint8)
        self._words = self.pictures.reshape(2, -1).view(np.uint64)
        self._seen = np.zeros_like(self._words)  # the pictures of the small frames
        self._gray = gray
        # Two pixels per lookup, which is faster than one.
        self._gray_of_two = gray[np.arange(2**16, dtype=np.uint16).view(np.uint8)].view(np.uint16)
        self._differs = np.zeros(self._words.shape, np.bool_)
        self._changed = np.zeros(self._words.shape[1:], np.bool_)

        self._resize = resize = AreaResize(shape, size)
        (down, across), (rows, columns) = resize.grid, resize.block
        # Combined pictures in the order of the resize: row by row of all blocks of all slots.
        self._joined = np.zeros((rows, slots * down * across, columns), np.uint8)
        self._joined_words = self._joined.reshape(-1).view(np.uint64)
        places = np.arange(self._joined_words.size).reshape(rows, slots, down, across, -1)
        self._places = np.ascontiguousarray(places.transpose(1, 2, 0, 3, 4)).reshape(-1)
        blocks = np.arange(slots * down * across)
        self._blocks = np.broadcast_to(
            blocks.reshape(slots, down, 1, across, 1), (slots, down, rows, across, columns // WORD)
        ).reshape(-1)
        self._stale = np.zeros(blocks.shape, np.bool_)
        self._where = np.unravel_index(blocks, (slots, down, across))
        rows, columns = resize.small_block
        self._small = small.reshape(slots, down, rows, across, columns)

    def keep_lighter(self, slot: int) -> None:
        """Set the last picture of a slot to the maximum of the two of the last ``refresh``."""
        before, last = (
            words.view(np.uint8) for words in self._seen.reshape(2, len(self._small), -1)[:, slot]
        )
        lighter = np.where(self._gray[before] > self._gray[last], before, last)
        self.pictures[1, slot] = lighter.reshape(self.pictures.shape[2:])

    def refresh(self) -> None:
        """Update the small frames from the pictures."""
        np.not_equal(self._words, self._seen, out=self._differs)
        np.logical_or(self._differs[0], self._differs[1], out=self._changed)
        words = np.flatnonzero(self._changed)
        if not len(words):
            return
        self._seen[:, words] = fresh = self._words.take(words, axis=1)
        gray = self._gray_of_two.take(fresh.view(np.uint16), mode="clip").view(np.uint8)
        self._joined_words[self._places[words]] = np.maximum(*gray).view(np.uint64)
        stale = self._stale
        stale[self._blocks[words]] = True
        blocks = np.flatnonzero(stale)
        stale[blocks] = False
        slots, above, left = (part[blocks] for part in self._where)
        made = self._resize.blocks(self._joined.take(blocks, axis=1))
        self._small[slots, above, :, left] = made.transpose(1, 0, 2)
