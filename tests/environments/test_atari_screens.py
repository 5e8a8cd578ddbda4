"""What is made anew of what has changed is what would be made of everything."""

from __future__ import annotations

import numpy as np
import pytest

from esbench.environments.atari_frames import AreaResize, Frames, Screens, camera
from esbench.environments.atari_games import Game

GRAY = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint8)


def shown(pictures: Frames, size: int) -> Frames:
    """Return the small frames [S, size, size] of pictures [2, S, H, W], all made anew."""
    return AreaResize(pictures.shape[2:], size)(GRAY[pictures].max(0))


def change(pictures: Frames, random: np.random.Generator, share: float) -> None:
    """Draw another color for some pixels, most of them in one of the two pictures only."""
    where = random.random(pictures.shape) < share
    pictures[where] = random.integers(0, 256, where.sum())


@pytest.mark.parametrize(
    ("height", "size"), [(210, 84), (210, 21), (210, 64), (210, 83), (220, 80), (250, 84)]
)
def test_small_frames_are_those_of_the_whole_pictures(height: int, size: int) -> None:
    random = np.random.default_rng(0)
    small = np.zeros((3, 2, size, size), np.uint8)  # the second frames of stacks of two
    screens = Screens((height, 160), GRAY, small[:, 1])
    change(screens.pictures, random, 1.0)
    for share in (0.0, 1e-5, 1e-3, 0.1, 1.0, 1e-4):
        change(screens.pictures, random, share)
        screens.refresh()
        np.testing.assert_array_equal(small[:, 1], shown(screens.pictures, size))
        before = small.copy()
        screens.refresh()
        np.testing.assert_array_equal(small, before)
        change(screens.pictures[:, 1:2], random, 1e-4)  # and the others of none
    assert not small[:, 0].any()


def test_the_lighter_of_two_pictures_is_kept_beside_a_third() -> None:
    random = np.random.default_rng(2)
    small = np.zeros((2, 42, 42), np.uint8)
    screens = Screens((210, 160), GRAY, small)
    change(screens.pictures, random, 1.0)
    screens.refresh()
    three = np.concatenate([screens.pictures, np.zeros((1, 2, 210, 160), np.uint8)])
    change(screens.pictures[:1], random, 0.5)
    three[2] = screens.pictures[0]
    screens.keep_lighter(1)
    screens.refresh()
    np.testing.assert_array_equal(small[1], shown(three, 42)[1])


@pytest.mark.parametrize("rom", ["journey_escape", "qbert"])
def test_every_color_is_as_gray_as_the_ale_shows_it(rom: str) -> None:
    """In two games that show most of the 128."""
    emulator = Game(rom=rom, protocol="v5").emulator(0.0)
    look, gray = camera(emulator)
    picture = np.zeros(emulator.ale.getScreenDims(), np.uint8)
    random = np.random.default_rng(0)
    met = np.zeros(256, np.bool_)
    emulator.reset(seed=0)
    for _ in range(150):
        for _ in range(4):
            emulator.ale.act(random.choice(emulator._action_set))
        look(picture)
        np.testing.assert_array_equal(gray[picture], emulator.ale.getScreenGrayscale())
        met[picture] = True
    assert met.sum() > 64
