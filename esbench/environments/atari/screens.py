"""The small frames of several emulators, updated only where their screens have changed.

Few words of eight pixels change from one step to the next, and an emulator returns its screen in
palette colors much faster than in gray. So the last two screens of each emulator are compared with
the previous ones in palette colors; only the changed words are made gray and combined, and only
the blocks that contain one are resized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import numpy as np

from esbench.environments.atari.resizing import WORD, AreaResize, Frames

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

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

    Screens are copied in gray for PAL games, whose palette is unknown here, and whenever the first
    screen of the emulator has other grays than ``NTSC``.
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
