"""The small frames of several emulators, of whose pictures only what has changed is looked at.

From one step of four frames to the next, half a percent (Breakout) to a fifth (Solaris) of a
picture's words of eight pixels change; on average of 16 games, one in 18. An emulator gives its
picture in the colours of its palette ten times faster than in grey. So the last two pictures of
each are compared with those before in these colours, the changed words alone are made grey and
joined, and of the small frames the blocks that contain one are made anew (in Pong, 7 %). A picture
of which every word changes takes three times as long as it would without all this, 200 us, but is
too rare to matter: Solaris, where most of a picture changes in one step of ten, gains 6 % too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import numpy as np

from esbench.environments.atari.resizing import WORD, AreaResize, Frames

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

# What the ALE (0.12.1) shows in grey for colours 0, 2, 4 to 254; no game for NTSC has others.
NTSC: Final = bytes.fromhex(
    "004a6f8eaac0d6ec405f7a94acc1d6e93f576e8396a7b8c73b556b8194a7b7c7"
    "2c445a6e8092a1b0334a5f738495a4b2273f556b7d8f9fae16314960748899a9"
    "1129405568798999203c556d8296a8ba28455f788da2b6c82b4a657f97adc1d4"
    "2847627c93a9bdcf294a68849db5cbdf2f4f6b859db3c8dc2f4f6b859db3c8dc"
)
PAL_HEIGHT: Final = 250  # games for NTSC show 210 to 230 rows


def camera(emulator: AtariEnv) -> tuple[Callable[[Frames], None], Frames]:
    """Return what takes a picture of an emulator, and the grey [256] of the colours in it.

    The nine games for PAL, whose palette is not known here, are taken in grey, and so is everything
    if an ALE shows what the emulator was loaded with in other greys than those known here.
    """
    ale, grey = emulator.ale, np.repeat(np.frombuffer(NTSC, np.uint8), 2)
    picture = np.zeros(ale.getScreenDims(), np.uint8)
    ale.getScreen(picture)
    known = np.array_equal(grey[picture], ale.getScreenGrayscale())
    if len(picture) == PAL_HEIGHT or not known:
        return ale.getScreenGrayscale, np.arange(256, dtype=np.uint8)
    return ale.getScreen, grey


@final
class Screens:
    """The small frame of each slot's last two pictures, joined (the lighter pixel of the two).

    Attributes:
        pictures: [2, S, H, W], the last two of each slot, in the colours of ``grey``; written from
            outside, between two calls of ``refresh``.
    """

    def __init__(self, shape: tuple[int, ...], grey: Frames, small: Frames) -> None:
        """Begin with pictures of colour 0, which is black.

        Args:
            shape: (H, W) of a picture.
            grey: [256], of each colour.
            small: [S, size, size] of zeros, where the small frames are kept up to date.
        """
        slots, size = small.shape[:2]
        self.pictures = np.zeros((2, slots, *shape), np.uint8)
        self._words = self.pictures.reshape(2, -1).view(np.uint64)
        self._seen = np.zeros_like(self._words)  # what the small frames are made of
        self._grey = grey
        # Two pixels at once, which halves the time.
        self._grey_of_two = grey[np.arange(2**16, dtype=np.uint16).view(np.uint8)].view(np.uint16)
        self._differs = np.zeros(self._words.shape, np.bool_)
        self._changed = np.zeros(self._words.shape[1:], np.bool_)

        self._resize = resize = AreaResize(shape, size)
        (down, across), (rows, columns) = resize.grid, resize.block
        # Joined pictures, as the resize wants them: row by row of all blocks of all slots.
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
        assert np.shares_memory(self._small, small)

    def keep_lighter(self, slot: int) -> None:
        """Make a slot's last picture that of both ``refresh`` has seen last, joined."""
        before, last = (
            words.view(np.uint8) for words in self._seen.reshape(2, len(self._small), -1)[:, slot]
        )
        lighter = np.where(self._grey[before] > self._grey[last], before, last)
        self.pictures[1, slot] = lighter.reshape(self.pictures.shape[2:])

    def refresh(self) -> None:
        """Bring the small frames up to date with the pictures."""
        np.not_equal(self._words, self._seen, out=self._differs)
        np.logical_or(self._differs[0], self._differs[1], out=self._changed)
        words = np.flatnonzero(self._changed)
        if not len(words):
            return
        self._seen[:, words] = fresh = self._words.take(words, axis=1)
        grey = self._grey_of_two.take(fresh.view(np.uint16), mode="clip").view(np.uint8)
        self._joined_words[self._places[words]] = np.maximum(*grey).view(np.uint64)
        stale = self._stale
        stale[self._blocks[words]] = True
        blocks = np.flatnonzero(stale)
        stale[blocks] = False
        slots, above, left = (part[blocks] for part in self._where)
        made = self._resize.blocks(self._joined.take(blocks, axis=1))
        self._small[slots, above, :, left] = made.transpose(1, 0, 2)
